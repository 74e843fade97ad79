"""What the contest says: worth it, not worth it, or cannot say yet; how many heads and layers; what is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from headcount.measuring.paired_ratios import CONFIDENCE, LEAST, Compared, compare
from headcount.measuring.planning import FLOOR
from headcount.numerals import counted
from headcount.results import Basis, Claim, Comparison, Evidence, Predicate

__all__ = ["Answer", "HeadCount", "SplitErrors", "answer", "head_counts"]

Missing = Literal["", "splits", "steps", "sequences", "positives", "time", "heads"]

LEAD = 0.05  # attention must lower the error by more than this share to be worth naming
LEARNED = 0.95  # an error above this share of the constant's is the constant's but for noise
LEAST_POSITIVES = 25  # of the rarest class, five for each of five outer parts


@dataclass(frozen=True)
class SplitErrors:
    """A contestant's errors by split: on the outer part, on the inner part, and there after a quarter of the steps."""

    name: str
    heads: int
    depth: int
    attends: bool
    standard: bool
    outer: Mapping[int, float]
    inner: Mapping[int, float]
    short: Mapping[int, float]

    def mean(self, splits: Iterable[int]) -> float:
        """The geometric mean of the outer error over these splits."""
        return _mean(self.outer[s] for s in splits)

    def further(self, split: int) -> float:
        """What the outer error would be if four times the steps brought as much again as the last four times did."""
        before = self.short[split] if math.isfinite(self.short[split]) else self.inner[split]
        gain = min(1.0, max(self.inner[split], LEAST) / max(before, LEAST))
        return max(self.outer[split], LEAST) * gain


def _mean(errors: Iterable[float]) -> float:
    return math.exp(float(np.mean([math.log(max(one, LEAST)) for one in errors])))


