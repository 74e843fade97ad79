"""Ours beside the plain encoder on the same splits: whose error is smaller, and where the heads advised stand there."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headcount.measuring.contestants import network
from headcount.measuring.paired_ratios import Blocks, Compared, SplitErrors, compare
from headcount.measuring.planning import FLOOR
from headcount.measuring.sides import Side
from headcount.measuring.splitting import MOST_SPLITS
from headcount.results.gathering import grouped
from studies.measure.chance import TOLERANCE, means, near_least, shrunken
from studies.measure.runs import Row

NO_WORSE = 1.10  # the upper end of ours over plain, at most
Pairs = Mapping[str, Sequence[float | None]]  # by split: outer error, inner error, that at a quarter of the steps
Place = tuple[int, int]  # heads and layers


@dataclass(frozen=True)
class Beside:
    """A set: ours over plain by splits, at the same blocks and as rules that choose; the plain table; the baselines.

    `advice` is the plain encoder's error at the block advised over the least of its table; None where nothing is
    advised, or that block is not in the table.
    """

    row: Row
    alike: Compared
    versus: Compared
    ours: float
    plain: float
    table: Mapping[Place, SplitErrors]
    baselines: Mapping[str, Compared]
    advice: Compared | None

    @property
    def standing(self) -> str:
        """At the same blocks: no worse (the upper end is at most 1.1), worse (the lower end is above 1), or wide."""
        if self.alike.high <= NO_WORSE:
            return "no worse"
        return "worse" if self.alike.low > 1 else "wide"

    @property
    def advised(self) -> str:
        """Where the advised block is: near the least error, shown to be out of it, or open; "" without advice.

        The least of twelve noisy errors is too small, which counts against the advice.
        """
        if self.advice is None:
            return ""
        if self._near(means(self.table)):
            return "near"
        return "out" if self.advice.low > 1 + TOLERANCE else "open"

    @property
    def near_less_chance(self) -> bool:
        """Whether the advised block is near the least error once chance is taken out of the table."""
        return self.advice is not None and self._near(shrunken(self.table))

    @property
    def own_depth(self) -> Mapping[Place, SplitErrors]:
        """The plain table in the advised number of layers, where heads alone differ."""
        return {place: errors for place, errors in self.table.items() if place[1] == self.row["layers"]}

    @property
    def heads_near(self) -> bool:
        """Whether the number of heads is near the least error of the advised number of layers."""
        return self.advice is not None and self._near(means(self.own_depth))

    @property
    def out_by_one_split(self) -> bool:
        """Whether the advised block would be near if its worst split were left out: one training that failed."""
        own = self.table[self.row["heads"], self.row["layers"]].outer
        worst = max(own, key=lambda split: own[split])
        rest = {place: errors.mean(s for s in errors.outer if s != worst) for place, errors in self.table.items()}
        return self.advised == "out" and self._near(rest)

    def _near(self, errors: Mapping[Place, float]) -> bool:
        return near_least(errors[self.row["heads"], self.row["layers"]], min(errors.values()))

    @property
    def beaten(self) -> bool:
        """Whether the plain encoder beats every baseline by its interval."""
        return all(one.high < 1 for one in self.baselines.values())

    @property
    def overlooked(self) -> bool:
        """Whether it says "not worth it" where the plain encoder beats all by its interval and by what counts."""
        least = min((self.row["levels"][name] or math.inf for name in self.baselines), default=math.inf)
        return self.row["verdict"] == "not worth it" and self.beaten and least - self.plain > FLOOR


def beside(row: Row, plain: Sequence[Row]) -> Beside | None:
    """A row of ours and the rows of the plain encoder on the same set; None where there are none yet."""
    if not plain or "by_split" not in row:
        return None
    own = {name: _errors(name, pairs, row.get("parts", {}).get(name)) for name, pairs in row["by_split"].items()}
    table = plain_table(plain)
    sides = [Side(tuple(own[name] for name in row["attends"])), Side(tuple(table.values()))]
    both = [n for n in range(MOST_SPLITS) if all(side.on(n) for side in sides)]
    if not both:
        return None
    found = _stored(row) or _compared(row, own, table, [side.blocks(both) for side in sides])
    ours, theirs = (side.level(both) for side in sides)
    return Beside(row, found.alike, found.versus, ours, theirs, table, found.against, found.advice)


def with_comparisons(rows: Sequence[Row]) -> list[Row]:
    """Rows of ours without the parts of their errors, what was compared by them beside; plain ones as they are."""
    return [_settled(row, [one for one in rows if (one["set"], one["form"]) == (row["set"], "plain")]) for row in rows]


def _settled(row: Row, plain: Sequence[Row]) -> Row:
    if row["form"] == "plain":
        return row
    without = {key: value for key, value in row.items() if key != "parts"}
    said = beside(row, plain) if "parts" in row else None
    if said is None:
        return without
    found = {"alike": said.alike, "versus": said.versus, "advice_there": said.advice}
    against = {name: one.to_json() for name, one in said.baselines.items()}
    return without | {name: one and one.to_json() for name, one in found.items()} | {"against": against}


class _Found(NamedTuple):
    """Comparisons of a row, made by blocks of sequences: they are stored, and the blocks are not."""

    alike: Compared
    versus: Compared
    advice: Compared | None
    against: Mapping[str, Compared]


def _stored(row: Row) -> _Found | None:
    if "alike" not in row:
        return None
    advice = row["advice_there"] and read_compared(row["advice_there"])
    against = {name: read_compared(one) for name, one in row["against"].items()}
    return _Found(read_compared(row["alike"]), read_compared(row["versus"]), advice, against)


def read_compared(one: Row) -> Compared:
    """As stored."""
    open_above: Row = {"high": math.inf} if one["high"] is None else {}
    return Compared(**one | open_above)


def _compared(
    row: Row, own: Mapping[str, SplitErrors], table: Mapping[Place, SplitErrors], rules: Sequence[Blocks]
) -> _Found:
    without = {name: one for name, one in own.items() if name not in row["attends"]}
    against = {name: compare(rules[1], one.blocks, ("plain", name)) for name, one in without.items()}
    same = [(own[name], one) for place, one in table.items() if (name := network(*place).name) in own]
    ours, theirs = _at_the_same(same)
    names, place = ("ours", "plain"), (row["heads"], row["layers"])
    best = min(table.values(), key=lambda one: one.mean(one.outer))
    advice = compare(table[place].blocks, best.blocks, ("advised", "best")) if place in table else None
    return _Found(compare(ours, theirs, names), compare(rules[0], rules[1], names), advice, against)


def _at_the_same(pairs: Sequence[tuple[SplitErrors, SplitErrors]]) -> tuple[Blocks, Blocks]:
    """By split the mean parts of both over the blocks that both have there."""
    sides: tuple[dict[int, list[float]], ...] = {}, {}
    for split in sorted({n for one, other in pairs for n in one.outer.keys() & other.outer.keys()}):
        there = [pair for pair in pairs if all(split in one.outer for one in pair)]
        for side, ones in zip(sides, zip(*there, strict=True), strict=True):
            side[split] = np.mean([one.blocks[split] for one in ones], axis=0).tolist()
    return sides[0], sides[1]


def plain_table(rows: Sequence[Row]) -> dict[Place, SplitErrors]:
    """The errors of the plain encoder of every size, whose splits may stand in several rows."""
    by_place = grouped(((row["heads"], row["layers"]), row) for row in rows)
    return {
        place: _errors("plain", _joined(some, "by_split"), _joined(some, "parts")) for place, some in by_place.items()
    }


def _joined(rows: Sequence[Row], field: str) -> dict[str, Sequence[float | None]]:
    return {split: errors for row in rows for split, errors in row.get(field, {}).items()}


def _errors(name: str, pairs: Pairs, parts: Mapping[str, Sequence[float | None]] | None) -> SplitErrors:
    """Stored errors of a contestant by split."""
    outer, inner = ({int(n): _infinite(pair[i]) for n, pair in pairs.items()} for i in (0, 1))
    by_block = {int(n): [_infinite(one) for one in some] for n, some in (parts or {}).items()}
    return SplitErrors(name, 0, 0, True, False, outer, inner, {}, by_block)


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value
