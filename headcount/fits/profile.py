"""The laws that levels leave standing: intervals by the larger of the seeds' noise and the lack of fit.

The level y_i of size i is log10 law(size_i) + (an effect that all seeds of the cell share) + (the seeds' noise). The
first has one variance tau^2 for every cell, the second the variance s_i^2 that the seeds show. With weights
1/(s_i^2 + tau^2) and Q the weighted sum of squared distances from a law, tau^2 is the least number for which the
nearest law has Q <= K - p, K sizes and p = 3 numbers (Paule and Mandel). A law stands at level 1 - alpha while
Q <= Q_least + t^2 max(1, Q_least / (K - p)), t the quantile of Student's distribution with K - p degrees of freedom:
what K cells say of a shared effect they say with K - p numbers, however many the seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.fits.projection import EXPONENTS, FLOORS, fit_law

NUMBERS = 3  # exponent, scale, floor
FINE = (81, 61)  # exponents and floors of a grid of laws
ZOOMS = 3  # how often the grid is drawn again around the laws that stand


@dataclass(frozen=True, eq=False)
class Standing:
    """The nearest law, the ends of the laws that stand (each exponent, scale, floor), and tau^2."""

    fitted: Float[np.ndarray, " 3"]
    low: Float[np.ndarray, " 3"]
    high: Float[np.ndarray, " 3"]
    shared: float


def standing(
    levels: Float[np.ndarray, " size"],
    sizes: Float[np.ndarray, " size"],
    noise: Float[np.ndarray, " size"],
    confidence: float,
) -> Standing:
    """The nearest law and the ends of those that stand; `noise` is the seeds' standard deviation of each level, or 0.

    With no more sizes than numbers there is nothing to hold a law against, and the seeds' noise alone is the yardstick.
    """
    free = len(sizes) - NUMBERS
    shared, fitted = _shared(levels, sizes, noise**2, free)
    weights = 1 / (noise**2 + shared)
    least = float((weights * _distance(fitted, levels, sizes) ** 2).sum())
    reach = _quantile(confidence, free) ** 2 * max(1.0, least / max(free, 1))
    ends = [fitted[None]]
    for sign in (1, -1):  # what grows with the size falls with its inverse
        order = np.argsort(sizes**sign)
        laws = _laws(levels[order], (sizes**sign)[order], weights[order], least + reach)
        ends.append(laws * [sign, 1, 1])
    laws_at_ends = np.concatenate(ends)
    return Standing(fitted, laws_at_ends.min(0), laws_at_ends.max(0), shared)


def _shared(
    levels: Float[np.ndarray, " size"], sizes: Float[np.ndarray, " size"], own: Float[np.ndarray, " size"], free: int
) -> tuple[float, Float[np.ndarray, " 3"]]:
    """The variance tau^2 of an effect shared by the seeds of a cell, and the law that is nearest with it."""
    own = np.maximum(own, 1e-18)  # equal numbers still weigh alike

    def excess(shared: float) -> tuple[float, Float[np.ndarray, " 3"]]:
        weights = 1 / (own + shared)
        nearest = fit_law(levels, sizes, weights)
        return float((weights * _distance(nearest, levels, sizes) ** 2).sum()) - free, nearest

    beyond, fitted = excess(0.0)
    if free < 1 or beyond <= 0:
        return 0.0, fitted
    low, high = 1e-18, 4 * float(levels.var()) + 1e-12  # at the second a constant would do
    for _ in range(20):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if excess(middle)[0] > 0 else (low, middle)
    return high, excess(high)[1]


def _distance(
    fitted: Float[np.ndarray, " 3"], levels: Float[np.ndarray, " size"], sizes: Float[np.ndarray, " size"]
) -> Float[np.ndarray, " size"]:
    exponent, scale, floor = fitted
    return levels - np.log10(floor + scale * sizes**-exponent)


def _quantile(confidence: float, free: int) -> float:
    from scipy.stats import norm, t

    tail = (1 + confidence) / 2
    return float(t.ppf(tail, free)) if free > 0 else float(norm.ppf(tail))


def _laws(
    levels: Float[np.ndarray, " size"],
    sizes: Float[np.ndarray, " size"],
    weights: Float[np.ndarray, " size"],
    most: float,
) -> Float[np.ndarray, "ends 3"]:
    """The ends of the falling laws with Q <= most, by a grid drawn again around those that stand; none if none does."""
    box = np.array([np.log(EXPONENTS), FLOORS])
    ends = np.empty((0, 3))
    for _ in range(ZOOMS):
        steps = [np.linspace(low, high, count) for (low, high), count in zip(box, FINE, strict=True)]
        place = np.stack(np.meshgrid(*steps, indexing="ij"), -1).reshape(-1, 2)
        laws, stands = _evaluated(place, levels, sizes, weights, most)
        if not stands.any():
            return ends
        ends = np.concatenate([laws.min(0)[None], laws.max(0)[None]])
        apart = np.array([side[1] - side[0] for side in steps])
        inside = place[stands]
        box = np.stack([inside.min(0) - apart, inside.max(0) + apart], -1)
        box = np.clip(box, [[np.log(EXPONENTS[0])], [FLOORS[0]]], [[np.log(EXPONENTS[1])], [FLOORS[1]]])
    return ends


def _evaluated(
    place: Float[np.ndarray, "law 2"],
    levels: Float[np.ndarray, " size"],
    sizes: Float[np.ndarray, " size"],
    weights: Float[np.ndarray, " size"],
    most: float,
) -> tuple[Float[np.ndarray, "ends 3"], np.ndarray]:
    """Exponent, scale and floor of the laws at these places that stand, each scale at both of its ends."""
    logs = np.log(sizes)
    exponent = np.exp(place[:, :1])
    shape = np.logaddexp(-exponent * logs, place[:, 1:] - exponent * logs[-1]) / np.log(10.0)
    total = weights.sum()
    tall = ((levels - shape) * weights).sum(-1) / total  # log10 of the best scale
    spare = most - (weights * (levels - shape - tall[:, None]) ** 2).sum(-1)
    stands = spare >= 0
    half = np.sqrt(spare[stands] / total)
    exponent, tall, log_floor = exponent[stands, 0], tall[stands], place[stands, 1]
    scale = np.concatenate([10 ** (tall - half), 10 ** (tall + half)])
    floor = np.where(log_floor <= FLOORS[0] + 1e-6, 0.0, np.exp(log_floor - exponent * logs[-1]))
    return np.stack([np.tile(exponent, 2), scale, scale * np.tile(floor, 2)], -1), stands
