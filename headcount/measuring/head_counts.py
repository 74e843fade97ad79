"""How many heads: for every depth the cheapest count within a tolerance of the best, and the block to take of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.measuring.paired_ratios import CONFIDENCE, Compared, SplitErrors, compare, mean_error
from headcount.measuring.planning import FLOOR
from headcount.numerals import counted
from headcount.results import Basis, Claim, Evidence, Predicate

LEAD = 0.05  # attention, or another layer, must lower the error by more than this share to be worth naming
WIDEST = 1  # the difference of the ends of an interval of counts that is taken for decided


@dataclass(frozen=True)
class HeadCount:
    """The cheapest head count of a depth whose error is within the tolerance of the best, with its interval.

    Within the tolerance: at most so many times the error of the best, or more than that by no more than 0.005 of the
    constant's. `low` is the cheapest count that is not shown to be worse, tried or not, `high` the cheapest that is
    shown to be as good. `best` has the smallest error; `hurts` is the smallest larger count that is shown to be worse
    than the best and is out of its tolerance. `most` is the largest that was tried, `told` says whether all
    splits would tell the counts apart if ratios stayed.
    """

    layers: int
    heads: int
    low: int
    high: int
    best: int
    most: int
    error: float
    smallest: float
    untested: tuple[int, ...] = ()
    hurts: int | None = None
    fewer: Compared | None = None
    told: bool = False

    @property
    def decided(self) -> bool:
        """Whether the interval is at most two counts wide."""
        return self.high - self.low <= WIDEST

    @property
    def at_edge(self) -> bool:
        """Whether only the largest count tried is within the tolerance."""
        return self.low == self.heads == self.most > 1

    @property
    def interval(self) -> str:
        """The interval in brackets."""
        return f"[{self.low}, {self.high}]"

    def claim(self, splits: int, entering: str) -> Claim:
        """How many heads in so many layers, for tokens that enter in this way."""
        ends = self.low, None if self.at_edge else self.high
        evidence = Evidence(planned=splits, entered=splits, interval=ends, level=CONFIDENCE, sizes=entering)
        word = Predicate.FALLS if self.at_edge else Predicate.ENOUGH if self.decided else Predicate.UNRESOLVED
        where = f"{counted(self.heads, 'head')} in {counted(self.layers, 'layer')}"
        return Claim(where, word, self.heads, Basis("measured", n=splits), evidence=evidence, reason=self.why)

    @property
    def why(self) -> str:
        """What fewer heads cost, what more do, and what is open."""
        phrases = [f"the error is {self.error:.3g}"]
        if self.fewer is not None and math.isfinite(self.fewer.ratio):
            phrases.append(f"of {self.fewer.one} {self.error * self.fewer.ratio:.3g}")
        if self.hurts is not None:
            phrases.append(f"from {self.hurts} heads on it is larger again")
        if not self.decided:
            phrases.append(f"{self.interval} is open")
        return ", ".join(phrases)


def within(tolerance: float, smallest: float) -> float:
    """How many times the smallest error is as good: by the tolerance, or by 0.005 of the constant's error."""
    return 1 + max(tolerance, FLOOR / smallest)


def head_counts(
    scores: Sequence[SplitErrors], splits: Sequence[int], tolerance: float, tested: Sequence[int], most_splits: int
) -> tuple[HeadCount, ...]:
    """For every depth, the cheapest head count whose error is within the tolerance of the best, by paired intervals.

    The best is sought among the counts that are on the most splits of their depth, two at least unless there is but
    one; others were given up, or are yet to come.
    """
    counts = []
    for depth in sorted({one.depth for one in scores if one.standard}):
        of_depth = sorted((one for one in scores if one.standard and one.depth == depth), key=lambda one: one.heads)
        own = max(([s for s in splits if s in one.outer] for one in of_depth), key=len)
        if len(own) >= min(2, len(splits)):
            counts.append(_counted(of_depth, depth, own, tolerance, tested, most_splits))
    return tuple(counts)