@dataclass(frozen=True)
class HeadCount:
    """The cheapest head count of a depth whose error is within the tolerance of the best, with its interval.

    Within the tolerance: at most so many times the error of the best, or more than that by no more than 0.005 of the
    constant's. `low` is the cheapest count that is not shown to be worse, tried or not, `high` the cheapest that is
    shown to be as good. `best` has the smallest error; `hurts` is the smallest larger count that is shown to be worse
    than the best and is out of its tolerance. `most` is the largest that was tried.
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

    @property
    def decided(self) -> bool:
        """Whether the interval is at most two counts wide."""
        return self.high - self.low <= 1

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
        said = [f"the error is {self.error:.3g}"]
        if self.fewer is not None and math.isfinite(self.fewer.ratio):
            said.append(f"of {self.fewer.one} {self.error * self.fewer.ratio:.3g}")
        if self.hurts is not None:
            said.append(f"from {self.hurts} heads on it is larger again")
        if not self.decided:
            said.append(f"{self.interval} is open")
        return ", ".join(said)


@dataclass(frozen=True)
class Answer:
    """The verdict as a claim, with what it rests on; heads and layers where the verdict is that it is worth it.

    `missing` names what would settle it, `ask` the arguments to ask again with. `deeper` tells of more layers that had
    a smaller error without that being shown.
    """

    claim: Claim
    heads: int | None = None
    layers: int | None = None
    compared: tuple[Compared, ...] = ()
    missing: Missing = ""
    ask: Mapping[str, Any] | None = None
    counts: tuple[HeadCount, ...] = ()
    tolerance: float = 0.25
    entering: str = ""
    prepared: float | None = None
    deeper: str = ""

    @property
    def verdict(self) -> str:
        """The verdict word."""
        return self.claim.word

    @property
    def reason(self) -> str:
        """Why."""
        return self.claim.reason

    @property
    def worth(self) -> bool:
        """Whether attention is shown to lower the error."""
        return self.claim.predicate is Predicate.WORTH_IT

    @property
    def headline(self) -> str:
        """The answer as a title."""
        if self.claim.predicate is Predicate.CANNOT_SAY:
            said = str(replace(self.claim, reason="", evidence=None))
            return f"{said[:1].upper()}{said[1:]}"
        said = f"Attention is {self.verdict}"
        if self.heads is None:
            return said
        claim = self.heads_claim
        firm = claim is not None and claim.predicate is Predicate.ENOUGH and not self.deeper
        return f"{said}: {self.block}" if firm else f"{said}; heads and layers are open"

    @property
    def block(self) -> str:
        """Heads and layers in words."""
        return f"{counted(self.heads or 0, 'head')} in {counted(self.layers or 0, 'layer')}"

    @property
    def heads_claim(self) -> Claim | None:
        """How many heads the advised depth takes."""
        found = next((one for one in self.counts if one.layers == self.layers), None)
        return None if found is None else found.claim(self.compared[0].splits, self.entering)

    @property
    def advice(self) -> str:
        """Verdict, reason, and how many heads: at most three sentences."""
        sentence = f"{self.claim}."
        return f"{sentence} {self.heads_said}" if self.worth else sentence

    @property
    def heads_said(self) -> str:
        """The advised block, what fewer heads cost, and how sure that is; beside it more layers, or prepared tokens."""
        claim = self.heads_claim
        if claim is None:
            return "How many heads it takes cannot be said yet."
        said = str(claim)
        first = f"{said[:1].upper()}{said[1:]}."
        if self.deeper:
            return f"{first} {self.deeper}."
        if self.prepared is None or self.heads == 1 or self.prepared > self._bound:
            return first
        return f"{first} Where a feed-forward prepares the tokens, 1 head has an error of {self.prepared:.3g}."

    @property
    def _bound(self) -> float:
        """The largest error within the tolerance at the advised depth."""
        smallest = min(one.smallest for one in self.counts if one.layers == self.layers)
        return max((1 + self.tolerance) * smallest, smallest + FLOOR)

    def to_json(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        heads = self.heads_claim if self.worth else None
        return {
            "verdict": self.verdict,
            "heads": self.heads,
            "layers": self.layers,
            "reason": self.reason,
            "compared": [one.to_json() for one in self.compared],
            "missing": self.missing,
            "ask": dict(self.ask or {}),
            "claims": [one.to_json() for one in (self.claim, heads) if one is not None],
            "counts": [
                {"layers": c.layers, "heads": c.heads, "low": c.low, "high": c.high, "best": c.best, "hurts": c.hurts}
                for c in self.counts
            ],
        }


@dataclass(frozen=True)
class _Family:
    """Contestants of a kind as one: in every split the one that the inner part prefers."""

    members: tuple[SplitErrors, ...]

    def chosen(self, split: int) -> SplitErrors:
        return min((one for one in self.members if split in one.outer), key=lambda one: (one.inner[split], one.name))

    def on(self, split: int) -> bool:
        return any(split in one.outer for one in self.members)

    def outer(self, splits: Sequence[int]) -> dict[int, float]:
        return {split: self.chosen(split).outer[split] for split in splits}

    def level(self, splits: Sequence[int]) -> float:
        return _mean(self.outer(splits).values())

    def further(self, splits: Sequence[int]) -> float:
        """The geometric mean of what more steps would bring those that are preferred."""
        return _mean(self.chosen(split).further(split) for split in splits)

    def usual(self, splits: Sequence[int]) -> str:
        """Who is preferred most often."""
        names = [self.chosen(split).name for split in splits]
        return max(sorted(set(names)), key=names.count)

    def said(self, splits: Sequence[int]) -> str:
        return f"{self.usual(splits)} {self.level(splits):.3g}"


@dataclass(frozen=True)
class _Contest:
    """Both sides on the splits that judge."""

    attention: _Family
    without: _Family
    splits: tuple[int, ...]
    worth: Compared

    @property
    def levels(self) -> str:
        return f"{self.without.said(self.splits)} against {self.attention.said(self.splits)}"

    @property
    def learned(self) -> bool:
        """Whether anybody does better than the constant."""
        best = min(side.level(self.splits) for side in (self.attention, self.without))
        return best <= LEARNED or self.worth.high < 1

    @property
    def better(self) -> bool:
        """Whether attention is shown to have a smaller error, by a share that is worth naming."""
        return self.worth.high < 1 and self.worth.ratio <= 1 - LEAD

    @property
    def no_better(self) -> bool:
        """Whether such a share is excluded, or what may be gained is too little of the constant's error."""
        little = (1 - self.worth.low) * self.without.level(self.splits) <= FLOOR
        return self.worth.low > 1 - LEAD or (self.worth.high >= 1 and little)

    @property
    def may_turn(self) -> bool:
        """Whether more steps, if they bring as much again, turn the verdict over."""
        attention, without = self.attention.further(self.splits), self.without.further(self.splits)
        if self.better:
            return attention >= without
        return attention < (1 - LEAD) * without and without - attention > FLOOR


