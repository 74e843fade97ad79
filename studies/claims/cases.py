"""The cases of the study: a random target, a random shape, what the calculus says of it, and its reference."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headcount.nets import Architecture
from headcount.papers.infoflow import predict
from headcount.papers.infoflow.prediction import Prediction
from headcount.papers.infoflow.trained_cells import Entry, same_size
from headcount.tasks import Lookups
from studies.claims.look_ups import drawn_task

SEED, WIDTH = 30, 48


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


# The cases that the rule of the study drew, by their numbers, and what the calculus said of them then: what is learnt
# from training them may change the calculus, and must not change them.
DRAWN: dict[str, tuple[int, ...]] = {
    "cheap": _numbers("1 2 3 7 8 10 12 21 31 32 33 34 35 36 39 40 41 44 53 57 59 64 65 67 75 77 80 82 87 88"),
    "costly": _numbers("0 4 5 6 14 15 19 22 23 28 29 30 37 42 45 50 56 66 68 73 78 81 96 100 102 106 107 108 124 131"),
}
REFERENCES: dict[tuple[int, int], tuple[int, ...]] = {  # (layers, heads of each): the cases beside it
    (1, 2): (87,),
    (1, 3): (19, 21, 65, 66, 77, 96),
    (1, 4): (33,),
    (2, 2): (2, 4, 6, 10, 14, 15, 31, 32, 36, 40, 44, 45, 50, 53, 57, 59, 64, 67, 78, 80, 82, 102, 124),
    (2, 3): (0, 1, 3, 22, 30, 37, 39, 56, 73, 88, 100, 106, 107, 131),
    (2, 4): (8, 42),
    (3, 2): (5, 7, 12, 28, 34, 68, 81, 108),
    (3, 3): (23, 29, 35, 41, 75),
}
EACH = len(DRAWN["cheap"])
P = 8  # position features where a shape has any


@dataclass(frozen=True)
class Case:
    """A claim of the calculus: `shape` is called cheap or costly for `task`; `reference` is a generous shape.

    `said`: what was said when the case was drawn; `now`: what is said today.
    """

    number: int
    task: Lookups
    shape: Architecture
    reference: Architecture
    said: str
    now: Prediction

    @property
    def name(self) -> str:
        kinds = ", ".join(type(part).__name__.removesuffix("Of").lower() for part in self.task.parts)
        places = ", positions" if self.shape.positions else ""
        return f"{self.number}: {kinds} of {self.task.length}, by {self.shape.name}{places}"

    def wider(self, factor: int) -> Case:
        """The same with so many times the hidden units, in both shapes."""
        shape, reference = (replace(arch, width=factor * arch.width) for arch in (self.shape, self.reference))
        return replace(self, shape=shape, reference=reference)

    @property
    def entries(self) -> list[Entry]:
        """The reference first, both of one size."""
        return [
            Entry(f"{self.name}, reference {self.reference.name}", self.task, self.reference),
            Entry(self.name, self.task, self.shape),
        ]


def drawn_cases(each: int = EACH, seed: int = SEED) -> list[Case]:
    """The first `each` cases of the study of both verdicts, in the order in which they were drawn."""
    wanted = {number: verdict for verdict, numbers in DRAWN.items() for number in numbers[:each]}
    cases = []
    for number, (task, shape) in zip(range(max(wanted) + 1), _drawn(random.Random(seed)), strict=False):
        if number in wanted:
            reference = _generous(*next(size for size, own in REFERENCES.items() if number in own))
            sized = same_size(shape, reference, task.token_dim)
            least = replace(sized, width=max(sized.width, WIDTH))  # a shape larger than its reference is not starved
            cases.append(Case(number, task, least, reference, wanted[number], predict(task, shape)))
    return cases


def _drawn(rng: random.Random) -> Iterator[tuple[Lookups, Architecture]]:
    while True:
        task = drawn_task(rng)
        depth = rng.choice((1, 1, 2, 2, 3))
        layers = tuple((rng.randint(1, 3), rng.choice((2, 4, 8))) for _ in range(depth))
        embed_dim = max(rng.choice((8, 16, 32)), *(h * n for h, n in layers))
        yield task, Architecture(layers, WIDTH, rng.choice((0, P, P)), embed_dim)


def _generous(depth: int, heads: int) -> Architecture:
    return Architecture(((heads, 8),) * depth, WIDTH, P, max(32, 8 * heads))
