"""Train on short strings, test on longer ones, and put what was seen beside what is proved."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any, Protocol, TypedDict, cast, runtime_checkable

import torch

from headcount.papers.born.experiments import TASKS, BornSetting, TestedRow, shares, tested
from headcount.refusals import nearest
from headcount.results import Basis, Claim, Hypothesis, Predicate, Study
from headcount.tasks.alternation import Alternation
from headcount.tasks.catalogue import on_lengths
from headcount.tasks.copies import Copy
from headcount.tasks.counting import Before, CountingProgram, LengthVerdict
from headcount.tasks.languages import OWN, Dyck, Majority, Parity, Recognition
from headcount.tasks.letters import Lengths, LetterTask, Strings
from headcount.training.loop import train
from headcount.training.strings import string_recipe

SMALL = BornSetting(train=(4, 12), tests=((13, 18), (19, 24), (25, 36)), depth=2, heads=2, embed_dim=32, steps=1500,
                    batch=32, lr=4e-3)  # fmt: skip
BAR = 0.95
LEARNER = Hypothesis(
    "a learner that takes the simplest network, by a regulariser, that is right on all shorter strings",
    short="an idealised learner",
)
LANGUAGES = {"MAJORITY": Recognition(Majority()), "DYCK": Recognition(Dyck()), "PARITY": Recognition(Parity())}


@runtime_checkable
class LengthKnowledge(Protocol):
    """What says what is proved of a letter task."""

    @property
    def length_verdict(self) -> LengthVerdict: ...
    def program(self) -> CountingProgram | None: ...


@runtime_checkable
class Judged(LengthKnowledge, LetterTask, Protocol):
    """A letter task of which it is known what is proved."""


class OwnLanguage:
    """A letter task of the user's own, of which nothing is known here: it is code, and not run to draw a page."""

    length_verdict = LengthVerdict(None, OWN, "no counting program of it is known, which predicts nothing")

    def program(self) -> CountingProgram | None:
        return None


def letter_task(name: str) -> Judged:
    """A task by its code: UR, UL, NRFirst, .., NB, MAJORITY, DYCK, PARITY, or L3, L4, .. for alternation languages.

    >>> letter_task("L5")
    Alternation(blocks=5)
    >>> letter_task("URR")
    Traceback (most recent call last):
    ...
    ValueError: unknown task 'URR'; did you mean 'UR'?
    """
    if name[:1] == "L" and name[1:].isdigit() and int(name[1:]) >= 1:
        return Alternation(int(name[1:]))
    if name in LANGUAGES:
        return LANGUAGES[name]
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; {nearest(name, (*TASKS, *LANGUAGES, 'L3', 'L4', 'L5'))}")
    return TASKS[name]


def _judged(task: LetterTask) -> Judged:
    """The task itself, where it says what is proved of it; one of a stranger's says so too."""
    knows = hasattr(task, "length_verdict") and hasattr(task, "program")
    return cast(Judged, task) if knows else Unjudged(task)


@dataclass(frozen=True)
class Unjudged(OwnLanguage):
    """A letter task of which nothing is known."""

    task: LetterTask

    @property
    def vocab(self) -> int:
        return self.task.vocab

    def longest(self, length: int) -> int:
        return self.task.longest(length)

    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings:
        return self.task.strings(batch, lengths, generator=generator)


class CurveLine(TypedDict):
    """A range of lengths: strings right over seeds (median, smallest, every one), and the median share of letters."""

    lengths: str
    trained: bool
    strings: float
    least: float
    letters: float
    seeds: list[float]
    longest: int


