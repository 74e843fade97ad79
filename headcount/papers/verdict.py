"""What a reproduction says about a published table: matches, same shape, or differs. Never tuned to match."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from headcount.fits.knee import change_point
from headcount.papers.published import Cells, Published

__all__ = ["Cell", "Claim", "Comparison", "Outcome", "Verdict", "compare", "judge_claims", "knee_of"]

Outcome = Literal["matches", "same shape", "differs", "no common cell"]
SPREADS = 2.0  # published standard deviations within which a cell agrees
MOST = 0.8  # the share of agreeing cells from which a table matches
ORDERED = 0.9  # the share of clearly different pairs that must be ordered alike


@dataclass(frozen=True)
class Claim:
    """A published statement without numbers, what was measured, and whether it holds there."""

    says: str
    ours: str
    holds: bool


@dataclass(frozen=True)
class Cell:
    """One cell: the published value, ours over the seeds, and the interval it was judged against."""

    row: Any
    column: Any
    published: float
    ours: float
    low: float
    high: float
    seeds: int
    against: Literal["published spread", "seeds"]

    @property
    def agrees(self) -> bool:
        """Whether ours lies in the published spread or, without one, the published value among our seeds."""
        return self.low <= (self.ours if self.against == "published spread" else self.published) <= self.high


@dataclass(frozen=True)
class Verdict:
    """The outcome and its reason in words."""

    outcome: Outcome
    reason: str

    def __str__(self) -> str:
        return f"{self.outcome}: {self.reason}"


@dataclass(frozen=True)
class Comparison:
    """A published table beside ours: every common cell, the share of pairs ordered alike, both knees."""

    published: Published
    cells: tuple[Cell, ...]
    ordered: tuple[int, int]
    knees: tuple[Any, Any] | None

    @property
    def agreeing(self) -> int:
        """How many cells agree."""
        return sum(cell.agrees for cell in self.cells)

    @property
    def same_order(self) -> bool:
        """Whether pairs of cells that clearly differ in the paper are ordered alike here."""
        alike, asked = self.ordered
        return alike >= ORDERED * asked

    @property
    def same_knee(self) -> bool:
        """Whether both tables turn at the same row; true where no knee is asked for."""
        return self.knees is None or self.knees[0] == self.knees[1]

    @property
    def verdict(self) -> Verdict:
        """Matches where most cells agree; same shape where order and knee do; else differs."""
        if not self.cells:
            return Verdict("no common cell", "nothing measured stands in the published table")
        words = f"{self.agreeing} of {len(self.cells)} cells within {self._yardstick}; {self._shape}"
        if self.agreeing >= MOST * len(self.cells):
            return Verdict("matches", words)
        return Verdict("same shape" if self.same_order and self.same_knee else "differs", words)

    @property
    def _yardstick(self) -> str:
        if self.cells[0].against == "published spread":
            return f"{SPREADS:g} published standard deviations"
        return "the range of our seeds"

    @property
    def _shape(self) -> str:
        alike, asked = self.ordered
        knee = "" if self.knees is None else f", knee at {self.knees[0]} published and {self.knees[1]} here"
        return f"{alike} of {asked} clearly different pairs ordered alike{knee}"


def compare(published: Published, cells: Cells) -> Comparison:
    """Put measured cells beside the published ones, and judge them.

    A cell agrees when ours (seeds summed up as the paper does) lies within two published standard deviations or,
    where the paper gives none, when the published value lies between our smallest and largest seed. Shape is the
    order of all pairs within a row or a column that differ clearly in the paper, and the row where the curve turns.

    >>> from headcount.sources import Source
    >>> table = Published("T", Source("yu2025heads", "T"), "heads", (1, 2), "length", (8,), ((.1,), (.001,)))
    >>> compare(table, {(1, 8): [.08, .12], (2, 8): [.0005, .002]}).verdict.outcome
    'matches'
    """
    found = tuple(
        _cell(published, row, column, values)
        for (row, column), values in cells.items()
        if published.at(row, column) is not None and len(values)
    )
    ours = {(c.row, c.column): c.ours for c in found}
    theirs = {(c.row, c.column): c.published for c in found}
    return Comparison(published, found, _ordered(published, theirs, ours), _knees(published, theirs, ours))


def judge_claims(claims: Sequence[Claim]) -> Verdict:
    """The verdict on statements without numbers: there is no level to match, so the best is the same shape."""
    held = sum(claim.holds for claim in claims)
    words = f"{held} of {len(claims)} statements hold in what was measured"
    return Verdict("same shape" if held == len(claims) else "differs", words)


def knee_of(published: Published, cells: dict[tuple[Any, Any], float]) -> Any:
    """The row at which the mean log error over the columns turns, among rows present in every column."""
    columns = sorted({column for _, column in cells}, key=published.columns.index)
    rows = [row for row in published.rows if all((row, column) in cells for column in columns)]
    if len(rows) < 3 or not all(isinstance(row, int | float) for row in rows):
        return None
    levels = np.array([[published.measure.level(cells[row, column]) for row in rows] for column in columns])
    return rows[int(change_point(levels.mean(0), np.array(rows, dtype=float)))]


def _cell(published: Published, row: Any, column: Any, values: Sequence[float]) -> Cell:
    value, spread = published.at(row, column), published.spread_at(row, column)
    assert value is not None
    ours = published.sums_up(values)
    if spread is not None:
        return Cell(row, column, value, ours, value - SPREADS * spread, value + SPREADS * spread, len(values),
                    "published spread")  # fmt: skip
    return Cell(row, column, value, ours, min(values), max(values), len(values), "seeds")


def _ordered(
    published: Published, theirs: dict[tuple[Any, Any], float], ours: dict[tuple[Any, Any], float]
) -> tuple[int, int]:
    pairs = [(a, b) for a, b in combinations(theirs, 2) if a[0] == b[0] or a[1] == b[1]]
    order: Callable[[float, float], int] = published.measure.order
    clear = [(a, b) for a, b in pairs if order(theirs[a], theirs[b])]
    return sum((theirs[a] > theirs[b]) == (ours[a] > ours[b]) for a, b in clear), len(clear)


def _knees(
    published: Published, theirs: dict[tuple[Any, Any], float], ours: dict[tuple[Any, Any], float]
) -> tuple[Any, Any] | None:
    if not published.knee:
        return None
    knees = knee_of(published, theirs), knee_of(published, ours)
    return None if knees[0] is None else knees