def _counted(
    errors: Sequence[SplitErrors],
    depth: int,
    splits: Sequence[int],
    tolerance: float,
    tested: Sequence[int],
    most_splits: int,
) -> HeadCount:
    best = min((one for one in errors if set(splits) <= set(one.outer)), key=lambda one: one.mean(splits))
    smallest = best.mean(splits)
    bound = within(tolerance, smallest)
    against = [(one, compare(one.blocks, best.blocks, (one.name, best.name))) for one in errors]
    pairs = [(one, versus) for one, versus in against if versus.splits]
    untried = [count for count in tested if all(count != one.heads for one in errors)]
    heads, low, high, untested = _ends(pairs, best, bound, untried)
    _, then_low, then_high, _ = _ends([(one, v.after(most_splits)) for one, v in pairs], best, bound, untried)
    worse = (one.heads for one, v in pairs if one.heads > best.heads and v.low > 1 and v.ratio > bound)
    place = errors.index(heads)
    fewer = None
    if place:
        before = errors[place - 1]
        fewer = compare(before.blocks, heads.blocks, (before.name, heads.name))
    counts = heads.heads, low, high, best.heads, errors[-1].heads
    return HeadCount(
        depth, *counts, mean_error(heads.outer.values()), smallest, untested, next(worse, None), fewer,
        told=then_high - then_low <= WIDEST,
    )  # fmt: skip


def _ends(
    pairs: Sequence[tuple[SplitErrors, Compared]], best: SplitErrors, bound: float, untried: Sequence[int]
) -> tuple[SplitErrors, int, int, tuple[int, ...]]:
    """Who is enough by the ratio, the ends of the interval of counts, and counts inside it that nobody tried."""
    low, heads, high = (
        next(one for one, versus in pairs if one is best or value(versus) <= bound)
        for value in (lambda v: v.low, lambda v: v.ratio, lambda v: v.high)
    )  # in this order, since an interval holds its ratio
    too_few = max((one.heads for one, _ in pairs if one.heads < low.heads), default=0)  # shown to be
    untested = tuple(count for count in untried if too_few < count < high.heads)
    return heads, min((low.heads, *untested)), high.heads, untested


def advised(scores: Sequence[SplitErrors], splits: Sequence[int], tolerance: float) -> SplitErrors | None:
    """The cheapest block that is shown to be within the tolerance of the best of all blocks; None without one.

    Shown: by the upper end of the paired interval; where nobody cheaper is, the best itself. Fewer layers are cheaper
    than fewer heads. The best is sought among blocks that are on two splits or more, unless there is but one.
    """
    blocks = sorted((one for one in scores if one.standard), key=lambda one: (one.depth, one.heads))
    own = {one.name: [s for s in splits if s in one.outer] for one in blocks}
    blocks = [one for one in blocks if len(own[one.name]) >= min(2, len(splits))]
    if not splits or not blocks:
        return None
    best = min(blocks, key=lambda one: one.mean(own[one.name]))
    bound = within(tolerance, best.mean(own[best.name]))
    return next(
        one for one in blocks if one is best or compare(one.blocks, best.blocks, (one.name, best.name)).high <= bound
    )


def open_depth(scores: Sequence[SplitErrors], advised: SplitErrors | None, tolerance: float) -> str:
    """The best block of another depth that is not told apart from the advised one, in words; "" without one.

    More layers with a smaller error, beyond what layers must bring, where that is not shown; or fewer layers that are
    not shown to be out of the tolerance.
    """
    if advised is None:
        return ""
    alike = []
    for one in scores:
        both = sorted(set(one.outer) & set(advised.outer))
        if not one.standard or one.depth == advised.depth or not both:
            continue
        level, ours = one.mean(both), advised.mean(both)
        if one.depth > advised.depth:
            unknown = ours - level > max(LEAD * ours, FLOOR)
        else:
            unknown = compare(one.blocks, advised.blocks, (one.name, advised.name)).low <= within(tolerance, ours)
        if unknown:
            alike.append((level, ours, one.name, one, len(both)))
    if not alike:
        return ""
    level, ours, _, best, count = min(alike, key=lambda each: each[:3])
    block = f"{counted(best.heads, 'head')} in {counted(best.depth, 'layer')} had {level:.3g} against {ours:.3g}"
    return f"{block} on {counted(count, 'split')}, which does not tell yet"
