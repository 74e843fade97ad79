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

SEED, EACH, WIDTH = 30, 30, 48
P = 8  # position features where a shape has any
HEADS, SPARE = (1, 2, 3, 4), 1  # of every layer of a reference, and how many it has beyond what it needs


@dataclass(frozen=True)
class Case:
    """A claim of the calculus: `shape` is called cheap or costly for `task`; `reference` is a generous shape."""

    number: int
    task: Lookups
    shape: Architecture
    reference: Architecture
    said: Prediction

    @property
    def name(self) -> str:
        kinds = ", ".join(type(part).__name__.removesuffix("Of").lower() for part in self.task.parts)
        places = ", positions" if self.shape.positions else ""
        return f"{self.number}: {kinds} of {self.task.length}, by {self.shape.name}{places}"

    @property
    def entries(self) -> list[Entry]:
        """The reference first, both of one size."""
        return [
            Entry(f"{self.name}, reference {self.reference.name}", self.task, self.reference),
            Entry(self.name, self.task, self.shape),
        ]


def drawn_cases(each: int = EACH, seed: int = SEED) -> list[Case]:
    """The first `each` cheap and costly claims of the calculus, in the order in which they are drawn."""
    found: dict[str, list[Case]] = {"cheap": [], "costly": []}
    for number, (task, shape) in enumerate(_drawn(random.Random(seed))):
        said = predict(task, shape)
        if said.warrant == "calculus" and said.feasible and len(found[said.verdict]) < each:
            reference = _reference(task)
            if reference is not None and reference.layers != shape.layers:
                sized = same_size(shape, reference, task.token_dim)
                least = replace(
                    sized, width=max(sized.width, WIDTH)
                )  # a shape larger than its reference is not starved
                found[said.verdict].append(Case(number, task, least, reference, said))
        if all(len(cases) == each for cases in found.values()):
            break
    return sorted((case for cases in found.values() for case in cases), key=lambda case: case.number)


def _drawn(rng: random.Random) -> Iterator[tuple[Lookups, Architecture]]:
    while True:
        task = drawn_task(rng)
        depth = rng.choice((1, 1, 2, 2, 3))
        layers = tuple((rng.randint(1, 3), rng.choice((2, 4, 8))) for _ in range(depth))
        embed_dim = max(rng.choice((8, 16, 32)), *(h * n for h, n in layers))
        yield task, Architecture(layers, WIDTH, rng.choice((0, P, P)), embed_dim)


def _reference(task: Lookups) -> Architecture | None:
    """The least shape of the ladder that is cheap by looking up, not by holding the sequence, and SPARE heads more."""
    for depth in (1, 2, 3, 4):
        for heads in HEADS:
            said = predict(task, _generous(depth, heads))
            if said.cheap and said.limit.kind == "score":
                return _generous(depth, heads + SPARE)
    return None


def _generous(depth: int, heads: int) -> Architecture:
    return Architecture(((heads, 8),) * depth, WIDTH, P, max(32, 8 * heads))
