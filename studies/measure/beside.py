"""Ours beside the plain encoder on the same splits: whose error is smaller, and where the heads advised stand there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headcount.measuring.paired_ratios import Compared, compare, mean_error
from studies.measure.runs import Row

__all__ = ["NEAR", "NO_WORSE", "Beside", "beside", "mean_outer"]

NO_WORSE = 1.10  # the upper end of ours over plain, at most
NEAR = 1.05  # the plain encoder's error at the heads advised over the least of its table, at most
Pairs = Mapping[str, Sequence[float | None]]  # by split: outer error, inner error, that at a quarter of the steps


@dataclass(frozen=True)
class Beside:
    """A set: ours over plain by splits, the plain table, and what was advised of it."""

    row: Row
    versus: Compared
    ours: float
    plain: float
    table: Mapping[tuple[int, int], float]
    baselines: Mapping[str, Compared]

    @property
    def standing(self) -> str:
        """No worse: the upper end is within the tolerance; worse: the lower end is above 1; wide: neither."""
        if self.versus.high <= NO_WORSE:
            return "no worse"
        return "worse" if self.versus.low > 1 else "wide"

    @property
    def advised(self) -> float | None:
        """The plain encoder's error at the advised block over the least of its table; None where nothing is advised."""
        place = self.row["heads"], self.row["layers"]
        if place not in self.table:
            return None
        return self.table[place] / min(self.table.values())

    @property
    def overlooked(self) -> bool:
        """Whether it says "not worth it" where the plain encoder beats every baseline by its interval."""
        beaten = all(one.high < 1 for one in self.baselines.values())
        return self.row["verdict"] == "not worth it" and beaten


def beside(row: Row, plain: Sequence[Row]) -> Beside | None:
    """A row of ours and the rows of the plain encoder on the same set; None where there are none yet."""
    cells = {(one["heads"], one["layers"]): one["by_split"] for one in plain}
    if not cells or "by_split" not in row:
        return None
    attends = [row["by_split"][name] for name in row["attends"]]
    ours, theirs = _preferred(attends), _preferred(list(cells.values()))
    versus = compare(ours, theirs, row["overlap"], ("ours", "plain"))
    both = sorted(ours.keys() & theirs.keys())
    without = {name: _outer(pairs) for name, pairs in row["by_split"].items() if name not in row["attends"]}
    baselines = {name: compare(theirs, other, row["overlap"], ("plain", name)) for name, other in without.items()}
    table = {(one["heads"], one["layers"]): mean_outer(one) for one in plain}
    return Beside(row, versus, mean_error(ours[s] for s in both), mean_error(theirs[s] for s in both), table, baselines)


def mean_outer(row: Row) -> float:
    """The mean of a plain encoder's outer errors over its splits."""
    return mean_error(_outer(row["by_split"]).values())


def _outer(pairs: Pairs) -> dict[int, float]:
    return {int(split): math.inf if pair[0] is None else pair[0] for split, pair in pairs.items()}


def _preferred(cells: Sequence[Pairs]) -> dict[int, float]:
    """In every split the outer error of the one with the least inner error."""
    found: dict[int, tuple[float, float]] = {}
    for pairs in cells:
        for split, (outer, inner, *_) in pairs.items():
            rank = (math.inf if inner is None else inner, math.inf if outer is None else outer)
            found[int(split)] = min(found.get(int(split), (math.inf, math.inf)), rank)
    return {split: outer for split, (_, outer) in found.items()}
