"""What the contest says: worth it, not worth it, or cannot say yet; how many heads and layers; what is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headcount.measuring.intervals import LEAST, Compared, compare
from headcount.numerals import counted

__all__ = ["Answer", "HeadCount", "Scores", "Verdict", "answer", "head_counts"]

Verdict = Literal["worth it", "not worth it", "cannot say yet"]
Missing = Literal["", "splits", "steps", "sequences", "positives", "heads"]

LEAD = 0.05  # attention must lower the error by more than this share to be worth naming
LEARNED = 0.95  # an error above this share of the constant's is the constant's but for noise
LEAST_POSITIVES = 25  # of the rarest class, five for each of five outer parts
WORTH: Verdict = "worth it"
NOT_WORTH: Verdict = "not worth it"
CANNOT_SAY: Verdict = "cannot say yet"


@dataclass(frozen=True)
class Scores:
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
        return math.exp(float(np.mean([math.log(max(self.outer[s], LEAST)) for s in splits])))

    def further(self, split: int) -> float:
        """What the outer error would be if four times the steps brought as much again as the last four times did."""
        gain = min(1.0, max(self.inner[split], LEAST) / max(self.short[split], LEAST))
        return max(self.outer[split], LEAST) * gain


@dataclass(frozen=True)
class HeadCount:
    """The cheapest head count of a depth whose error is within the tolerance of the best, with its interval.

    `low` is the cheapest count that is not shown to be worse, `high` the cheapest that is shown to be as good. `best`
    has the smallest error; `hurts` is the smallest larger count that is shown to be worse than the best.
    """

    layers: int
    heads: int
    low: int
    high: int
    best: int
    error: float
    untested: tuple[int, ...] = ()
    hurts: int | None = None
    fewer: Compared | None = None

    @property
    def decided(self) -> bool:
        """Whether the interval is at most two counts wide, with none untested inside."""
        return self.high - self.low <= 1 or (self.low == self.heads == self.high)

    @property
    def interval(self) -> str:
        """The interval in brackets."""
        return f"[{self.low}, {self.high}]"


@dataclass(frozen=True)
class Answer:
    """The verdict with its reason and what it rests on; heads and layers where the verdict is that it is worth it.

    `missing` names what would settle it, `ask` the arguments to ask again with.
    """

    verdict: Verdict
    reason: str
    heads: int | None = None
    layers: int | None = None
    compared: tuple[Compared, ...] = ()
    missing: Missing = ""
    ask: Mapping[str, Any] | None = None
    counts: tuple[HeadCount, ...] = ()
    tolerance: float = 0.25

    @property
    def headline(self) -> str:
        """The answer as a title."""
        if self.verdict == WORTH and self.heads is not None:
            return f"Attention is worth it: {self.block}"
        return {
            WORTH: "Attention is worth it",
            NOT_WORTH: "Attention is not worth it here",
            CANNOT_SAY: "Cannot say yet whether attention is worth it",
        }[self.verdict]

    @property
    def block(self) -> str:
        """Heads and layers in words."""
        return f"{counted(self.heads or 0, 'head')} in {counted(self.layers or 0, 'layer')}"

    @property
    def advice(self) -> str:
        """Verdict, reason, and how many heads: at most two sentences."""
        first = {
            WORTH: "attention is worth it here",
            NOT_WORTH: "attention is not worth it here",
            CANNOT_SAY: "cannot say yet whether attention is worth it",
        }[self.verdict]
        sentence = f"{first}: {self.reason}."
        return f"{sentence} {self.heads_said}" if self.verdict == WORTH else sentence

    @property
    def heads_said(self) -> str:
        """The advised block, what fewer heads cost, and how sure that is."""
        found = next((one for one in self.counts if one.layers == self.layers), None)
        if found is None:
            return "How many heads it takes cannot be said yet."
        why = []
        if found.fewer is not None:
            times = f"{found.fewer.ratio:.2g} times" if math.isfinite(found.fewer.ratio) else "more"
            verb = "has" if found.fewer.one.startswith("1 ") else "have"
            why.append(f"{found.fewer.one} {verb} {times} the error of the best, {found.fewer.other}")
        if found.hurts is not None:
            why.append(f"{found.hurts} do worse again")
        if found.low != found.high:
            why.append(f"these splits leave {found.interval} open")
        return f"Use {self.block}{': ' + ', '.join(why) if why else ''}."

    def to_json(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {
            "verdict": self.verdict,
            "heads": self.heads,
            "layers": self.layers,
            "reason": self.reason,
            "compared": [one.to_json() for one in self.compared],
            "missing": self.missing,
            "ask": dict(self.ask or {}),
            "counts": [
                {"layers": c.layers, "heads": c.heads, "low": c.low, "high": c.high, "best": c.best, "hurts": c.hurts}
                for c in self.counts
            ],
        }


@dataclass(frozen=True)
class _Family:
    """Contestants of a kind as one: in every split the one that the inner part prefers."""

    name: str
    members: tuple[Scores, ...]

    def chosen(self, split: int) -> Scores:
        return min(self.members, key=lambda one: (one.inner[split], one.name))

    def outer(self, splits: Sequence[int]) -> dict[int, float]:
        return {split: self.chosen(split).outer[split] for split in splits}

    def further(self, splits: Sequence[int]) -> float:
        """The geometric mean of the best that more steps would bring any of them."""
        logs = [min(math.log(one.further(split)) for one in self.members) for split in splits]
        return math.exp(float(np.mean(logs)))

    def usual(self, splits: Sequence[int]) -> str:
        """Who is preferred most often."""
        names = [self.chosen(split).name for split in splits]
        return max(sorted(set(names)), key=names.count)


def answer(
    scores: Sequence[Scores],
    *,
    overlap: float,
    core: Sequence[str] = (),
    steps: int = 0,
    most_splits: int = 10,
    rarest: tuple[str, int] | None = None,
    tolerance: float = 0.25,
    tested: Sequence[int] = (),
) -> Answer:
    """Judge attention against everything without it, by the splits that all of `core` have; then count heads.

    Each side is a rule: in every split the contestant with the smallest inner error stands for it, and its outer error
    counts, so that no choice is made by what is judged.

    >>> def made(name, heads, *outer):
    ...     by = dict(enumerate(outer))
    ...     return Scores(name, heads, min(heads, 1), heads > 0, heads > 0, by, by, by)
    >>> found = answer([made("zero heads", 0, 0.4, 0.42, 0.41), made("1 head", 1, 0.2, 0.21, 0.19)], overlap=0.25)
    >>> found.verdict, found.heads, found.layers
    ('worth it', 1, 1)
    >>> answer([made("zero heads", 0, 0.4, 0.42), made("1 head", 1, 0.2, 0.7)], overlap=0.25).missing
    'splits'
    """
    wanted = set(core) or {one.name for one in scores}
    common = set.intersection(*(set(one.outer) for one in scores if one.name in wanted)) if scores else set()
    splits = sorted(common)
    present = [one for one in scores if set(splits) <= set(one.outer)]
    without = _Family("without attention", tuple(one for one in present if not one.attends))
    attention = _Family("attention", tuple(one for one in present if one.attends))
    if not splits or not without.members or not attention.members:
        reason = "not one split has everybody in it; more time is needed"
        return Answer(CANNOT_SAY, reason, missing="splits", ask={"budget": "more"}, tolerance=tolerance)
    counts = head_counts(present, splits, overlap, tolerance, tested)
    worth = compare(attention.outer(splits), without.outer(splits), overlap, ("attention", without.usual(splits)))
    ask = {"splits": most_splits} if len(splits) < most_splits else {}

    def said(verdict: Verdict, reason: str, missing: Missing = "", **more: Any) -> Answer:
        heads, layers = (advised(counts, present, splits, overlap)) if verdict == WORTH else (None, None)
        wider = tuple(c.fewer for c in counts if c.fewer is not None)
        return Answer(verdict, reason, heads, layers, (worth, *wider), missing, more or None, counts, tolerance)

    if rarest is not None and rarest[1] < LEAST_POSITIVES:
        few = f"of class {rarest[0]} there are only {rarest[1]} sequences, and at least {LEAST_POSITIVES} are needed"
        return said(CANNOT_SAY, few, "positives")
    best = min(float(np.exp(np.mean(np.log(list(f.outer(splits).values()))))) for f in (attention, without))
    if best > LEARNED and not (worth.high < 1):
        nothing = f"nobody predicts better than a constant (the best has {best:.3g} of its error)"
        return said(NOT_WORTH, nothing)
    if len(splits) < 2:
        return said(CANNOT_SAY, "one split tells nothing about chance", "splits", **ask)
    levels = _levels(attention, without, splits)
    if worth.high < 1 and worth.ratio <= 1 - LEAD:
        if attention.further(splits) >= without.further(splits):
            return said(CANNOT_SAY, f"{levels}, but more steps might overturn that", "steps", steps=4 * steps)
        saved = f"its error is {1 - worth.ratio:.0%} below that of {worth.other}"
        return said(WORTH, f"{saved} [{1 - worth.high:.0%}, {1 - worth.low:.0%}], {levels}")
    if worth.low > 1 - LEAD:
        if attention.further(splits) < (1 - LEAD) * without.further(splits):
            return said(CANNOT_SAY, f"{levels}, but more steps might overturn that", "steps", steps=4 * steps)
        return said(NOT_WORTH, levels)
    between = f"{levels}, a ratio of [{worth.low:.2g}, {worth.high:.2g}]"
    if len(splits) < most_splits:
        return said(CANNOT_SAY, f"{between}; {counted(len(splits), 'split')} cannot tell", "splits", **ask)
    return said(CANNOT_SAY, f"{between}; more sequences are needed to tell", "sequences")


def _levels(attention: _Family, without: _Family, splits: Sequence[int]) -> str:
    """Both sides' errors, each with who stood for it most often."""
    sides = []
    for family in (without, attention):
        level = math.exp(float(np.mean([math.log(max(v, LEAST)) for v in family.outer(splits).values()])))
        sides.append(f"{family.usual(splits)} {level:.3g}")
    return " against ".join(sides)


