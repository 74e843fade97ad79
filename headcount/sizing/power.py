"""How many seeds decide between two shapes: Student's interval and power for paired differences."""

from __future__ import annotations

import math

from headcount.fits.student import half_width
from headcount.refusals import at_least, positive

MOST = 10_000


def promised_width(deviation: float, free: int, seeds: int, confidence: float = 0.95) -> tuple[float, float, float]:
    """The half-width to expect from new seeds, and the ends between which nine of ten such experiments will fall.

    Both the deviation at hand (`free` degrees of freedom) and the one of the new seeds are estimates of one truth,
    so that the square of their ratio follows Fisher's F(seeds - 1, free).

    >>> middle, low, high = promised_width(0.2, 44, 10)
    >>> round(middle, 3), low < middle < high
    (0.139, True)
    """
    positive(deviation=deviation)
    at_least(2, seeds=seeds)
    from scipy.stats import f

    usual = half_width(deviation, seeds, confidence)
    low, middle, high = (math.sqrt(float(f.ppf(quantile, seeds - 1, free))) for quantile in (0.05, 0.5, 0.95))
    return usual * middle, usual * low, usual * high


def seeds_for(deviation: float, difference: float, *, power: float = 0.8, confidence: float = 0.95) -> int:
    """The fewest seeds with which a paired t test finds a true difference with this power.

    >>> seeds_for(1.0, 1.0), seeds_for(1.0, 0.5)
    (10, 34)
    """
    positive(deviation=deviation, difference=difference)
    from scipy.stats import nct, t

    def reached(seeds: int) -> float:
        limit = float(t.ppf((1 + confidence) / 2, seeds - 1))
        shift = difference / deviation * math.sqrt(seeds)
        return float(nct.sf(limit, seeds - 1, shift)) + float(nct.cdf(-limit, seeds - 1, shift))

    low, high = 2, 2
    while reached(high) < power:
        low, high = high, 2 * high
        if high > MOST:
            raise ValueError(
                f"a difference of {difference:g} at a noise of {deviation:g} takes more than {MOST:,} seeds"
            )
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) >= power else (middle + 1, high)
    return high
