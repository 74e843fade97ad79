"""The weighted reversal score: how often longer sequences are easier, with a bootstrap interval over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from headcount.fits.verdict import Estimate
from headcount.results.literature import Cells
from headcount.sources import Source, implements

RESAMPLES = 2000


@implements(
    Source("yu2025heads", "weighted reversal score"),
    test="tests/test_head_count_laws.py::test_reversal_scores_of_the_published_tables",
    status="measured",
)
def score(errors: Sequence[float]) -> float:
    """R = sum over T1 < T2 of max(err(T1) - err(T2), 0), divided by the largest difference; 0 where all are equal.

    Source: Yu et al. 2025 (heads), the weighted reversal score.

    >>> score([1.0, 2.0, 3.0]), score([3.0, 2.0, 1.0])
    (0.0, 2.0)
    """
    width = max(errors) - min(errors)
    return sum(max(a - b, 0.0) for a, b in combinations(errors, 2)) / width if width > 0 else 0.0


def reversal(
    cells: Cells, row: Any, sums_up: Callable[[Sequence[float]], float] = min, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """The score of one row of a table whose cells hold seeds, with its percentile bootstrap interval.

    >>> cells = {(4, 8): [3.0, 3.1], (4, 16): [2.0, 2.1], (4, 32): [1.0, 1.1]}
    >>> print(reversal(cells, 4))
    2 [2, 2]
    """
    columns = sorted(column for r, column in cells if r == row)
    seeds = [np.asarray(cells[row, column], dtype=float) for column in columns]
    rng = np.random.default_rng(seed)
    drawn = [score([sums_up(rng.choice(v, len(v)).tolist()) for v in seeds]) for _ in range(RESAMPLES)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Estimate(score([sums_up(v.tolist()) for v in seeds]), float(low), float(high))
