"""What the contest says: worth it, not worth it, or cannot say yet; how many heads and layers; what is missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from headcount.measuring.head_counts import HeadCount, advised, head_counts, open_depth, within
from headcount.measuring.paired_ratios import CONFIDENCE, Compared, SplitErrors
from headcount.measuring.planning import FLOOR
from headcount.measuring.sides import Side, TwoSides
from headcount.numerals import counted
from headcount.results import Basis, Claim, Comparison, Evidence, Predicate

Missing = Literal["", "splits", "steps", "sequences", "positives", "time", "heads"]

LEAST_POSITIVES = 25  # of the rarest class, five for each of five outer parts


@dataclass(frozen=True)
class Answer:
    """The verdict as a claim, with what it rests on; heads and layers of the block to take if one is taken at all.

    `missing` names what would settle it, `ask` the arguments to ask again with. `open_depth` tells of
    more or fewer layers that are not told apart from the advised ones.
    """

    claim: Claim
    heads: int | None = None
    layers: int | None = None
    compared: tuple[Compared, ...] = ()
    missing: Missing = ""
    ask: Mapping[str, Any] | None = None
    counts: tuple[HeadCount, ...] = ()
    tolerance: float = 0.05
    entering: str = ""
    prepared: float | None = None
    open_depth: str = ""

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
            sentence = str(replace(self.claim, reason="", evidence=None))
            return f"{sentence[:1].upper()}{sentence[1:]}"
        sentence = f"Attention is {self.verdict}"
        if not self.worth or self.heads is None:
            return sentence
        claim = self.heads_claim
        decided = claim is not None and claim.predicate is Predicate.ENOUGH and claim.value == self.heads
        firm = decided and not self.open_depth
        return f"{sentence}: {self.block}" if firm else f"{sentence}; heads and layers are open"

    @property
    def block(self) -> str:
        """Heads and layers in words."""
        return f"{counted(self.heads or 0, 'head')} in {counted(self.layers or 0, 'layer')}"

    @property
    def heads_claim(self) -> Claim | None:
        """How many heads the advised depth takes."""
        return None if self._count is None else self._count.claim(self.compared[0].splits, self.entering)

    @property
    def _count(self) -> HeadCount | None:
        """The head counts of the advised depth."""
        return next((one for one in self.counts if one.layers == self.layers), None)

    @property
    def advice(self) -> str:
        """Verdict, reason, and how many heads: at most three sentences."""
        sentence = f"{self.claim}."
        return f"{sentence} {self.heads_said}" if self.worth else sentence

    @property
    def heads_said(self) -> str:
        """The advised block, what fewer heads cost, and how sure that is; beside it more layers, or prepared tokens."""
        claim, count = self.heads_claim, self._count
        if claim is None or count is None:
            return "How many heads it takes cannot be said yet."
        sentence = str(claim)
        first = f"{sentence[:1].upper()}{sentence[1:]}."
        if self.open_depth:
            return f"{first} {self.open_depth}."
        if self.heads != claim.value:
            shown = count.high == count.heads
            by = f"among counts in {counted(count.layers, 'layer')}" if shown else "by the mean error"
            whole = f"by the whole interval, and beside all numbers of layers, it takes {self.block}"
            return f"{first} That is {by}; {whole}."
        bound = within(self.tolerance, count.smallest) * count.smallest
        if self.prepared is None or self.heads == 1 or self.prepared > bound:
            return first
        return f"{first} Where a feed-forward prepares the tokens, 1 head has an error of {self.prepared:.3g}."

    def to_json(self) -> dict[str, object]:
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
class Conditions:
    """Under what a contest was held.

    `complete` are the splits that judge (None: all), `tested` the head counts of the plan, `rarest` a class that is
    rare enough to matter with its sequences, `entering` how tokens enter.
    """

    complete: Sequence[int] | None = None
    steps: int = 0
    most_splits: int = 10
    rarest: tuple[str, int] | None = None
    tolerance: float = 0.05
    tested: Sequence[int] = ()
    entering: str = ""


def answer(scores: Sequence[SplitErrors], held: Conditions | None = None) -> Answer:
    """Judge attention against everything without it on the complete splits; then count heads.

    Attention is a rule: for every outer part those stand for it whose mean error on its inner parts is within the
    tolerance of the smallest, and the mean of their outer errors counts, so that no choice is made by what is judged.
    It is compared with everybody else one by one.

    >>> def made(name, heads, *outer):
    ...     by = dict(enumerate(outer))
    ...     return SplitErrors(name, heads, min(heads, 1), heads > 0, heads > 0, by, by, by)
    >>> found = answer([made("zero heads", 0, 0.4, 0.42, 0.41), made("1 head", 1, 0.2, 0.21, 0.19)])
    >>> found.verdict, found.heads, found.layers
    ('worth it', 1, 1)
    >>> answer([made("zero heads", 0, 0.4, 0.42), made("1 head", 1, 0.2, 0.7)]).missing
    'splits'
    """
    held = held or Conditions()
    attention = Side(tuple(one for one in scores if one.attends))
    judging = sorted({s for one in scores for s in one.outer} if held.complete is None else held.complete)
    without = tuple(one for one in scores if not one.attends and set(one.outer) & set(judging))
    splits = tuple(s for s in judging if attention.on(s) and any(s in one.outer for one in without))
    if not splits:
        return _nobody(held)
    both = TwoSides(attention, without, splits, held.steps)
    word, reason, missing = _judged(both, held)
    counts = head_counts(scores, splits, held.tolerance, held.tested, held.most_splits)
    block = advised(scores, splits, held.tolerance)
    heads, layers = (None, None) if block is None else (block.heads, block.depth)
    at_depth = next((one for one in counts if one.layers == layers), None)
    other_depth = open_depth(scores, block, held.tolerance)
    if word is Predicate.WORTH_IT:
        missing = missing or _open(at_depth, other_depth, len(splits) < held.most_splits)
    fewer = tuple(one.fewer for one in counts if one.fewer is not None)
    compared = *(opponent.versus for opponent in both.opponents), *fewer
    return Answer(
        _claimed(both, word, reason), heads, layers, compared, missing, _needed(missing, at_depth, held), counts,
        held.tolerance, held.entering, _prepared(scores), other_depth,
    )  # fmt: skip


def _nobody(conditions: Conditions) -> Answer:
    reason = "not one split has everybody in it, and more time is needed"
    claim = Claim("attention", Predicate.CANNOT_SAY, basis=Basis("measured"), reason=reason)
    return Answer(
        claim, missing="time", ask={"budget": "more"}, tolerance=conditions.tolerance, entering=conditions.entering
    )


def _open(count: HeadCount | None, other_depth: str, more_splits: bool) -> Missing:
    """What is missing where the verdict is known: counts beyond the largest, or what tells counts and depths apart."""
    if count is None:
        return ""
    if count.at_edge:
        return "heads"
    if count.decided and not other_depth:
        return ""
    return "splits" if more_splits and count.told else "sequences"


def _needed(missing: Missing, count: HeadCount | None, conditions: Conditions) -> Mapping[str, Any] | None:
    """The arguments that would bring it."""
    more = f"1-{2 * count.most}" if count is not None else ""
    known = {
        "steps": {"steps": 4 * conditions.steps},
        "splits": {"splits": conditions.most_splits},
        "heads": {"heads": more},
    }
    return known.get(missing)


def _claimed(both: TwoSides, word: Predicate, reason: str) -> Claim:
    """The verdict with the interval of the gain, and whom attention was compared with."""
    worth, count = both.worth, len(both.splits)
    gain = (_short(1 - worth.high), _short(1 - worth.low)) if math.isfinite(worth.high) else None
    evidence = Evidence(planned=count, entered=count, interval=gain, level=CONFIDENCE)
    against = Comparison(worth.other, "ours", worth.ratio)
    basis = Basis("measured", n=count)
    return Claim("attention", word, 1 - worth.ratio, basis, compared=against, evidence=evidence, reason=reason)


def _judged(both: TwoSides, conditions: Conditions) -> tuple[Predicate, str, Missing]:
    """The word, why, and what is missing for another one."""
    count, worth, rarest = len(both.splits), both.worth, conditions.rarest
    if rarest is not None and rarest[1] < LEAST_POSITIVES:
        few = f"the rarest class has only {counted(rarest[1], 'sequence')}, and at least {LEAST_POSITIVES} are needed"
        return Predicate.CANNOT_SAY, few, "positives"
    if count < 2:
        return Predicate.CANNOT_SAY, f"{both.levels}, but one split tells nothing about chance", "splits"
    if not both.learned:
        nothing = f"nobody predicts better than a constant, the best has {both.least:.3g} of its error"
        return Predicate.NOT_WORTH_IT, nothing, ""
    if (both.better or both.no_better) and both.may_turn:
        return Predicate.CANNOT_SAY, f"{both.levels}, but more steps might overturn that", "steps"
    if both.better:
        return Predicate.WORTH_IT, f"{1 - worth.ratio:.0%} below what needs none, {both.levels}", ""
    if both.no_better:
        left = f", a gain of more than {_up(1 - worth.low)} is excluded" if worth.low < 1 else ""
        left = (
            f", at most {FLOOR} of the constant's error is left to gain" if both.opponents[0].little and left else left
        )
        return Predicate.NOT_WORTH_IT, f"{both.levels}{left}", ""
    if both.diverged:
        return Predicate.CANNOT_SAY, f"{both.levels}, and a network diverged on a split", ""
    between = f"{both.levels}, a ratio of {worth.interval} by {counted(count, 'split')}"
    return Predicate.CANNOT_SAY, between, "splits" if both.settled_by(conditions.most_splits) else "sequences"


def _up(fraction: float) -> str:
    """A share in whole hundredths, rounded away from 0."""
    return f"{math.ceil(round(100 * fraction, 6))}%"


def _short(value: float) -> float:
    """Two digits, and above 0 what was."""
    return float(f"{value:.2g}")


def _prepared(scores: Sequence[SplitErrors]) -> float | None:
    """The error of one head on tokens that a feed-forward prepares, where that was tried."""
    score = next((one for one in scores if one.attends and not one.standard), None)
    return None if score is None else score.mean(score.outer)
