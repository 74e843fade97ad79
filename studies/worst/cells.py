"""What is trained: cells of members that share sizes, and banks of cells that are trained together."""

from __future__ import annotations

from dataclasses import dataclass

from headcount.kernels.box_program import KINDS, BoxShape
from headcount.nets import Architecture
from headcount.tasks import Wells
from headcount.training import Member, Recipe

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
    first: int = 0  # seed of its first member: more of the same cell are trained later

    @property
    def name(self) -> str:
        """What tells it apart."""
        return f"{self.variant} T={self.length} d={self.token_dim} D={self.retrievals} h={self.heads}"

    @property
    def arch(self) -> Architecture:
        """The shape of its networks."""
        return Architecture(layers=((self.heads, HEAD_DIM),), width=self.width)

    @property
    def box_shape(self) -> BoxShape:
        """What the program that bounds its boxes is compiled for; the read-out is as wide as the encoder."""
        return BoxShape(self.length, self.token_dim, self.heads, self.width, self.width, KINDS.index("relu"))

    @property
    def checked(self) -> bool:
        """Whether some of its networks are tried on many points, and untrained and broken ones of their shape."""
        return (self.variant, self.first) == ("plain", 0) and (self.length, self.token_dim) in ((4, 1), (2, 2))

    def task(self, member: int) -> Wells:
        """The wells of a member."""
        return Wells.random(self.retrievals, self.token_dim, self.length, seed=member % CENTRES)

    def planned(self) -> list[Member]:
        """Its members, each with a seed of its own."""
        return [
            Member(self.task(k), self.arch, seed=k, data_seed=0, lr=RATE, weight_decay=self.decay) for k in self.seeds
        ]

    @property
    def seeds(self) -> range:
        """The seeds of its members."""
        return range(self.first, self.first + self.members)


@dataclass(frozen=True)
class StudyBank:
    """Cells that are trained as one bank, for how long, and to which ratio they are proved.

    `rounds` of training on worst points follow. `built` networks are constructed, not trained.
    """

    cells: tuple[Cell, ...]
    epochs: int = 400
    steps: int = STEPS_PER_EPOCH
    rounds: int = 0
    built: bool = False
    ratio: float = 1.5
    boxes: int = 60_000  # of one member, at most; of those that are left open then, more at the end

    def recipe(self, epochs: int | None = None) -> Recipe:
        """How they are trained."""
        samples = self.steps * BATCH
        return Recipe(samples=samples, validation=2048, epochs=epochs or self.epochs, batch=BATCH, evaluations=25)


@dataclass(frozen=True)
class Plan:
    """All banks in the order they are trained, and the limits of a cell's proof."""

    banks: tuple[StudyBank, ...]
    samples: int = 20_000
    checked: int = 1_000_000  # points tried on every network of the check of soundness


def _grid(
    lengths: dict[int, int], token_dim: int = 1, retrievals: int = 3, heads: int = 4, first: int = 0
) -> tuple[Cell, ...]:
    """Every D and head count in equal parts, at some lengths, with so many members of each."""
    return tuple(
        Cell(length, token_dim, D, h, members, first=first)
        for length, members in lengths.items()
        for D in range(1, retrievals + 1)
        for h in range(1, heads + 1)
    )


def _variants(name: str, members: int, lengths: tuple[int, ...] = (4, 6), **other: float) -> tuple[Cell, ...]:
    """A change of training or size, where heads are as many as wells."""
    return tuple(Cell(T, 1, D, D, members, name, **other) for T in lengths for D in (1, 2, 3))  # type: ignore[arg-type]


def _pass(first: int, short: dict[int, int], long: dict[int, int]) -> tuple[StudyBank, ...]:
    """One round of seeds for every cell; sequences of eight tokens and more need twice the samples."""
    return StudyBank(_grid(short, first=first)), StudyBank(_grid(long, first=first), steps=2 * STEPS_PER_EPOCH)


WHOLE = Plan(
    (
        *_pass(0, {2: 24, 3: 12, 4: 24, 6: 24}, {8: 12, 10: 6}),
        StudyBank(_grid({2: 16}, token_dim=2), boxes=400_000),
        StudyBank(_variants("constructed", CENTRES), built=True),
        StudyBank(_variants("worst points", 16), rounds=3),
        StudyBank(_variants("decay 0.01", 16, decay=1e-2) + _variants("decay 0.1", 16, decay=0.1)),
        StudyBank(_variants("four times as long", 16), epochs=1600),
        StudyBank(_variants("width 32", 16, width=32)),
        *_pass(24, {2: 96, 3: 12, 4: 96, 6: 96}, {8: 24, 10: 6}),
        StudyBank(_grid({2: 16}, token_dim=2, first=16), boxes=400_000),
        *_pass(120, {2: 96, 4: 96, 6: 96}, {8: 24, 10: 6}),
        *_pass(216, {2: 56, 4: 56, 6: 56}, {8: 16}),
        StudyBank(_grid({3: 4}, token_dim=2, retrievals=2, heads=2), boxes=4_000_000),
        StudyBank(_grid({16: 4, 32: 4, 64: 2}), steps=2 * STEPS_PER_EPOCH),
        *_pass(272, {2: 96, 4: 96, 6: 96}, {8: 24, 10: 6}),
    )
)

REST = Plan(  # what the first calls on a device left short; cells of a name that is known already replace those
    (
        StudyBank(_grid({2: 32}, token_dim=2), boxes=20_000_000),
        StudyBank(_variants("worst points", 16), rounds=3, boxes=20_000_000),
        StudyBank(_variants("constructed", CENTRES), built=True, boxes=20_000_000),
        StudyBank(_grid({3: 8}, token_dim=2), boxes=40_000_000),
        StudyBank(_grid({3: 24}), boxes=4_000_000),
        StudyBank(_grid({8: 30}), steps=2 * STEPS_PER_EPOCH, boxes=4_000_000),
        StudyBank(_grid({10: 10}), steps=2 * STEPS_PER_EPOCH, boxes=4_000_000),
        StudyBank(_grid({8: 30}, first=30), steps=2 * STEPS_PER_EPOCH, boxes=4_000_000),
    )
)

SMALL = Plan(
    (
        StudyBank(_grid({2: 2, 3: 2}, retrievals=2, heads=2), epochs=10, boxes=5_000),
        StudyBank(_variants("constructed", 1, lengths=(3,)), built=True, boxes=5_000),
        StudyBank(_variants("worst points", 1, lengths=(3,)), epochs=10, rounds=1, boxes=5_000),
        StudyBank(_grid({2: 1}, token_dim=2, retrievals=1, heads=1), epochs=10, boxes=5_000),
        StudyBank(_grid({2: 2, 3: 2}, retrievals=2, heads=2, first=2), epochs=10, boxes=5_000),
    ),
    samples=2_000,
    checked=20_000,
)
