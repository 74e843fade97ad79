"""Contestants on the same splits: the ratio of two errors, with an interval that knows that splits overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["CONFIDENCE", "LEAST", "Compared", "SplitErrors", "compare", "corrected", "geometric_mean"]

CONFIDENCE = 0.9  # a twentieth on either side
LEAST = 1e-12  # an error below this share of the constant's is exact but for rounding


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
        return geometric_mean(self.outer[s] for s in splits)

    def further(self, split: int) -> float:
        """What the outer error would be if four times the steps brought as much again as the last four times did."""
        before = self.short[split] if math.isfinite(self.short[split]) else self.inner[split]
        gain = min(1.0, max(self.inner[split], LEAST) / max(before, LEAST))
        return max(self.outer[split], LEAST) * gain


def geometric_mean(errors: Iterable[float]) -> float:
    """exp of the mean logarithm, exact errors counted as the least there is.

    >>> round(geometric_mean([0.1, 0.4]), 9)
    0.2
    """
    return math.exp(float(np.mean([math.log(max(one, LEAST)) for one in errors])))


@dataclass(frozen=True)
class Compared:
    """The error of `one` over that of `other`, by the splits that both have.

    >>> Compared("2 heads", "1 head", 5, 0.5, 0.4, 0.6).sentence
    '2 heads has 0.5 times the error of 1 head, [0.4, 0.6]'
    """

    one: str
    other: str
    splits: int
    ratio: float
    low: float
    high: float

    @property
    def sentence(self) -> str:
        """Both, the ratio and its interval."""
        return f"{self.one} has {self.ratio:.2g} times the error of {self.other}, [{self.low:.2g}, {self.high:.2g}]"

    def to_json(self) -> dict[str, object]:
        """The fields, ready for JSON."""
        return {key: _finite(value) for key, value in asdict(self).items()}


def corrected(differences: list[float], overlap: float) -> tuple[float, float, float]:
    """The mean of paired differences and its interval by Student's t with k - 1 degrees of freedom.

    The variance of the mean is s^2 (1/k + overlap), where overlap is the size of an outer part over that of the rest:
    splits share most of what they train on, and s^2/k alone would call noise a difference.

    Source: Nadeau and Bengio, "Inference for the generalization error", Machine Learning 52 (2003), the corrected
    resampled t-test.

    >>> [round(v, 3) for v in corrected([1.0, 2.0, 3.0], 0.25)]
    [2.0, -0.23, 4.23]
    >>> corrected([1.0], 0.25)
    (1.0, -inf, inf)
    """
    from scipy.special import stdtrit

    count, mean = len(differences), float(np.mean(differences))
    if count < 2 or not math.isfinite(mean):  # one split, or a network that diverged in one
        return mean, -math.inf, math.inf
    spread = float(np.std(differences, ddof=1)) * math.sqrt(1 / count + overlap)
    reach = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * spread
    return mean, mean - reach, mean + reach


def compare(one: Mapping[int, float], other: Mapping[int, float], overlap: float, names: tuple[str, str]) -> Compared:
    """Errors by split, as logarithms of their ratio on the splits that both have.

    >>> compare({0: 0.1, 1: 0.2}, {0: 0.2, 1: 0.4, 2: 9.0}, 0.25, ("a", "b")).ratio
    0.5
    """
    both = sorted(one.keys() & other.keys())
    if not both:
        return Compared(*names, 0, math.nan, 0.0, math.inf)
    gaps = [math.log(max(one[split], LEAST) / max(other[split], LEAST)) for split in both]
    ratio, low, high = (_exp(value) for value in corrected(gaps, overlap))
    return Compared(*names, len(both), ratio, low, high)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
