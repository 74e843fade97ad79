"""Ours beside the plain encoder on the same splits: whose error is smaller, and where the heads advised stand there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headcount.measuring.paired_ratios import Blocks, Compared, compare, mean_error
from studies.measure.runs import Row

__all__ = ["NEAR", "NO_WORSE", "Beside", "beside", "mean_outer", "with_comparisons"]

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
    cells = {(one["heads"], one["layers"]): one for one in plain}
    if not cells or "by_split" not in row:
        return None
    attends = [_cell(row["by_split"][name], row.get("parts", {}).get(name)) for name in row["attends"]]
    own_errors = _preferred(attends)
    plain_errors = _preferred([_cell(one["by_split"], one.get("parts")) for one in plain])
    both = sorted(own_errors.keys() & plain_errors.keys())
    table = {place: mean_outer(one) for place, one in cells.items()}
    levels = [mean_error(sum(side[split]) for split in both) for side in (own_errors, plain_errors)]
    versus, baselines = _stored(row) or _compared(row, own_errors, plain_errors)
    return Beside(row, versus, levels[0], levels[1], table, baselines)


def with_comparisons(rows: Sequence[Row]) -> list[Row]:
    """Rows without the parts of their errors, what was compared by them beside."""
    return [_settled(row, [one for one in rows if (one["set"], one["form"]) == (row["set"], "plain")]) for row in rows]


def _settled(row: Row, plain: Sequence[Row]) -> Row:
    without = {key: value for key, value in row.items() if key != "parts"}
    said = beside(row, plain) if "parts" in row and row["form"] != "plain" else None
    if said is None:
        return without
    against = {name: one.to_json() for name, one in said.baselines.items()}
    return without | {"versus": said.versus.to_json(), "against": against}


def _stored(row: Row) -> tuple[Compared, dict[str, Compared]] | None:
    if "versus" not in row:
        return None
    return _read(row["versus"]), {name: _read(one) for name, one in row["against"].items()}


def _read(one: Row) -> Compared:
    open_above: Row = {"high": math.inf} if one["high"] is None else {}
    return Compared(**one | open_above)


def _compared(row: Row, ours: Blocks, theirs: Blocks) -> tuple[Compared, dict[str, Compared]]:
    without = [name for name in row["by_split"] if name not in row["attends"]]
    cells = {name: _cell(row["by_split"][name], row.get("parts", {}).get(name)) for name in without}
    baselines = {
        name: compare(theirs, {s: parts for s, (_, parts) in cell.items()}, ("plain", name))
        for name, cell in cells.items()
    }
    return compare(ours, theirs, ("ours", "plain")), baselines


def mean_outer(row: Row) -> float:
    """The mean of a plain encoder's outer errors over its splits."""
    return mean_error(_infinite(pair[0]) for pair in row["by_split"].values())


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _cell(pairs: Pairs, parts: Mapping[str, Sequence[float | None]] | None) -> dict[int, tuple[float, list[float]]]:
    """By split: the inner error, and the outer one in its parts."""
    return {
        int(split): (_infinite(inner), [_infinite(one) for one in (parts[split] if parts else [outer])])
        for split, (outer, inner, *_) in pairs.items()
    }


def _preferred(cells: Sequence[Mapping[int, tuple[float, list[float]]]]) -> dict[int, list[float]]:
    """In every split the outer error of the one with the least inner error."""
    splits = {split for cell in cells for split in cell}
    return {split: min((cell[split] for cell in cells if split in cell), key=lambda one: one[0])[1] for split in splits}
