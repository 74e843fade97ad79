"""Ours beside the plain encoder on the same splits: whose error is smaller, and where the heads advised stand there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headcount.measuring.contestants import network
from headcount.measuring.paired_ratios import Blocks, Compared, SplitErrors, compare
from headcount.measuring.planning import FLOOR
from headcount.measuring.sides import Side
from headcount.measuring.splitting import FOLDS, MOST_SPLITS
from studies.measure.runs import Row

__all__ = ["NEAR", "NO_WORSE", "Beside", "beside", "with_comparisons"]

NO_WORSE = 1.10  # the upper end of ours over plain, at most
NEAR = 1.05  # the plain encoder's error at the heads advised over its best, at most
Pairs = Mapping[str, Sequence[float | None]]  # by split: outer error, inner error, that at a quarter of the steps
Place = tuple[int, int]  # heads and layers


@dataclass(frozen=True)
class Beside:
    """A set: ours over plain by splits, at the same blocks and as rules that choose; the plain table; the baselines."""

    row: Row
    alike: Compared
    versus: Compared
    ours: float
    plain: float
    table: Mapping[Place, SplitErrors]
    baselines: Mapping[str, Compared]

    @property
    def standing(self) -> str:
        """At the same blocks: no worse (the upper end is at most 1.1), worse (the lower end is above 1), or wide."""
        if self.alike.high <= NO_WORSE:
            return "no worse"
        return "worse" if self.alike.low > 1 else "wide"

    @property
    def advised(self) -> float | None:
        """The plain encoder's error at the advised block over the least of its table; None where nothing is advised."""
        if self._place not in self.table:
            return None
        levels = {place: one.mean(one.outer) for place, one in self.table.items()}
        return levels[self._place] / min(levels.values())

    @property
    def retested(self) -> tuple[float, float] | None:
        """The plain encoder's error at the advised block, and at the best one, which other splits than those choose.

        The least of twelve noisy errors is too small: a table does not find its own best within 5% again.
        """
        halves = [{n for one in self.table.values() for n in one.outer if n // FOLDS % 2 == half} for half in (0, 1)]
        if self._place not in self.table or not all(halves):
            return None
        whole = {place: one for place, one in self.table.items() if one.outer.keys() >= halves[0] | halves[1]}
        pairs = []
        for choosing, judging in (halves, halves[::-1]):
            best = min(whole.values(), key=lambda one, some=choosing: one.mean(some))
            pairs.append(
                [self.table[self._place].mean(judging & self.table[self._place].outer.keys()), best.mean(judging)]
            )
        there, least = np.mean(pairs, axis=0)
        return float(there), float(least)

    @property
    def near(self) -> bool | None:
        """Whether the advised block is as good there as the best, by the tolerance that `measure` itself advises by."""
        if (both := self.retested) is None:
            return None
        return both[0] <= NEAR * both[1] or both[0] - both[1] <= FLOOR

    @property
    def beaten(self) -> bool:
        """Whether the plain encoder beats every baseline by its interval."""
        return all(one.high < 1 for one in self.baselines.values())

    @property
    def overlooked(self) -> bool:
        """Whether it says "not worth it" where the plain encoder beats all by its interval and by what counts."""
        least = min((self.row["levels"][name] or math.inf for name in self.baselines), default=math.inf)
        return self.row["verdict"] == "not worth it" and self.beaten and least - self.plain > FLOOR

    @property
    def _place(self) -> Place:
        return self.row["heads"], self.row["layers"]


def beside(row: Row, plain: Sequence[Row]) -> Beside | None:
    """A row of ours and the rows of the plain encoder on the same set; None where there are none yet."""
    if not plain or "by_split" not in row:
        return None
    own = {name: _errors(name, pairs, row.get("parts", {}).get(name)) for name, pairs in row["by_split"].items()}
    table = {(r["heads"], r["layers"]): _errors("plain", r["by_split"], r.get("parts")) for r in plain}
    sides = [Side(tuple(own[name] for name in row["attends"])), Side(tuple(table.values()))]
    both = [n for n in range(MOST_SPLITS) if all(side.on(n) for side in sides)]
    if not both:
        return None
    alike, versus, baselines = _stored(row) or _compared(row, own, table, [side.blocks(both) for side in sides])
    ours, theirs = (side.level(both) for side in sides)
    return Beside(row, alike, versus, ours, theirs, table, baselines)


def with_comparisons(rows: Sequence[Row]) -> list[Row]:
    """Rows without the parts of their errors, what was compared by them beside."""
    return [_settled(row, [one for one in rows if (one["set"], one["form"]) == (row["set"], "plain")]) for row in rows]


def _settled(row: Row, plain: Sequence[Row]) -> Row:
    without = {key: value for key, value in row.items() if key not in ("parts", "inner_parts")}
    said = beside(row, plain) if "parts" in row and row["form"] != "plain" else None
    if said is None:
        return without
    against = {name: one.to_json() for name, one in said.baselines.items()}
    return without | {"alike": said.alike.to_json(), "versus": said.versus.to_json(), "against": against}


def _stored(row: Row) -> tuple[Compared, Compared, dict[str, Compared]] | None:
    if "alike" not in row:
        return None
    return _read(row["alike"]), _read(row["versus"]), {name: _read(one) for name, one in row["against"].items()}


def _read(one: Row) -> Compared:
    open_above: Row = {"high": math.inf} if one["high"] is None else {}
    return Compared(**one | open_above)


def _compared(
    row: Row, own: Mapping[str, SplitErrors], table: Mapping[Place, SplitErrors], rules: Sequence[Blocks]
) -> tuple[Compared, Compared, dict[str, Compared]]:
    without = {name: one for name, one in own.items() if name not in row["attends"]}
    baselines = {name: compare(rules[1], one.blocks, ("plain", name)) for name, one in without.items()}
    same = [(own[name], one) for place, one in table.items() if (name := network(*place).name) in own]
    ours, theirs = _at_the_same(same)
    names = "ours", "plain"
    return compare(ours, theirs, names), compare(rules[0], rules[1], names), baselines


def _at_the_same(pairs: Sequence[tuple[SplitErrors, SplitErrors]]) -> tuple[Blocks, Blocks]:
    """By split the mean parts of both over the blocks that both have there."""
    sides: tuple[dict[int, list[float]], ...] = {}, {}
    for split in sorted({n for one, other in pairs for n in one.outer.keys() & other.outer.keys()}):
        there = [pair for pair in pairs if all(split in one.outer for one in pair)]
        for side, ones in zip(sides, zip(*there, strict=True), strict=True):
            side[split] = np.mean([one.blocks[split] for one in ones], axis=0).tolist()
    return sides[0], sides[1]


def _errors(name: str, pairs: Pairs, parts: Mapping[str, Sequence[float | None]] | None) -> SplitErrors:
    """Stored errors of a contestant by split."""
    outer, inner = ({int(n): _infinite(pair[i]) for n, pair in pairs.items()} for i in (0, 1))
    by_block = {int(n): [_infinite(one) for one in some] for n, some in (parts or {}).items()}
    return SplitErrors(name, 0, 0, True, False, outer, inner, {}, by_block)


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value
