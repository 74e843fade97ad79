"""What is trained: decoders from scratch on six retrievals and four copies, on short strings, tested on longer ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypedDict, cast

from headcount.nets.causal import DecoderShape
from headcount.results.gathering import grouped
from headcount.tasks.copies import Copy
from headcount.tasks.letters import Lengths, LetterTask, OnLengths
from headcount.tasks.neighbours import Neighbour
from headcount.training.checkpoints import Checkpoint
from headcount.training.loop import Outcome, train
from headcount.training.member import Member, Recipe
from headcount.training.strings import string_recipe

DECAY = 1e-2  # weight decay of every decoder

TASKS: dict[str, Neighbour | Copy] = {
    "UR": Neighbour("right", "only"),
    "UL": Neighbour("left", "only"),
    "NRFirst": Neighbour("right", "first"),
    "NLFirst": Neighbour("left", "first"),
    "NRLast": Neighbour("right", "last"),
    "NLLast": Neighbour("left", "last"),
    "UF": Copy(backward=False, distinct=True, letters=150),
    "UB": Copy(backward=True, distinct=True, letters=150),
    "NF": Copy(backward=False, distinct=False, letters=5),
    "NB": Copy(backward=True, distinct=False, letters=5),
}


@dataclass(frozen=True)
class BornSetting:
    """The lengths to train on and to test, the networks, and how long and with which seeds they are trained."""

    train: Lengths
    tests: tuple[Lengths, ...]
    depth: int = 4
    heads: int = 4
    embed_dim: int = 64
    steps: int = 10_000
    batch: int = 64
    lr: float = 1e-3
    seeds: tuple[int, ...] = (0, 1, 2)

    def shape(self, tasks: Sequence[LetterTask]) -> DecoderShape:
        """The decoder that reads these tasks, with as many places as the longest test needs."""
        longest = max(task.longest(high) for task in tasks for _, high in (self.train, *self.tests))
        layers = ((self.heads, self.embed_dim // self.heads),) * self.depth
        vocab = max(task.vocab for task in tasks)
        return DecoderShape(layers, self.embed_dim, 4 * self.embed_dim, vocab, context=longest)

    def recipe(self, precision: Any = "full") -> Recipe:
        """Fresh strings, no early stop: all members see equally many strings."""
        return string_recipe(self.steps, self.batch, evaluations=8, precision=precision)

    def members(self, tasks: Sequence[LetterTask], shape: DecoderShape) -> list[Member]:
        """Every seed of every task, trained short and tested on all lengths."""
        on = [OnLengths(task, self.train, self.tests) for task in tasks]
        return [Member(task, shape, seed, seed, self.lr, DECAY) for task in on for seed in self.seeds]


SHORT = BornSetting(train=(4, 20), tests=((21, 40), (41, 60)))
LONG = BornSetting(train=(4, 50), tests=((51, 100), (101, 150)))


class RangeScores(TypedDict):
    """Strings of one range of lengths: their loss, and the shares of letters and of whole strings that are right."""

    lengths: list[int]
    loss: float
    letters: float
    strings: float


class TestedRow(TypedDict):
    """A trained decoder as the paper's tables keep it; a point of `curve` is step, loss, letters and strings."""

    task: str
    layers: str
    embed_dim: int
    seed: int
    data_seed: int
    lr: float
    parameters: int
    backend: str
    steps: int
    curve: Sequence[Sequence[float]]
    tests: list[RangeScores]


class ScratchRow(TestedRow):
    """A decoder of one of the ten tasks, and the lengths that it was trained on."""

    code: str
    train: list[int]


class ScratchLine(TypedDict):
    """A task in one range of lengths: the share of strings right over seeds, and the median share of letters."""

    code: str
    lengths: list[int]
    median: float
    least: float
    seeds: list[float]
    letters: float


def from_scratch(
    setting: BornSetting,
    names: Sequence[str] = tuple(TASKS),
    *,
    device: str = "cpu",
    folder: Path | None = None,
    precision: Any = "full",
    on_progress: Callable[[int], None] = lambda steps: None,
) -> Iterator[ScratchRow]:
    """A row for every task and seed, as banks finish: tasks that share their letters train as one bank."""
    for group in alike(TASKS, names):
        tasks = [TASKS[name] for name in group]
        name = f"{'-'.join(group)}-{setting.train[1]}.safetensors"
        outcome = train(
            setting.members(tasks, setting.shape(tasks)),
            setting.recipe(precision),
            device=device,
            checkpoint=None if folder is None else Checkpoint(folder / name, every=0),
            on_progress=on_progress,
        )
        labels = [name for name in group for _ in setting.seeds]
        for label, row in zip(labels, tested(outcome), strict=True):
            yield {"code": label, "train": list(setting.train), **row}


def tested(outcome: Outcome) -> list[TestedRow]:
    """The rows as the paper's tables keep them: strings and letters right in every range, and the curve, by step."""
    columns = ("task", "layers", "embed_dim", "seed", "data_seed", "lr", "parameters", "backend", "steps")
    rows = []
    for row in cast(Sequence[Mapping[str, Any]], outcome.rows):
        tests = [{"lengths": t["lengths"], "loss": t["loss"], **shares(t)} for t in row["tests"]]
        curve = [(at["step"], at["loss"], *shares(at).values()) for at in row["curve"]]
        rows.append(cast(TestedRow, {**{name: row[name] for name in columns}, "curve": curve, "tests": tests}))
    return rows


def shares(test: Mapping[str, Any]) -> dict[str, float]:
    """Of a range of lengths, the share of letters and of whole strings that are right."""
    return {"letters": test["token_accuracy"], "strings": test["string_accuracy"]}


def summary(rows: Sequence[ScratchRow]) -> list[ScratchLine]:
    """By task and range of lengths: the share of strings that are right, seed by seed, its median and its smallest."""
    lines = []
    for code, runs in grouped((row["code"], row) for row in rows).items():
        for i, test in enumerate(runs[0]["tests"]):
            values = [row["tests"][i]["strings"] for row in runs]
            letters = [row["tests"][i]["letters"] for row in runs]
            of = ScratchLine(code=code, lengths=test["lengths"], median=median(values), least=min(values), seeds=values,
                             letters=median(letters))  # fmt: skip
            lines.append(of)
    return lines


def alike(tasks: Mapping[str, LetterTask], names: Sequence[str]) -> list[list[str]]:
    """Names by kind of task and letters: members of a bank read strings of about one length in one alphabet."""
    return list(grouped(((type(tasks[name]), tasks[name].vocab), name) for name in names).values())


def tiny(setting: BornSetting) -> BornSetting:
    """The same with almost nothing trained, to see that it runs."""
    return replace(setting, depth=1, heads=2, embed_dim=8, steps=16, batch=4, seeds=(0,))
