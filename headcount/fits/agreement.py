"""What a reproduction says about a published table: matches, same shape, or differs; of our own numbers, consistent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np

from headcount.fits.cells import level
from headcount.fits.knee import change_point
from headcount.numerals import short
from headcount.results.claim import Claim
from headcount.results.literature import Cells, Origin, Published, Ratio
from headcount.results.record import Record, Reproduction, Stated
from headcount.results.verdicts import Basis, Comparison, Evidence, Predicate, has_verdict_word, strongest

SIDES: dict[Origin, Literal["printed", "summary", "typed", "ours"]] = {
    "paper": "printed",
    "second-hand": "summary",
    "derived here": "typed",
    "same formula": "ours",
}
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
    def ratio(self) -> float | None:
        """How many times the published value ours is; None where that has no meaning."""
        return self.ours / self.published if self.published * self.ours > 0 else None

    @property
    def agrees(self) -> bool:
        """Whether ours lies in the published spread or, without one, the published value among our seeds."""
        return self.low <= (self.published if self.against == "seeds" else self.ours) <= self.high


@dataclass(frozen=True)
class TableComparison:
    """A published table beside ours: every common cell, pairs (ordered alike, compared), knees (stated, ours).

    `kept` says what of the seeds was kept where it was not every one.
    """

    published: Published
    cells: tuple[ComparedCell, ...]
    ordered: tuple[int, int]
    knees: tuple[Any, Any] | None
    diverged: int = 0
    kept: str = ""

    @property
    def farthest(self) -> ComparedCell | None:
        """The cell that lies farthest from the published one, by the table's own measure."""
        apart = self.published.measure.apart
        return max(self.cells, key=lambda c: apart(c.published, c.ours), default=None)

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
    def verdict(self) -> Claim:
        """Matches where most cells agree; same shape where order and knee do; else differs.

        Numbers that were derived here cannot be matched, for nobody else printed them: there it is consistent. Where
        one formula stands on both sides nothing was compared.
        """
        if not self.cells:
            return self._claim(Predicate.UNDECIDED, "nothing measured stands in the published table")
        words = f"{self.agreeing} of {len(self.cells)} {self._yardstick}; {self._shape}{self._distance}{self._read}"
        return strongest(self._words, lambda word: self._claim(word, words))

    @property
    def _words(self) -> tuple[Predicate, ...]:
        """The words that the cells offer, the strongest first."""
        if self.published.origin == "same formula":
            return (Predicate.NOT_COMPARABLE,)
        if self.agreeing >= MOST * len(self.cells):
            return (Predicate.MATCHES, Predicate.CONSISTENT, Predicate.UNDECIDED)
        if not self.ordered[1] and self.knees is None:
            return (Predicate.UNDECIDED,)
        same = self.same_order and self.same_knee
        return (Predicate.SAME_SHAPE, Predicate.UNDECIDED) if same else (Predicate.DIFFERS,)

    def _claim(self, word: Predicate, reason: str) -> Claim:
        far, seeds = self.farthest, sum(cell.seeds for cell in self.cells)
        against = Comparison(str(self.published.source), SIDES[self.published.origin], far.ratio if far else None)
        evidence = Evidence(planned=seeds, entered=seeds, diverged=self.diverged, rows=len(self.cells))
        return Claim(self.published.title, word, None, Basis("measured", n=seeds), None, (), against, evidence, reason)

    @property
    def _distance(self) -> str:
        """How far the farthest cell lies, so that a shape is not read as a level."""
        far = self.farthest
        if far is None or far.agrees:
            return ""
        where = f"at {far.row} and {far.column}"
        if isinstance(self.published.measure, Ratio) and far.ratio:
            return f"; farthest {where}, {short(far.ratio, 2)} times the published"
        return f"; farthest {where}, {far.ours - far.published:+.2g}"

    @property
    def _read(self) -> str:
        return {
            "paper": "",
            "second-hand": "; the numbers are known from a summary of the paper only",
            "derived here": "; the numbers were derived here, so this is a check of consistency",
            "same formula": "; the paper's formula was typed in on both sides, and no table of it was seen",
        }[self.published.origin]

    @property
    def _yardstick(self) -> str:
        return {
            "published spread": f"cells within {SPREADS:g} published standard deviations",
            "reading": f"cells equal up to {self.published.read_to}, as far as the published number can be read",
            "seeds": f"published values between our {self.kept or 'smallest and largest seed'}",
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
    >>> compare(table, {(1, 8): [.08, .12], (2, 8): [.0005, .002]}).verdict.word
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
    lost = record.measured.setup.get("diverged", 0)
    compared = [compare(table, tables[table.title]) for table in reproduction.published if table.title in tables]
    seeds_kept = record.measured.kept
    return [replace(one, diverged=lost if isinstance(lost, int) else 0, kept=seeds_kept) for one in compared]


def judge_claims(claims: Sequence[Stated], diverged: int = 0) -> Claim:
    """The verdict on statements without numbers: there is no level to match, so the best is the same shape."""
    confirmed = [claim for claim in claims if claim.holds]
    words = f"{len(confirmed)} of {len(claims)} statements are borne out by what was measured"
    failing = [claim.says for claim in claims if not claim.holds]
    words += f"; not {_quoted(failing[0])}" if failing else ""
    words += f" nor {len(failing) - 1} more" if len(failing) > 1 else ""
    reading = all(claim.statement == "ours" for claim in claims)
    against = Comparison("the paper's statements", "printed", statement="ours" if reading else "theirs")
    evidence = Evidence(planned=len(claims), entered=len(claims), diverged=diverged, rows=len(claims))
    basis = Basis("measured", n=len(claims))
    return strongest(
        _offered(reading, bool(failing)),
        lambda word: Claim("statements", word, None, basis, None, (), against, evidence, words),
    )


def _offered(reading: bool, failing: bool) -> tuple[Predicate, ...]:
    """The words for statements; a reading of ours is compared with nobody's."""
    if reading:
        return (Predicate.NOT_COMPARABLE,)
    return (Predicate.DIFFERS,) if failing else (Predicate.SAME_SHAPE, Predicate.UNDECIDED)


def _quoted(says: str) -> str:
    """A statement as far as a reason has room for it; words that decide are the paper's and stay on the table."""
    return "one that decides" if has_verdict_word(says) else f'"{says}"'


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