def answer(
    scores: Sequence[SplitErrors],
    *,
    overlap: float,
    complete: Sequence[int] | None = None,
    steps: int = 0,
    most_splits: int = 10,
    rarest: tuple[str, int] | None = None,
    tolerance: float = 0.25,
    tested: Sequence[int] = (),
    entering: str = "",
) -> Answer:
    """Judge attention against everything without it on the `complete` splits; then count heads.

    Each side is a rule: in every split the contestant with the smallest inner error stands for it, and its outer error
    counts, so that no choice is made by what is judged.

    >>> def made(name, heads, *outer):
    ...     by = dict(enumerate(outer))
    ...     return SplitErrors(name, heads, min(heads, 1), heads > 0, heads > 0, by, by, by)
    >>> found = answer([made("zero heads", 0, 0.4, 0.42, 0.41), made("1 head", 1, 0.2, 0.21, 0.19)], overlap=0.25)
    >>> found.verdict, found.heads, found.layers
    ('worth it', 1, 1)
    >>> answer([made("zero heads", 0, 0.4, 0.42), made("1 head", 1, 0.2, 0.7)], overlap=0.25).missing
    'splits'
    """
    without = _Family(tuple(one for one in scores if not one.attends))
    attention = _Family(tuple(one for one in scores if one.attends))
    judging = sorted({s for one in scores for s in one.outer} if complete is None else complete)
    splits = tuple(s for s in judging if without.on(s) and attention.on(s))
    if not splits:
        reason = "not one split has everybody in it, and more time is needed"
        claim = Claim("attention", Predicate.CANNOT_SAY, basis=Basis("measured"), reason=reason)
        return Answer(claim, missing="time", ask={"budget": "more"}, tolerance=tolerance, entering=entering)
    names = attention.usual(splits), without.usual(splits)
    worth = compare(attention.outer(splits), without.outer(splits), overlap, names)
    both = _Contest(attention, without, splits, worth)
    word, reason, missing = _judged(both, rarest, most_splits)
    counts = head_counts(scores, splits, overlap, tolerance, tested)
    heads, layers = advised(counts, scores, overlap) if word is Predicate.WORTH_IT else (None, None)
    mine = next((one for one in counts if one.layers == layers), None)
    if mine is not None and not mine.decided:
        missing = "splits" if len(splits) < most_splits else "sequences"
    if mine is not None and mine.at_edge:
        missing = "heads"
    deeper = _deeper(scores, mine)
    if deeper and not missing:
        missing = "splits" if len(splits) < most_splits else "sequences"
    more = f"1-{2 * mine.most}" if mine is not None else ""
    asked = {"steps": {"steps": 4 * steps}, "splits": {"splits": most_splits}, "heads": {"heads": more}}.get(missing)
    gain = (_short(1 - worth.high), _short(1 - worth.low)) if math.isfinite(worth.high) else None
    seen = Evidence(planned=len(splits), entered=len(splits), interval=gain, level=CONFIDENCE)
    against = Comparison(worth.other, "ours", worth.ratio)
    basis = Basis("measured", n=len(splits))
    claim = Claim("attention", word, 1 - worth.ratio, basis, compared=against, evidence=seen, reason=reason)
    fewer = tuple(one.fewer for one in counts if one.fewer is not None)
    return Answer(
        claim, heads, layers, (worth, *fewer), missing, asked, counts, tolerance, entering, _prepared(scores), deeper
    )


def _judged(both: _Contest, rarest: tuple[str, int] | None, most_splits: int) -> tuple[Predicate, str, Missing]:
    """The word, why, and what is missing for another one."""
    count, worth = len(both.splits), both.worth
    if rarest is not None and rarest[1] < LEAST_POSITIVES:
        few = f"the rarest class has only {counted(rarest[1], 'sequence')}, and at least {LEAST_POSITIVES} are needed"
        return Predicate.CANNOT_SAY, few, "positives"
    if count < 2:
        return Predicate.CANNOT_SAY, f"{both.levels}, but one split tells nothing about chance", "splits"
    if not both.learned:
        best = min(side.level(both.splits) for side in (both.attention, both.without))
        nothing = f"nobody predicts better than a constant, the best has {best:.3g} of its error"
        return Predicate.NOT_WORTH_IT, nothing, ""
    if (both.better or both.no_better) and both.may_turn:
        return Predicate.CANNOT_SAY, f"{both.levels}, but more steps might overturn that", "steps"
    if both.better:
        return Predicate.WORTH_IT, f"{1 - worth.ratio:.0%} below what needs none, {both.levels}", ""
    if both.no_better:
        return Predicate.NOT_WORTH_IT, both.levels, ""
    between = f"{both.levels}, a ratio of [{worth.low:.2g}, {worth.high:.2g}] by {counted(count, 'split')}"
    return Predicate.CANNOT_SAY, between, "splits" if count < most_splits else "sequences"


