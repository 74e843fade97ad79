"""Variable projection: the power laws with a floor nearest to many curves at once, in logarithms."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

EXPONENTS = (0.005, 12.0)  # the range searched, of either sign
FLOORS = (-12.0, 24.0)  # of log(floor / fall) at the largest size; the first stands for no floor


def fit_law(
    levels: Float[np.ndarray, "*curve size"],
    sizes: Float[np.ndarray, " size"],
    weights: Float[np.ndarray, " size"] | None = None,
) -> Float[np.ndarray, "*curve 3"]:
    """The exponent, scale and floor of the law nearest to each curve of log10 levels; sizes in rising order.

    The exponent is negative where a straight line through the logarithms rises. `weights` count the squared distance
    at each size, by default alike.

    >>> fit_law(np.log10(0.01 + 3.0 * np.arange(1.0, 9.0) ** -2.0), np.arange(1.0, 9.0)).round(6).tolist()
    [2.0, 3.0, 0.01]
    """
    flat = levels.reshape(-1, len(sizes))
    normed = _normalised(weights, sizes)
    grows = fit_line(flat, sizes, normed)[:, 0] < 0
    fitted = np.empty((len(flat), 3))
    if not grows.all():
        fitted[~grows] = _falling(flat[~grows], sizes, normed)
    if grows.any():  # what grows with the size falls with its inverse
        fitted[grows] = _falling(flat[grows, ::-1], 1 / sizes[::-1], normed[::-1]) * [-1, 1, 1]
    return fitted.reshape(*levels.shape[:-1], 3)


def _falling(
    levels: Float[np.ndarray, "curve size"], sizes: Float[np.ndarray, " size"], weights: Float[np.ndarray, " size"]
) -> Float[np.ndarray, "curve 3"]:
    """The nearest laws with a positive exponent; sizes in rising order."""
    flat = np.log(10.0) * levels
    middle = float(np.exp(np.log(sizes).mean()))
    logs = np.log(sizes / middle)
    place = _refined(flat, logs, _coarse(flat, logs, weights), weights)
    exponent = np.exp(place[:, 0])
    tall = np.exp((flat - np.log(_shape(place, logs))) @ weights)
    floor = tall * np.exp(place[:, 1] - exponent * logs[-1])
    floor = np.where(place[:, 1] <= FLOORS[0] + 1e-6, 0.0, floor)
    return np.stack([exponent, tall * middle**exponent, floor], -1)


def fit_line(
    levels: Float[np.ndarray, "*curve size"],
    sizes: Float[np.ndarray, " size"],
    weights: Float[np.ndarray, " size"] | None = None,
) -> Float[np.ndarray, "*curve 3"]:
    """The same for the law without a floor, a straight line in logarithms.

    >>> fit_line(np.log10(3.0 * np.arange(1.0, 9.0) ** -2.0), np.arange(1.0, 9.0)).round(6).tolist()
    [2.0, 3.0, 0.0]
    """
    normed = _normalised(weights, sizes)
    logs = np.log10(sizes)
    exponent = -_centred(levels, normed) @ _centred(logs, normed) / (_centred(logs, normed) ** 2).sum()
    scale = 10 ** (levels @ normed + exponent * (logs @ normed))
    return np.stack([exponent, scale, np.zeros_like(scale)], -1)


def _shape(place: Float[np.ndarray, "curve 2"], logs: Float[np.ndarray, " size"]) -> Float[np.ndarray, "curve size"]:
    """size^(-exponent) + floor / scale, where exp(place[1]) is the floor against the fall at the largest size."""
    exponent = np.exp(place[:, :1])
    return np.exp(-exponent * logs) + np.exp(place[:, 1:] - exponent * logs[-1])


def _coarse(
    flat: Float[np.ndarray, "curve size"], logs: Float[np.ndarray, " size"], weights: Float[np.ndarray, " size"]
) -> Float[np.ndarray, "curve 2"]:
    """The best place on a grid: |z - g|^2 is |g|^2 - 2 z.g and a constant, one matrix product for all curves."""
    grid = np.stack(np.meshgrid(np.log(np.geomspace(*EXPONENTS, 36)), np.linspace(*FLOORS, 37)), -1).reshape(-1, 2)
    shape = _centred(np.log(_shape(grid, logs)), weights)
    return grid[((shape**2).sum(-1) - 2 * _centred(flat, weights) @ shape.T).argmin(-1)]


def _refined(
    flat: Float[np.ndarray, "curve size"],
    logs: Float[np.ndarray, " size"],
    place: Float[np.ndarray, "curve 2"],
    weights: Float[np.ndarray, " size"],
) -> Float[np.ndarray, "curve 2"]:
    """Levenberg-Marquardt on the projected distances, all curves at once, each with its own damping."""
    least, most = (np.array([np.log(EXPONENTS[i]), FLOORS[i]]) for i in (0, 1))
    away = _centred(flat - np.log(_shape(place, logs)), weights)
    damping = np.full(len(flat), 1e-2)
    for _ in range(24):
        moved = np.clip(place + _step(*_slope(place, logs, weights), away, damping), least, most)
        left = _centred(flat - np.log(_shape(moved, logs)), weights)
        better = (left**2).sum(-1) < (away**2).sum(-1)
        place, away = np.where(better[:, None], moved, place), np.where(better[:, None], left, away)
        damping = np.where(better, damping / 5, np.minimum(damping * 4, 1e6))
    return place


def _step(
    steeper: Float[np.ndarray, "curve size"],
    higher: Float[np.ndarray, "curve size"],
    away: Float[np.ndarray, "curve size"],
    damping: Float[np.ndarray, " curve"],
) -> Float[np.ndarray, "curve 2"]:
    """The solution of the damped normal equations, two by two; a flat direction is not moved in."""
    a, d = ((slope**2).sum(-1) * (1 + damping) + 1e-12 for slope in (steeper, higher))
    b = (steeper * higher).sum(-1)
    p, q = (steeper * away).sum(-1), (higher * away).sum(-1)
    return np.stack([d * p - b * q, a * q - b * p], -1) / (a * d - b * b)[:, None]


def _slope(
    place: Float[np.ndarray, "curve 2"], logs: Float[np.ndarray, " size"], weights: Float[np.ndarray, " size"]
) -> tuple[Float[np.ndarray, "curve size"], Float[np.ndarray, "curve size"]]:
    """The derivatives of the centred logarithm of the shape in both coordinates of the place."""
    exponent = np.exp(place[:, :1])
    fall, floor = np.exp(-exponent * logs), np.exp(place[:, 1:] - exponent * logs[-1])
    total = fall + floor
    steeper = -exponent * (logs * fall + logs[-1] * floor) / total
    return _centred(steeper, weights), _centred(floor / total, weights)


def _centred(
    values: Float[np.ndarray, "*curve size"], weights: Float[np.ndarray, " size"]
) -> Float[np.ndarray, "*curve size"]:
    """Distances from the weighted mean, times the root of the weights: their plain squares then sum up weighted."""
    return np.sqrt(len(weights) * weights) * (values - (values @ weights)[..., None])


def _normalised(
    weights: Float[np.ndarray, " size"] | None, sizes: Float[np.ndarray, " size"]
) -> Float[np.ndarray, " size"]:
    weights = np.ones(len(sizes)) if weights is None else weights
    return weights / weights.sum()
