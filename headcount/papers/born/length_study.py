"""Train on short strings, test on longer ones, and put what was seen beside what is proved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from headcount.papers.born.experiments import TASKS, BornSetting, tested
from headcount.refusals import nearest
from headcount.tasks.alternation import Alternation
from headcount.tasks.copies import Copy
from headcount.tasks.counting import CountingProgram, LengthVerdict
from headcount.tasks.neighbours import Neighbour
from headcount.training.loop import train
from headcount.training.strings import string_recipe

__all__ = ["SMALL", "LengthStudy", "generalise", "letter_task"]

SMALL = BornSetting(train=(4, 12), tests=((13, 18), (19, 24), (25, 36)), depth=2, heads=2, embed_dim=32, steps=1500,
                    batch=32, lr=4e-3)  # fmt: skip
BAR = 0.95
Judged = Neighbour | Copy | Alternation


def letter_task(name: str) -> Judged:
    """A task by its code: UR, UL, NRFirst, .., NB, or L3, L4, .. for alternation languages.

    >>> letter_task("L5")
    Alternation(blocks=5)
    >>> letter_task("URR")
    Traceback (most recent call last):
    ...
    ValueError: unknown task 'URR'; did you mean 'UR'?
    """
    if name[:1] == "L" and name[1:].isdigit() and int(name[1:]) >= 1:
        return Alternation(int(name[1:]))
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; {nearest(name, (*TASKS, 'L3', 'L4', 'L5'))}")
    return TASKS[name]


@dataclass(frozen=True)
class LengthStudy:
    """What was measured of one task: the share of right strings in every range of lengths, seed by seed."""

    name: str
    task: Judged
    setting: BornSetting
    rows: tuple[dict[str, Any], ...]

    @property
    def verdict(self) -> LengthVerdict:
        """What is proved, of networks as deep as these."""
        known = self.task.length_verdict
        program = self.task.program() if known.proved else None
        if program is None or (need := layers_of(program)) <= self.setting.depth:
            return known
        have = f"{self.setting.depth} layer{'s' * (self.setting.depth != 1)}"
        why = f"the counting program that predicts it takes {need} layers, and these networks have {have}"
        return LengthVerdict(None, known.source, why)

    @property
    def curve(self) -> list[dict[str, Any]]:
        """By range of lengths, the training one first: median, smallest and every seed; letters beside strings."""
        lines = []
        for i, lengths in enumerate((self.setting.train, *self.setting.tests)):
            seeds = [row["tests"][i]["strings"] for row in self.rows]
            letters = median(row["tests"][i]["letters"] for row in self.rows)
            line = {"lengths": f"{lengths[0]}-{lengths[1]}", "trained": i == 0, "strings": median(seeds)}
            lines.append({**line, "least": min(seeds), "letters": letters, "seeds": seeds, "longest": lengths[1]})
        return lines

    @property
    def outcome(self) -> str:
        """unlearnt, holds or falls: of the median in the training range and in the longest."""
        inside, *_, far = self.curve
        return "unlearnt" if inside["strings"] < BAR else "holds" if far["strings"] >= BAR else "falls"

    @property
    def sentence(self) -> str:
        """What was proved and what was seen."""
        inside, *_, far = self.curve
        proved = "length generalisation is proved in the limit" if self.verdict.proved else "nothing is proved"
        seen = {
            "unlearnt": f"the task was not learnt on lengths {inside['lengths']} ({inside['strings']:.2f}), so length "
            "was not tested",
            "holds": f"networks trained on {inside['lengths']} are right on {far['lengths']} ({far['strings']:.2f})",
            "falls": f"networks trained on {inside['lengths']} fall to {far['strings']:.2f} on {far['lengths']}",
        }[self.outcome]
        return f"So: for {self.name} {proved}, and {seen}."

    def as_json(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        verdict = {"proved": self.verdict.proved, "why": self.verdict.why, "source": str(self.verdict.source)}
        setting = asdict(self.setting)
        words = {"outcome": self.outcome, "sentence": self.sentence}
        return {"task": self.name, "verdict": verdict, "setting": setting, "curve": self.curve, **words}


def layers_of(program: CountingProgram) -> int:
    """The attention layers that a network of this program takes.

    >>> layers_of(Alternation(5).program())
    3
    """
    from headcount.papers.born.compiler import compile

    return compile(program, 1).net.layers


def generalise(
    name: str,
    setting: BornSetting = SMALL,
    *,
    device: str = "cpu",
    on_progress: Callable[[int], None] = lambda steps: None,
) -> LengthStudy:
    """Train seeds of one task on the training lengths and test them on all."""
    task = letter_task(name)
    _check(task, setting)
    shape = setting.shape([task])
    if isinstance(task, Alternation):
        shape = replace(shape, positions="none")
    recipe = string_recipe(setting.steps, setting.batch, evaluations=4)
    outcome = train(setting.members([task], shape), recipe, device=device, on_progress=on_progress)
    return LengthStudy(name, task, setting, tuple(tested(outcome)))


def _check(task: Judged, setting: BornSetting) -> None:
    ends = [setting.train, *setting.tests]
    for (_, high), (low, _) in pairwise(ends):
        if low <= high:
            raise ValueError(f"ranges of lengths must follow each other, and one ends at {high}, the next begins {low}")
    if not setting.tests:
        raise ValueError("at least one longer range is needed to test")
    if isinstance(task, Copy) and task.distinct and ends[-1][1] > task.letters:
        raise ValueError(f"{ends[-1][1]} distinct letters asked for, and there are {task.letters}")
    if isinstance(task, Alternation) and setting.train[1] < task.blocks:
        raise ValueError(f"a word of {task.blocks} blocks has at least {task.blocks} letters: train on longer words")
    if setting.embed_dim % setting.heads:
        raise ValueError(f"{setting.heads} heads do not divide a width of {setting.embed_dim}")