@dataclass(frozen=True)
class LengthStudy:
    """What was measured of one task: the share of right strings in every range of lengths, seed by seed."""

    name: str
    task: LengthKnowledge
    setting: BornSetting
    rows: tuple[TestedRow, ...]

    @classmethod
    def of(cls, study: Study) -> list[LengthStudy]:
        """A sweep of decoders on a letter task, shape by shape; nothing where the task is another."""
        stated = tomllib.loads(study.spec.get("toml") or "").get("task", {})
        if "train" not in stated or not len(study):
            return []
        task = _stated_task(stated)
        shapes = dict.fromkeys((row["layers"], row["embed_dim"]) for row in study)  # type: ignore[typeddict-item]
        return [cls._of_shape(study, task, layers, width) for layers, width in shapes]

    @classmethod
    def _of_shape(cls, study: Study, task: LengthKnowledge, layers: str, width: int) -> LengthStudy:
        rows: list[Any] = [row for row in study if (row["layers"], row["embed_dim"]) == (layers, width)]  # type: ignore[typeddict-item]
        ranges = [tuple(test["lengths"]) for test in rows[0]["tests"]]
        blocks = [tuple(map(int, block.split("x"))) for block in layers.split("+")]
        recipe = study.spec["recipe"]
        setting = BornSetting(ranges[0], tuple(ranges[1:]), len(blocks), blocks[0][0], width, rows[0]["steps"],
                              recipe.get("batch", 0), rows[0]["lr"], tuple(row["seed"] for row in rows))  # fmt: skip
        code = next((code for code, one in TASKS.items() if one == task), str(rows[0]["task"]))
        tests: list[Any] = [{**row, "tests": [{**t, **shares(t)} for t in row["tests"]]} for row in rows]
        return cls(f"{code} by {layers}", task, setting, tuple(tests))

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
    def curve(self) -> list[CurveLine]:
        """By range of lengths, the training one first: median, smallest and every seed; letters beside strings."""
        lines = []
        for i, lengths in enumerate((self.setting.train, *self.setting.tests)):
            seeds = [row["tests"][i]["strings"] for row in self.rows]
            letters = median(row["tests"][i]["letters"] for row in self.rows)
            line = CurveLine(lengths=f"{lengths[0]}-{lengths[1]}", trained=i == 0, strings=median(seeds),
                             least=min(seeds), letters=letters, seeds=seeds, longest=lengths[1])  # fmt: skip
            lines.append(line)
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
        outcome = {
            "unlearnt": f"the task was not learnt on lengths {inside['lengths']} ({inside['strings']:.2f}), so length "
            "was not tested",
            "holds": f"networks trained on {inside['lengths']} are right on {far['lengths']} ({far['strings']:.2f})",
            "falls": f"networks trained on {inside['lengths']} fall to {far['strings']:.2f} on {far['lengths']}",
        }[self.outcome]
        return f"{self.claim()}; {outcome}"

    def claim(self) -> Claim:
        """What a counting program says of all lengths: a statement of a limit, for a learner of the framework."""
        subject, known = f"length generalisation of {self.name} in the limit", self.verdict
        if not known.proved:
            return Claim(subject, Predicate.NOTHING, reason=known.why)
        return Claim(subject, Predicate.HOLDS, None, Basis("proved"), known.source, (LEARNER,))


def _stated_task(stated: Mapping[str, Any]) -> LengthKnowledge:
    """The letter task of a spec, where it ships."""
    if ":" in str(stated.get("name", ":")):
        return OwnLanguage()
    rest = {key: value for key, value in stated.items() if key not in ("name", "train", "tests", "offsets")}
    return _judged(on_lengths(stated["name"], train=tuple(stated["train"]), **rest).task)


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
    task: Judged | None = None,
    device: str = "cpu",
    on_progress: Callable[[int], None] = lambda steps: None,
) -> LengthStudy:
    """Train seeds of one task, named or given, on the training lengths and test them on all."""
    task = letter_task(name) if task is None else task
    _check(task, setting)
    shape = setting.shape([task])
    if isinstance(task, Alternation | Recognition) and not _looks_back(task.program()):
        shape = replace(shape, positions="none")
    recipe = string_recipe(setting.steps, setting.batch, evaluations=4)
    outcome = train(setting.members([task], shape), recipe, device=device, on_progress=on_progress)
    return LengthStudy(name, task, setting, tuple(tested(outcome)))


def _looks_back(program: CountingProgram | None) -> bool:
    """Whether anything is said of the place before, or nothing is known."""
    return program is None or any(isinstance(part, Before) for part in program.parts)


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
