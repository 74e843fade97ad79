"""Student's interval of a mean, which is all that a few seeds, windows or texts allow. No torch."""

from __future__ import annotations

import math


def half_width(deviation: float, seeds: int, confidence: float = 0.95) -> float:
    """t(confidence, seeds - 1) deviation / sqrt(seeds): half of Student's interval of a mean; infinite of one seed.

    >>> round(half_width(1.0, 5), 4)
    1.2417
    """
    if seeds < 2 or math.isnan(deviation):
        return math.inf
    from scipy.stats import t

    return float(t.ppf((1 + confidence) / 2, seeds - 1)) * deviation / math.sqrt(seeds)
