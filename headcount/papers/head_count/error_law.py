"""The law fitted to text retrieval: Err(h, T) = c T^b exp(a h / T^d), by least absolute deviation of its logarithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog, minimize_scalar

from headcount.sources import Source, implements


@dataclass(frozen=True)
class ErrorLaw:
    """Err(h, T) = c T^power exp(rate h / T^delta); `gap` is the mean absolute distance of log Err from it."""

    log_c: float
    power: float
    rate: float
    delta: float
    gap: float
    cells: int

    def __call__(self, heads: float, length: float) -> float:
        return float(np.exp(self.log_c + self.power * np.log(length) + self.rate * heads / length**self.delta))

    def __str__(self) -> str:
        return (
            f"Err = {np.exp(self.log_c):.2g} T^{self.power:.2g} exp({self.rate:.3g} h / T^{self.delta:.3g}), "
            f"mean |log gap| {self.gap:.3f} over {self.cells} cells"
        )


@implements(
    Source("yu2025heads", "Figure 2b"),
    test="tests/test_head_count_laws.py::test_the_published_fit_follows_from_table_6",
    status="measured",
)
def fit_error_law(errors: Mapping[tuple[int, int], float], delta: float | None = None) -> ErrorLaw:
    """The law nearest to `errors[heads, length]` in mean absolute log distance; delta free in [0, 1.5] or given.

    With delta fixed the logarithm is linear in (log c, b, a), so the fit is a linear program; delta is then searched
    on a grid and refined. Cells without error have no logarithm and are left out, as the paper leaves out h >= 12.
    Source: Yu et al. 2025 (heads), Figure 2b.

    >>> cells = {(h, T): 2 * T**0.5 * np.exp(-1.5 * h / T**0.25) for h in (2, 4, 6, 8) for T in (8, 16, 32)}
    >>> law = fit_error_law(cells)
    >>> round(law.power, 3), round(law.rate, 3), round(law.delta, 3)
    (0.5, -1.5, 0.25)
    """
    points = [(h, length, e) for (h, length), e in errors.items() if e > 0]
    if len(points) < 5:
        raise ValueError(f"the law has four numbers, so it needs at least five cells with errors, got {len(points)}")
    heads, lengths, values = np.array(points, dtype=float).T
    if delta is not None:
        return _at(delta, heads, lengths, np.log(values))
    grid = np.linspace(0, 1.5, 31)
    best = min(grid, key=lambda d: _at(d, heads, lengths, np.log(values)).gap)
    solution = minimize_scalar(
        lambda d: _at(d, heads, lengths, np.log(values)).gap,
        bounds=(max(0, best - 0.05), best + 0.05),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return _at(float(solution.x), heads, lengths, np.log(values))


def fixed_law(errors: Mapping[tuple[int, int], float], rate: float, delta: float) -> ErrorLaw:
    """The same with the published rate and delta, c and b fitted: how well their numbers describe these cells."""
    heads, lengths, values = np.array([(h, t, e) for (h, t), e in errors.items() if e > 0], dtype=float).T
    rest = np.log(values) - rate * heads / lengths**delta
    log_c, power = _least_deviation(np.stack([np.ones_like(lengths), np.log(lengths)], axis=1), rest)
    gap = np.abs(rest - log_c - power * np.log(lengths)).mean()
    return ErrorLaw(log_c, power, rate, delta, float(gap), len(values))


def _at(delta: float, heads: np.ndarray, lengths: np.ndarray, logs: np.ndarray) -> ErrorLaw:
    design = np.stack([np.ones_like(lengths), np.log(lengths), heads / lengths**delta], axis=1)
    log_c, power, rate = _least_deviation(design, logs)
    gap = np.abs(design @ [log_c, power, rate] - logs).mean()
    return ErrorLaw(log_c, power, rate, float(delta), float(gap), len(logs))


def _least_deviation(design: Float[np.ndarray, "cells numbers"], target: Float[np.ndarray, " cells"]) -> list[float]:
    """min sum_i r_i with -r <= X b - y <= r."""
    count, numbers = design.shape
    sides = np.block([[design, -np.eye(count)], [-design, -np.eye(count)]])
    cost = np.concatenate([np.zeros(numbers), np.ones(count)])
    bounds = [(None, None)] * numbers + [(0, None)] * count
    solution = linprog(cost, A_ub=sides, b_ub=np.concatenate([target, -target]), bounds=bounds, method="highs")
    return [float(v) for v in solution.x[:numbers]]