def head_counts(
    scores: Sequence[Scores], splits: Sequence[int], overlap: float, tolerance: float, tested: Sequence[int] = ()
) -> tuple[HeadCount, ...]:
    """For every depth, the cheapest head count whose error is within the tolerance of the best, by paired intervals."""
    found = []
    for depth in sorted({one.depth for one in scores if one.standard}):
        mine = sorted((one for one in scores if one.standard and one.depth == depth), key=lambda one: one.heads)
        found.append(_counted(mine, depth, splits, overlap, tolerance, tested))
    return tuple(found)


def _counted(
    mine: Sequence[Scores], depth: int, splits: Sequence[int], overlap: float, tolerance: float, tested: Sequence[int]
) -> HeadCount:
    best = min(mine, key=lambda one: one.mean(splits))
    against = [compare(one.outer, best.outer, overlap, (one.name, best.name)) for one in mine]
    bound = 1 + tolerance
    low, heads, high = (
        next(one for one, versus in zip(mine, against, strict=True) if one is best or value(versus) <= bound)
        for value in (lambda v: v.low, lambda v: v.ratio, lambda v: v.high)
    )
    hurts = next((o.heads for o, v in zip(mine, against, strict=True) if o.heads > best.heads and v.low > 1), None)
    place = mine.index(heads)
    fewer = None
    if place:
        before = mine[place - 1]
        fewer = compare(before.outer, best.outer, overlap, (before.name, best.name))
    have = {one.heads for one in mine}
    untested = tuple(h for h in tested if low.heads < h < high.heads and h not in have)
    return HeadCount(depth, heads.heads, low.heads, high.heads, best.heads, heads.mean(splits), untested, hurts, fewer)


def advised(
    counts: Sequence[HeadCount], scores: Sequence[Scores], splits: Sequence[int], overlap: float
) -> tuple[int, int]:
    """Heads and layers: the fewest layers that no deeper block is shown to beat by more than a twentieth."""
    blocks = {(one.depth, one.heads): one for one in scores if one.standard}
    for place, count in enumerate(counts):
        mine = blocks[count.layers, count.heads]
        deeper = [blocks[other.layers, other.heads] for other in counts[place + 1 :]]
        versus = [compare(one.outer, mine.outer, overlap, (one.name, mine.name)) for one in deeper]
        if not any(one.high < 1 and one.ratio < 1 - LEAD for one in versus):
            return count.heads, count.layers
    return counts[-1].heads, counts[-1].layers
