"""What an interval says about a prediction: consistent, refuted, or unresolved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

from headcount.results.claim import Claim
from headcount.results.hypothesis import Hypothesis
from headcount.results.verdicts import Basis, Comparison, Evidence, Predicate, strongest, withheld

Outcome = Literal["consistent", "refuted", "does not hold here", "unresolved"]
OFFERED: dict[Outcome, tuple[Predicate, ...]] = {
    "consistent": (Predicate.CONSISTENT, Predicate.UNRESOLVED),
    "refuted": (Predicate.REFUTED, Predicate.FAILS, Predicate.UNRESOLVED),
    "unresolved": (Predicate.UNRESOLVED,),
}


@dataclass(frozen=True)
class Estimate:
    """A measured number with its interval.

    >>> print(Estimate(2.0, 1.8, 2.25))
    2 [1.8, 2.25]
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a prediction against an interval, with the reason in words."""

    outcome: Outcome
    predicted: float
    reason: str

    def __str__(self) -> str:
        return f"predicted {self.predicted:g}: {self.outcome}, {self.reason}"

    @classmethod
    def of(cls, claim: Claim, predicted: float) -> Verdict:
        """The word of a claim that judges a prediction, and its reason."""
        return cls(cast(Outcome, claim.word), predicted, claim.reason)

    def as_row(self) -> dict[str, object]:
        """The verdict as one flat machine-readable row."""
        return {"outcome": self.outcome, "predicted": self.predicted, "reason": self.reason}


def judge(predicted: float, low: float, high: float, *, resolution: float | None = None) -> Verdict:
    """The verdict on `predicted` of the interval from `low` to `high`.

    Refuted when the prediction lies outside. Consistent when it lies inside and the interval is no wider than
    `resolution`; by default that is the size of the prediction itself, so that an interval around 2 which also
    admits 0 and 4 counts as no evidence for 2. Unresolved otherwise.

    >>> judge(2.0, 1.8, 2.25).outcome, judge(3.0, 1.8, 2.25).outcome, judge(2.0, 0.1, 3.9).outcome
    ('consistent', 'refuted', 'unresolved')
    """
    if not low <= high:
        raise ValueError(f"an interval runs from low to high, got {low} to {high}")
    resolution = abs(predicted) if resolution is None else resolution
    if not low <= predicted <= high:
        side = "below" if predicted < low else "above"
        return Verdict("refuted", predicted, f"it lies {side} the interval {_span(low, high)}")
    if high - low <= resolution:
        return Verdict("consistent", predicted, f"it lies in the interval {_span(low, high)}")
    return Verdict("unresolved", predicted, f"the interval {_span(low, high)} is too wide to tell")


def judged(
    subject: str,
    read: Verdict,
    evidence: Evidence,
    compared: Comparison,
    conditions: tuple[Hypothesis, ...] = (),
) -> Claim:
    """What an interval says of a prediction, in the strongest word that the evidence allows.

    >>> seen = Evidence(planned=5, entered=5, diverged=1, interval=(1.8, 2.25), level=0.95)
    >>> print(judged("the exponent", judge(3.0, 1.8, 2.25), seen, Comparison("3", "printed")))
    the exponent: unresolved, it lies above the interval [1.8, 2.25], but some of the runs diverged
    """
    words = OFFERED[read.outcome]

    def claim_of(word: Predicate, reason: str = read.reason) -> Claim:
        basis = Basis("measured", n=evidence.entered)
        return Claim(subject, word, read.predicted, basis, None, conditions, compared, evidence, reason)

    claim = strongest(words, claim_of)
    if claim.predicate is not Predicate.UNRESOLVED or read.outcome == "unresolved":
        return claim
    return claim_of(claim.predicate, f"{read.reason}, but {withheld(words[-2], claim_of)}")


def _span(low: float, high: float) -> str:
    if low == high:
        return f"[{low:.4g}]"
    return f"[{low:.4g}, {high:.4g}]" if math.isfinite(high) else f"[{low:.4g}, ...)"
