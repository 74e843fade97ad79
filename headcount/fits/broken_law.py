"""Does a curve break? One straight line in logarithms against two that meet, told apart by Akaike's criterion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from headcount.fits.settings import refuse_settings
from headcount.fits.verdict import Estimate


@dataclass(frozen=True)
class Transition:
    """The verdict on a break, the place of the break with its interval, and the slopes on both sides of it.

    `advantage` is how much smaller the criterion of two pieces is (negative: larger); `place` is None where one piece
    is as good.
    """

    verdict: Literal["break", "no break"]
    place: Estimate | None
    slopes: tuple[float, float]
    advantage: float
    points: int

    def __str__(self) -> str:
        if self.place is None:
            return f"no break: one piece is as good (slope {self.slopes[0]:.3g}, advantage {self.advantage:.2g})"
        return f"break at {self.place}: slope {self.slopes[0]:.3g} before, {self.slopes[1]:.3g} after"

    def as_row(self) -> dict[str, object]:
        """The verdict as one flat machine-readable row."""
        ends = (None,) * 3 if self.place is None else (self.place.value, self.place.low, self.place.high)
        named = dict(zip(("place", "place_low", "place_high"), ends, strict=True))
        return {"verdict": self.verdict, **named, "slopes": list(self.slopes), "advantage": self.advantage}


def transition(
    sizes: Sequence[float] | np.ndarray,
    errors: Sequence[float] | np.ndarray,
    *,
    confidence: float = 0.95,
    resamples: int = 400,
    seed: int = 0,
) -> Transition:
    """One line or two that meet, through log errors against log sizes; several errors of one size are several points.

    The break is searched on a grid between the second and the last but one size. Of both fits the corrected Akaike
    criterion n log(rest / n) + 2 p + 2 p (p + 1) / (n - p - 1) is taken, p counting the variance: 3 and 5 numbers. Two
    pieces must beat one by 4, or the verdict is "no break". The interval is of a bootstrap over distances from the fit.

    >>> x = np.geomspace(1, 1000, 16)
    >>> print(transition(x, 2 * x**-0.5))
    no break: one piece is as good (slope -0.5, advantage ...)
    >>> broken = transition(x, np.where(x < 30, 1.0, x / 30) ** -2.0 * np.exp(0.01 * np.cos(9 * x)))
    >>> broken.verdict, 27 < broken.place.value < 33
    ('break', True)
    """
    refuse_settings(confidence, resamples)
    x, y = _checked(np.asarray(sizes, float), np.asarray(errors, float))
    inner = np.unique(x)[1:-1]
    grid = np.linspace(inner[0], inner[-1], 61)
    line = _fit(x, y[None], None)
    best = _best(x, y[None], grid)
    n, least = len(y), 1e-26 * max(1.0, float((y**2).sum()))  # below this a distance is rounding
    advantage = _criterion(n, max(line[1][0], least), 3) - _criterion(n, max(best[2][0], least), 5)
    if advantage < 4:
        return Transition("no break", None, (line[0][0, 1], line[0][0, 1]), advantage, n)
    middle, coefficients = best[0][0], best[1][0]
    fitted = _design(x, middle) @ coefficients
    drawn = np.random.default_rng(seed).choice(y - fitted, (resamples, n)) * math.sqrt(n / (n - 4))
    places = np.append(_best(x, fitted + drawn, grid)[0], middle)
    low, high = np.quantile(places, [(1 - confidence) / 2, (1 + confidence) / 2])
    place = Estimate(*(float(math.exp(v)) for v in (middle, min(low, middle), max(high, middle))))
    before, change = float(coefficients[1]), float(coefficients[2])
    return Transition("break", place, (before, before + change), advantage, n)


def _design(x: Float[np.ndarray, " n"], at: float | None) -> Float[np.ndarray, "n p"]:
    columns = [np.ones_like(x), x] + ([] if at is None else [np.maximum(x - at, 0.0)])
    return np.stack(columns, axis=1)


def _fit(x: Float[np.ndarray, " n"], y: Float[np.ndarray, "r n"], at: float | None) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and sums of squares of the least-squares fits to many curves at once."""
    design = _design(x, at)
    coefficients = y @ np.linalg.pinv(design).T
    return coefficients, ((y - coefficients @ design.T) ** 2).sum(-1)


def _best(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, "r n"], grid: Float[np.ndarray, " g"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every curve the best place on the grid, its coefficients and its sum of squares."""
    fits = [_fit(x, y, float(at)) for at in grid]
    rest = np.stack([r for _, r in fits])
    chosen, curves = rest.argmin(0), np.arange(len(y))
    return grid[chosen], np.stack([c for c, _ in fits])[chosen, curves], rest[chosen, curves]


def _criterion(n: int, rest: float, numbers: int) -> float:
    return n * math.log(rest / n) + 2 * numbers + 2 * numbers * (numbers + 1) / (n - numbers - 1)


def _checked(sizes: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if sizes.shape != errors.shape or sizes.ndim != 1:
        raise ValueError(f"one error for each size is needed, got {errors.shape} errors and {sizes.shape} sizes")
    if not (np.isfinite(sizes).all() and np.isfinite(errors).all() and (sizes > 0).all() and (errors > 0).all()):
        raise ValueError("sizes and errors must be finite and above 0, for their logarithms are fitted")
    if len(np.unique(sizes)) < 5 or len(sizes) < 7:
        raise ValueError(
            f"a break needs 7 points at 5 sizes or more, got {len(sizes)} points at {len(np.unique(sizes))} sizes"
        )
    return np.log(sizes), np.log(errors)
