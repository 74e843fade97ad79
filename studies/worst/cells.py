"""What is trained: cells of members that share sizes, and banks of cells that are trained together."""

from __future__ import annotations

from dataclasses import dataclass

from headcount.nets import Architecture
from headcount.tasks import Wells
from headcount.training import Member, Recipe

__all__ = ["CENTRES", "SMALL", "WHOLE", "Cell", "Plan", "StudyBank"]

HEAD_DIM, RATE, STEPS_PER_EPOCH, BATCH = 4, 0.02, 32, 256
CENTRES = 8  # different tasks in a cell: its members take them in turn


@dataclass(frozen=True)
class Cell:
    """Networks of one shape on tasks of one shape, trained in one way."""

    length: int
    token_dim: int
    retrievals: int
    heads: int
    members: int
    variant: str = "plain"
    width: int = 16
    decay: float = 1e-4

    @property
    def name(self) -> str:
        """What tells it apart."""
        return f"{self.variant} T={self.length} d={self.token_dim} D={self.retrievals} h={self.heads}"

    @property
    def arch(self) -> Architecture:
        """The shape of its networks."""
        return Architecture(layers=((self.heads, HEAD_DIM),), width=self.width)

    @property
    def checked(self) -> bool:
        """Whether some of its networks are tried on many points, and untrained and broken ones of their shape."""
        return (self.variant, self.length, self.token_dim) == ("plain", 4, 1)

    def task(self, member: int) -> Wells:
        """The wells of a member."""
        return Wells.random(self.retrievals, self.token_dim, self.length, seed=member % CENTRES)

    def planned(self) -> list[Member]:
        """Its members, each with a seed of its own."""
        return [
            Member(self.task(k), self.arch, seed=k, data_seed=0, lr=RATE, weight_decay=self.decay)
            for k in range(self.members)
        ]


@dataclass(frozen=True)
class StudyBank:
    """Cells that are trained as one bank, for how long, and to which ratio they are proved.

    `rounds` of training on worst points follow.
    """

    cells: tuple[Cell, ...]
    epochs: int = 400
    rounds: int = 0
    ratio: float = 1.1
    boxes: int = 2_000_000  # of one member, at most

    def recipe(self, epochs: int | None = None) -> Recipe:
        """How they are trained."""
        samples = STEPS_PER_EPOCH * BATCH
        return Recipe(samples=samples, validation=2048, epochs=epochs or self.epochs, batch=BATCH, evaluations=25)


@dataclass(frozen=True)
class Plan:
    """All banks in the order they are trained, and the limits of a cell's proof."""

    banks: tuple[StudyBank, ...]
    samples: int = 20_000
    checked: int = 1_000_000  # points tried on every network of the check of soundness


def _grid(lengths: dict[int, int], token_dim: int = 1, retrievals: int = 3, heads: int = 4) -> tuple[Cell, ...]:
    """Every D and head count in equal parts, at some lengths, with so many members of each."""
    return tuple(
        Cell(length, token_dim, D, h, members)
        for length, members in lengths.items()
        for D in range(1, retrievals + 1)
        for h in range(1, heads + 1)
    )


def _variants(name: str, members: int, lengths: tuple[int, ...] = (4, 6), **other: float) -> tuple[Cell, ...]:
    """A change of training or size, where heads are as many as wells."""
    return tuple(Cell(T, 1, D, D, members, name, **other) for T in lengths for D in (1, 2, 3))  # type: ignore[arg-type]


WHOLE = Plan(
    (
        StudyBank(_grid({2: 100, 3: 60, 4: 240})),
        StudyBank(_grid({6: 240, 8: 60, 10: 40})),
        StudyBank(_grid({2: 60}, token_dim=2), ratio=1.5),
        StudyBank(_variants("worst points", 40), rounds=3),
        StudyBank(_variants("decay 0.01", 40, decay=1e-2) + _variants("decay 0.1", 40, decay=0.1)),
        StudyBank(_variants("four times as long", 40), epochs=1600),
        StudyBank(_variants("width 32", 40, width=32)),
        StudyBank(_grid({16: 20, 32: 10, 64: 4})),
        StudyBank(_grid({3: 4}, token_dim=2, retrievals=2, heads=2), ratio=1.5, boxes=20_000_000),
    )
)

SMALL = Plan(
    (
        StudyBank(_grid({2: 2, 3: 2}, retrievals=2, heads=2), epochs=10, boxes=5_000),
        StudyBank(_variants("worst points", 1, lengths=(3,)), epochs=10, rounds=1, boxes=5_000),
        StudyBank(_grid({2: 1}, token_dim=2, retrievals=1, heads=1), epochs=10, ratio=1.5),
    ),
    samples=2_000,
    checked=20_000,
)
