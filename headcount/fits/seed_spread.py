"""How far the seeds of a cell lie apart: robust spreads, and what normal seeds would give. No torch."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from headcount.fits.cells import Cells

DRAWS = 20_000
PIECE = 1000  # samples drawn at once: all of them would take hundreds of megabytes
MANY = 400  # seeds from which on the summaries are normal themselves, and drawing them would take gigabytes
SMALLEST = 1e-12  # a spread below this is that of equal numbers


class NormalSeeds(NamedTuple):
    """What n normal seeds of standard deviation 1 give: the spread of their summaries, and their own deviation.

    `level` and `median` are standard deviations of the best half's mean and of the median; `deviation` is exp of the
    mean logarithm of the median absolute deviation, so that dividing by it makes logarithms of spreads unbiased.
    """

    level: float
    median: float
    deviation: float


@lru_cache
def normal_seeds(seeds: int) -> NormalSeeds:
    """The constants of n seeds, from 20,000 drawn samples; beyond 400 seeds, by the law of the square root of n.

    >>> normal_seeds(1).median.__round__(1), normal_seeds(2).median.__round__(1)
    (1.0, 0.7)
    """
    if seeds > MANY:
        level, median, deviation = normal_seeds(MANY)
        return NormalSeeds(level * (MANY / seeds) ** 0.5, median * (MANY / seeds) ** 0.5, deviation)
    generator = np.random.default_rng(0)
    pieces = [_summaries(generator, min(PIECE, DRAWS - at), seeds) for at in range(0, DRAWS, PIECE)]
    best, middle, deviation = (np.concatenate(each) for each in zip(*pieces, strict=True))
    logs = np.log(np.maximum(deviation, SMALLEST)).mean() if seeds > 1 else 0.0
    return NormalSeeds(float(best.std()), float(middle.std()), float(np.exp(logs)))


def _summaries(generator: np.random.Generator, draws: int, seeds: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Best half's mean, median and median absolute deviation of so many samples of n normal seeds."""
    drawn = np.sort(generator.standard_normal((draws, seeds)), axis=-1)
    return drawn[:, : -(-seeds // 2)].mean(-1), np.median(drawn, -1), _deviation(drawn)


def robust_spread(logs: Float[np.ndarray, "*cell seed"]) -> Float[np.ndarray, "*cell"]:
    """The standard deviation of each cell's seeds, from the median absolute deviation: a failed seed does not move it.

    NaN where a cell has one seed. Unbiased in logarithms for normal seeds.

    >>> bool(robust_spread(np.array([[0.0, 1.0, 2.0, 50.0, np.nan]])) < 3)
    True
    """
    counts = np.isfinite(logs).sum(-1)
    constants = np.array([normal_seeds(int(n)).deviation if n > 1 else np.nan for n in counts.ravel()])
    return np.maximum(_deviation(logs), SMALLEST) / constants.reshape(counts.shape)


def smooth_spread(cells: Cells) -> Float[np.ndarray, " point"]:
    """The standard deviation of a seed at each point, on a straight line in logarithms through all cells.

    The logarithm of the spread of a cell's few seeds is off by half its size and more; a line through all is not.
    """
    places = np.log(np.array(cells.points, dtype=float))
    spread = np.log(robust_spread(cells.seeds)).mean(0)
    slope, middle = np.polyfit(places, spread, 1)
    return np.exp(middle + slope * places)


def _deviation(logs: Float[np.ndarray, "*cell seed"]) -> Float[np.ndarray, "*cell"]:
    return np.asarray(np.nanmedian(np.abs(logs - np.nanmedian(logs, -1, keepdims=True)), -1))
