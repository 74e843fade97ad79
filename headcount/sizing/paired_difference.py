"""How far two shapes lie apart when every seed has trained both: differences seed by seed, each at its best rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from headcount.fits.student import half_width

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class PairedDifference:
    """The loss of `shape` less that of `base`, in percent of the base's, over seeds that trained both.

    >>> one = PairedDifference("4x64", "8x32", (1.0, 1.2, 0.8), 1e-3, 1e-3)
    >>> round(one.mean, 3), round(one.deviation, 3), [round(end, 2) for end in one.interval()]
    (1.0, 0.2, [0.5, 1.5])
    """

    shape: str
    base: str
    percents: tuple[float, ...]
    rate: float
    base_rate: float
    edge: bool = False

    @property
    def mean(self) -> float:
        return fmean(self.percents)

    @property
    def deviation(self) -> float:
        """The standard deviation of one seed's difference; NaN of a single seed."""
        return stdev(self.percents) if len(self.percents) > 1 else math.nan

    def interval(self, confidence: float = 0.95, comparisons: int = 1) -> tuple[float, float]:
        """Student's interval of the mean; with several `comparisons` at once, Bonferroni's."""
        half = half_width(self.deviation, len(self.percents), 1 - (1 - confidence) / comparisons)
        return self.mean - half, self.mean + half


def best_rates(rows: Rows, measure: str = "loss") -> dict[str, float]:
    """The rate of smallest mean loss over seeds for each shape; a rate at which a seed diverged is none.

    >>> rows = [{"shape": "a", "rate": r, "seed": s, "loss": r + s} for r in (0.1, 0.2) for s in (0, 1)]
    >>> best_rates(rows)
    {'a': 0.1}
    """
    cells: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        loss = row.get(measure)
        cells.setdefault(row["shape"], {}).setdefault(row["rate"], []).append(math.inf if loss is None else loss)
    return {shape: min(rates, key=lambda r: fmean(rates[r])) for shape, rates in cells.items()}


def paired_differences(rows: Rows, base: str, measure: str = "loss") -> list[PairedDifference]:
    """Every other shape against `base`, each at its own best rate; `edge` where that rate is an end of those tried."""
    chosen = best_rates(rows, measure)
    if base not in chosen:
        raise ValueError(f"no rows of the base {base!r}; there are {', '.join(chosen)}")
    losses = {
        shape: {r["seed"]: r[measure] for r in rows if r["shape"] == shape and r["rate"] == rate and r.get(measure)}
        for shape, rate in chosen.items()
    }
    differences = []
    for shape, rate in chosen.items():
        tried = sorted({r["rate"] for r in rows if r["shape"] == shape})
        both = sorted(losses[shape].keys() & losses[base].keys())
        percents = tuple(100 * math.log(losses[shape][s] / losses[base][s]) for s in both)
        if shape != base and percents:
            edge = len(tried) > 1 and rate in (tried[0], tried[-1])
            differences.append(PairedDifference(shape, base, percents, rate, chosen[base], edge))
    return differences


def pooled_deviation(differences: Sequence[PairedDifference]) -> tuple[float, int]:
    """The standard deviation of one seed's paired difference over all pairs together, and its degrees of freedom.

    The pairs share their base, so that the degrees of freedom are a little fewer than counted.
    """
    free = sum(len(d.percents) - 1 for d in differences)
    if free < 1:
        raise ValueError("one seed shows no noise: at least two seeds must have trained both shapes")
    total = sum(d.deviation**2 * (len(d.percents) - 1) for d in differences if len(d.percents) > 1)
    return math.sqrt(total / free), free
