"""What a reproduction says about a published table: matches, same shape, or differs; of our own numbers, consistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from headcount.fits.cells import level
from headcount.fits.knee import change_point
from headcount.results.literature import Cells, Published
from headcount.results.record import Record, Reproduction, Stated

__all__ = [
    "ComparedCell",
    "TableComparison",
    "Outcome",
    "Agreement",
    "compare",
    "comparisons",
    "judge_claims",
    "knee_of",
]

Outcome = Literal["matches", "same shape", "differs", "undecided", "consistent"]
Against = Literal["published spread", "reading", "seeds"]
SPREADS = 2.0  # published standard deviations within which a cell agrees
MOST = 0.8  # the share of agreeing cells from which a table matches
ORDERED = 0.9  # the share of clearly different pairs that must be ordered alike


@dataclass(frozen=True)
class ComparedCell:
    """One cell: the published value, ours over the seeds, and the interval it was judged against."""

    row: Any
    column: Any
    published: float
    ours: float
    low: float
    high: float
    values: tuple[float, ...]
    against: Against

    @property
    def seeds(self) -> int:
        """How many seeds were measured."""
        return len(self.values)

    @property
    def agrees(self) -> bool:
        """Whether ours lies in the published spread or, without one, the published value among our seeds."""
        return self.low <= (self.published if self.against == "seeds" else self.ours) <= self.high


@dataclass(frozen=True)
class Agreement:
    """The outcome and its reason in words."""

    outcome: Outcome
    reason: str

    def __str__(self) -> str:
        return f"{self.outcome}: {self.reason}"


@dataclass(frozen=True)
class TableComparison:
    """A published table beside ours: every common cell, pairs (ordered alike, compared), knees (stated, ours)."""

    published: Published
    cells: tuple[ComparedCell, ...]
    ordered: tuple[int, int]
    knees: tuple[Any, Any] | None

    @property
    def agreeing(self) -> int:
        """How many cells agree."""
        return sum(cell.agrees for cell in self.cells)

    @property
    def same_order(self) -> bool:
        """Whether pairs of cells that clearly differ in the paper are ordered alike here, all but a tenth."""
        alike, compared = self.ordered
        return alike >= ORDERED * compared

    @property
    def same_knee(self) -> bool:
        """Whether both tables turn at the same row; true where the paper states none."""
        return self.knees is None or self.knees[0] == self.knees[1]

    @property
    def verdict(self) -> Agreement:
        """Matches where most cells agree; same shape where order and knee do; else differs.

        Numbers that were derived here cannot be matched, for nobody else printed them: there it is consistent.
        """
        if not self.cells:
            return Agreement("undecided", "nothing measured stands in the published table")
        words = f"{self.agreeing} of {len(self.cells)} {self._yardstick}; {self._shape}{self._read}"
        if self.agreeing >= MOST * len(self.cells):
            return Agreement("consistent" if self.published.origin == "derived here" else "matches", words)
        if not self.ordered[1] and self.knees is None:
            return Agreement("undecided", words)
        return Agreement("same shape" if self.same_order and self.same_knee else "differs", words)

    @property
    def _read(self) -> str:
        return {
            "paper": "",
            "second-hand": "; the numbers are known from a summary of the paper only",
            "derived here": "; the numbers were derived here, so this is a check of consistency",
        }[self.published.origin]

    @property
    def _yardstick(self) -> str:
        return {
            "published spread": f"cells within {SPREADS:g} published standard deviations",
            "reading": f"cells equal up to {self.published.read_to}, as far as the published number can be read",
            "seeds": "published values within the range of our seeds",
        }[self.cells[0].against]

    @property
    def _shape(self) -> str:
        alike, compared = self.ordered
        knee = "" if self.knees is None else f", transition at {self.knees[0]} published and {self.knees[1]} here"
        return f"{alike} of {compared} clearly different pairs ordered alike{knee}"


def compare(published: Published, cells: Cells) -> TableComparison:
    """Put measured cells beside the published ones, and judge them.

    A cell agrees when ours (seeds summed up as the paper does) lies within two published standard deviations or,
    where the paper gives none, when the published value lies between our smallest and largest seed; a number that is
    no mean over seeds, computed or read off a figure, agrees when ours is equal as far as it can be read. Shape is the
    order of the pairs within a row or a column that clearly differ in the paper, by more than the measure's own
    step and by more than the spread of the two cells, and the row where our curve turns against the one stated.

    >>> from headcount.sources import Source
    >>> table = Published("T", Source("yu2025heads", "T"), "heads", (1, 2), "length", (8,), ((.1,), (.001,)))
    >>> compare(table, {(1, 8): [.08, .12], (2, 8): [.0005, .002]}).verdict.outcome
    'matches'
    """
    compared = tuple(
        _cell(published, row, column, values)
        for (row, column), values in cells.items()
        if published.at(row, column) is not None and len(values)
    )
    return TableComparison(published, compared, _ordered(published, compared), _knees(published, compared))


def comparisons(record: Record, reproduction: Reproduction) -> list[TableComparison]:
    """Every published table that was measured, beside ours."""
    tables = record.measured.tables
    return [compare(table, tables[table.title]) for table in reproduction.published if table.title in tables]


def judge_claims(claims: Sequence[Stated]) -> Agreement:
    """The verdict on statements without numbers: there is no level to match, so the best is the same shape."""
    held = sum(claim.holds for claim in claims)
    words = f"{held} of {len(claims)} statements hold in what was measured"
    return Agreement("same shape" if held == len(claims) else "differs", words)


def knee_of(published: Published, cells: Sequence[ComparedCell]) -> Any:
    """The row at which our curve turns: the knee of the mean level over the columns, by the rule of `fits.knee`."""
    by_place = {(c.row, c.column): c.values for c in cells}
    columns = sorted({column for _, column in by_place}, key=published.columns.index)
    rows = [row for row in published.rows if all((row, column) in by_place for column in columns)]
    if not columns or len(rows) < 3:
        return None
    means = []
    for row in rows:
        logs = [np.array([published.measure.level(v) for v in by_place[row, column]]) for column in columns]
        means.append(np.mean([level(each).item() for each in logs]))
    return rows[int(change_point(np.array(means), np.array(rows, dtype=float)))]


def _cell(published: Published, row: Any, column: Any, values: Sequence[float]) -> ComparedCell:
    value, spread = published.at(row, column), published.spread_at(row, column)
    assert value is not None
    ours, seeds = published.sums_up(values), tuple(values)
    if spread is not None:
        around, against = SPREADS * spread, "published spread"
    elif published.read_to is not None:
        around, against = published.read_to, "reading"
    else:
        return ComparedCell(row, column, value, ours, min(seeds), max(seeds), seeds, "seeds")
    return ComparedCell(row, column, value, ours, value - around, value + around, seeds, against)


def _ordered(published: Published, cells: Sequence[ComparedCell]) -> tuple[int, int]:
    clear = [
        (a, b)
        for a, b in combinations(cells, 2)
        if (a.row == b.row or a.column == b.column)
        and published.measure.apart(a.published, b.published)
        > max(published.measure.clear, _noise(published, a) + _noise(published, b))
    ]
    # Strictly: cells that tie here do not show an order.
    return sum((a.published - b.published) * (a.ours - b.ours) > 0 for a, b in clear), len(clear)


def _noise(published: Published, cell: ComparedCell) -> float:
    """The published standard deviation, or what can be read, or half the range of our seeds."""
    spread = published.spread_at(cell.row, cell.column)
    spread = published.read_to if spread is None else spread
    if spread is not None:
        return published.measure.noise(cell.published, spread)
    return published.measure.apart(min(cell.values), max(cell.values)) / 2


def _knees(published: Published, cells: Sequence[ComparedCell]) -> tuple[Any, Any] | None:
    ours = knee_of(published, cells) if published.transition is not None else None
    return None if ours is None else (published.transition, ours)
