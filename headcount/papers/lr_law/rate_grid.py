"""Which sizes, horizons and rates to train for a law: the grid that a budget can pay and that says most."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.papers.lr_law.published import PUBLISHED


@dataclass(frozen=True)
class RateGrid:
    """A grid of runs: sizes, horizons, for every cell its rates, and seeds.

    `cost` is the sum of parameters * steps over the runs, `whole` the same for all that was asked about;
    `variance` is that of the log of the rate at the largest size and horizon, in units of one cell's.
    """

    sizes: tuple[int, ...]
    horizons: tuple[int, ...]
    rates: dict[tuple[int, int], tuple[float, ...]]
    seeds: int
    cost: float
    whole: float
    variance: float

    @property
    def runs(self) -> int:
        """Networks to train."""
        return self.seeds * sum(len(rates) for rates in self.rates.values())

    @property
    def sentence(self) -> str:
        """The proposal in words."""
        return (
            f"train {len(self.sizes)} sizes x {len(self.horizons)} horizons, {self.runs} runs, at {self.cost:.3g} "
            f"parameter-steps: {self.cost / self.whole:.1%} of the whole grid"
        )


def plan(
    sizes: Sequence[int],
    horizons: Sequence[int],
    budget: float,
    *,
    anchor: tuple[float, float, float] | None = None,
    seeds: int = 3,
    around: float = 3e-3,
) -> RateGrid:
    """The grid within `budget` parameter-steps that says most about the best rate at the largest size and horizon.

    Of all products of at least two sizes and two horizons that the budget pays, the one with the smallest variance
    x^T (X^T X)^-1 x of the extrapolated log rate. With an `anchor` (parameters, steps, best rate) every cell has five
    rates, a factor 2 apart, around what the published exponents say there; without, nine around `around`.
    Source: Zhou et al. 2026 (learning rate), Section 3, n^3 runs become n C_D C_eta.
    Departs: the published exponents place the rates only; what is fitted does not know them.

    >>> grid = plan([100, 200, 400], [50, 100, 200], budget=2e6, anchor=(100, 50, 0.01))
    >>> grid.sizes, grid.horizons, grid.runs
    ((100, 400), (50, 200), 60)
    """
    small, short = sorted(set(sizes)), sorted(set(horizons))
    for name, values in (("sizes", small), ("horizons", short)):
        if len(values) < 2 or values[0] < 1:
            raise ValueError(f"a plan needs two positive {name}, got {', '.join(map(str, values)) or 'none'}")
    count = 5 if anchor else 9
    options = [
        (_variance(ns, ds, small[-1], short[-1]), seeds * count * sum(ns) * sum(ds), ns, ds)
        for ns in _subsets(small)
        for ds in _subsets(short)
    ]
    paid = [option for option in options if option[1] <= budget]
    if not paid:
        least = min(cost for _, cost, _, _ in options)
        raise ValueError(f"a budget of {budget:.3g} parameter-steps pays no grid; the cheapest costs {least:.3g}")
    variance, cost, ns, ds = min(paid, key=lambda option: (round(option[0], 12), option[1]))
    rates = {(n, d): _rates(n, d, anchor, around, count) for n in ns for d in ds}
    return RateGrid(ns, ds, rates, seeds, cost, seeds * count * sum(small) * sum(short), variance)


def _subsets(values: Sequence[int]) -> list[tuple[int, ...]]:
    return [c for k in range(2, len(values) + 1) for c in itertools.combinations(values, k)]


def _variance(sizes: tuple[int, ...], horizons: tuple[int, ...], size: int, steps: int) -> float:
    """Of the fitted log rate at (size, steps); the axes of a product are orthogonal, so their leverages add."""
    cells = len(sizes) * len(horizons)
    return (1 + _leverage(sizes, size) + _leverage(horizons, steps)) / cells


def _leverage(values: tuple[int, ...], target: int) -> float:
    logs = np.log(values)
    return float((math.log(target) - logs.mean()) ** 2 / logs.var())


def _rates(
    parameters: int, steps: int, anchor: tuple[float, float, float] | None, around: float, count: int
) -> tuple[float, ...]:
    middle = around if anchor is None else PUBLISHED.rate(parameters=parameters, steps=steps, anchor=anchor)
    return tuple(middle * 2.0 ** (i - count // 2) for i in range(count))