def _short(share: float) -> float:
    """Two digits, and above 0 what was."""
    return float(f"{share:.2g}")


def _prepared(scores: Sequence[SplitErrors]) -> float | None:
    """The error of one head on tokens that a feed-forward prepares, where that was tried."""
    found = next((one for one in scores if one.attends and not one.standard), None)
    return None if found is None else found.mean(found.outer)


def _deeper(scores: Sequence[SplitErrors], advised: HeadCount | None) -> str:
    """More layers whose error was smaller where both were tried, beyond what layers must bring, but not shown to be."""
    if advised is None:
        return ""
    mine = next(one for one in scores if one.standard and (one.depth, one.heads) == (advised.layers, advised.heads))
    found = []
    for one in scores:
        both = sorted(set(one.outer) & set(mine.outer))
        if one.standard and one.depth > advised.layers and both:
            gained = mine.mean(both) - one.mean(both)
            if gained > max(LEAD * mine.mean(both), FLOOR):
                found.append((one.mean(both), mine.mean(both), one, len(both)))
    if not found:
        return ""
    level, ours, best, count = min(found, key=lambda each: each[:2])
    block = f"{counted(best.heads, 'head')} in {counted(best.depth, 'layer')} had {level:.3g} against {ours:.3g}"
    return f"{block} on {counted(count, 'split')}, which does not tell yet"


def head_counts(
    scores: Sequence[SplitErrors], splits: Sequence[int], overlap: float, tolerance: float, tested: Sequence[int] = ()
) -> tuple[HeadCount, ...]:
    """For every depth, the cheapest head count whose error is within the tolerance of the best, by paired intervals.

    The best is sought among the counts that are on the most splits of their depth, two at least unless there is but
    one; others were given up, or are yet to come.
    """
    found = []
    for depth in sorted({one.depth for one in scores if one.standard}):
        mine = sorted((one for one in scores if one.standard and one.depth == depth), key=lambda one: one.heads)
        own = max(([s for s in splits if s in one.outer] for one in mine), key=len)
        if len(own) >= min(2, len(splits)):
            found.append(_counted(mine, depth, own, overlap, tolerance, tested))
    return tuple(found)


def _counted(
    mine: Sequence[SplitErrors],
    depth: int,
    splits: Sequence[int],
    overlap: float,
    tolerance: float,
    tested: Sequence[int],
) -> HeadCount:
    best = min((one for one in mine if set(splits) <= set(one.outer)), key=lambda one: one.mean(splits))
    smallest = best.mean(splits)
    bound = 1 + max(tolerance, FLOOR / smallest)
    against = [compare(one.outer, best.outer, overlap, (one.name, best.name)) for one in mine]
    pairs = [(one, versus) for one, versus in zip(mine, against, strict=True) if versus.splits]
    low, heads, high = (
        next(one for one, versus in pairs if one is best or value(versus) <= bound)
        for value in (lambda v: v.low, lambda v: v.ratio, lambda v: v.high)
    )
    worse = (one.heads for one, v in pairs if one.heads > best.heads and v.low > 1 and v.ratio > bound)
    place = mine.index(heads)
    fewer = None
    if place:
        before = mine[place - 1]
        fewer = compare(before.outer, heads.outer, overlap, (before.name, heads.name))
    have = {one.heads for one in mine}
    worst = max((one.heads for one, _ in pairs if one.heads < low.heads), default=0)  # shown to be too few
    untested = tuple(h for h in tested if worst < h < high.heads and h not in have)
    least = min((low.heads, *untested))
    counts = heads.heads, least, high.heads, best.heads, mine[-1].heads
    return HeadCount(depth, *counts, _mean(heads.outer.values()), smallest, untested, next(worse, None), fewer)


def advised(counts: Sequence[HeadCount], scores: Sequence[SplitErrors], overlap: float) -> tuple[int, int]:
    """Heads and layers: the fewest layers that no deeper block is shown to beat beyond the tolerance for layers.

    That is a twentieth of the error, and 0.005 of the constant's.
    """
    blocks = {(one.depth, one.heads): one for one in scores if one.standard}
    for place, count in enumerate(counts):
        mine = blocks[count.layers, count.heads]
        deeper = [blocks[other.layers, other.heads] for other in counts[place + 1 :]]
        versus = [compare(one.outer, mine.outer, overlap, (one.name, mine.name)) for one in deeper]
        least = max(LEAD, FLOOR / count.error)
        if not any(one.high < 1 and one.ratio < 1 - least for one in versus):
            return count.heads, count.layers
    return counts[-1].heads, counts[-1].layers
