"""Many sources, one number: a random-effects mean with an interval that holds for few sources, or no number at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, variance
from typing import Any

from headcount.sizing.evidence import EvidenceRow, EvidenceTable

LEAST_SOURCES = 3


@dataclass(frozen=True)
class SourceEffect:
    """What one source found of a kind of change, in percent of the loss for one step, with its standard error."""

    source: str
    value: float
    error: float
    rows: tuple[EvidenceRow, ...] = ()


@dataclass(frozen=True)
class PooledChange:
    """A kind of change over all its sources; `mean` is None where fewer than three have measured it.

    `interval` holds the mean over sources, `prediction` what a further source would find: sources differ by `tau`. The
    first goes with Student's t of k - 1, the second of k - 2 and at least 2: nine of ten planted sources or more.
    """

    change: str
    effects: tuple[SourceEffect, ...]
    rows: tuple[EvidenceRow, ...]
    mean: float | None = None
    interval: tuple[float, float] | None = None
    prediction: tuple[float, float] | None = None
    tau: float | None = None

    @property
    def sources(self) -> int:
        """How many sources enter the fit."""
        return len(self.effects)

    @property
    def contradicts(self) -> bool:
        """Whether sources lie on different sides of zero by more than twice their own errors."""
        signs = {math.copysign(1, e.value) for e in self.effects if abs(e.value) > 2 * e.error}
        return len(signs) > 1

    def as_row(self) -> dict[str, object]:
        return {
            "change": self.change,
            "sources": self.sources,
            "rows": len(self.rows),
            "percent per step": self.mean,
            "interval": self.interval,
            "prediction": self.prediction,
            "tau": self.tau,
            "contradiction": self.contradicts,
        }


@lru_cache(maxsize=512)
def pooled_change(table: EvidenceTable, change: str, without: str = "") -> PooledChange:
    """The kind of change over its sources, `without` one of them if named."""
    rows = table.of(change)
    effects = tuple(e for e in source_effects(table, rows) if e.source != without)
    if len(effects) < LEAST_SOURCES:
        return PooledChange(change, effects, rows)
    mean, error, tau = random_effects([e.value for e in effects], [e.error for e in effects])
    return PooledChange(
        change,
        effects,
        rows,
        mean,
        _interval(mean, error, len(effects) - 1),
        _interval(mean, math.hypot(error, tau), max(2, len(effects) - 2)),
        tau,
    )


def source_effects(table: EvidenceTable, rows: Sequence[EvidenceRow]) -> list[SourceEffect]:
    """One effect a source: the mean of its rows, whose error holds the noise of its runs and how far they disagree."""
    by_source: dict[str, list[EvidenceRow]] = {}
    for row in rows:
        if row.fits:
            by_source.setdefault(row.source, []).append(row)
    effects = []
    for source, own in by_source.items():
        values = [row.per_step for row in own if row.per_step is not None]
        noise = fmean((table.error(row) / row.steps) ** 2 for row in own) * _shared(own)
        spread = variance(values) / len(own) if len(values) > 1 else 0.0
        effects.append(SourceEffect(source, fmean(values), math.sqrt(max(noise, spread)), tuple(own)))
    return effects


def _shared(rows: Sequence[EvidenceRow]) -> float:
    """The variance of the mean of rows with variance 1: those against one and the same run share half of it.

    >>> from headcount.sizing.evidence import EvidenceRow
    >>> one = EvidenceRow("a", "c", "base", "x", "s", "paper", "quoted", size="4 M")
    >>> _shared([one]), _shared([one, one])
    (1.0, 0.75)
    """
    groups = Counter((row.before, row.size) for row in rows)
    return sum(count * (1 + (count - 1) / 2) for count in groups.values()) / len(rows) ** 2


def random_effects(values: Sequence[float], errors: Sequence[float]) -> tuple[float, float, float]:
    """The random-effects mean, Hartung and Knapp's standard error of it, and the spread tau between sources.

    tau^2 solves Paule and Mandel's equation sum w_i (y_i - m)^2 = k - 1 with w_i = 1 / (e_i^2 + tau^2); the error is
    sqrt(sum w_i (y_i - m)^2 / ((k - 1) sum w_i)), not below that of known errors, and goes with Student's t of k - 1.

    >>> mean, error, tau = random_effects([1.0, 2.0, 3.0], [0.1, 0.1, 0.1])
    >>> round(mean, 6), round(error, 4), round(tau, 3)
    (2.0, 0.5774, 0.995)
    """
    if len(values) != len(errors) or len(values) < 2:
        raise ValueError(f"{len(values)} values with {len(errors)} errors make no fit")
    if min(errors) <= 0:
        raise ValueError(f"errors must be above 0, got {min(errors):g}")
    tau = math.sqrt(_between(values, errors))
    weights = [1 / (e**2 + tau**2) for e in errors]
    mean = _mean(values, weights)
    squares = sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True)) / (len(values) - 1)
    return mean, math.sqrt(max(squares, 1.0) / sum(weights)), tau


def left_out(table: EvidenceTable) -> list[dict[str, Any]]:
    """Every source once left out: whether what the others predict for it holds it."""
    rows = []
    for change in table.changes:
        pooled = pooled_change(table, change)
        for effect in pooled.effects:
            rest = pooled_change(table, change, without=effect.source)
            if rest.prediction is not None:
                low, high = rest.prediction
                margin = 1.96 * effect.error  # its own noise
                inside = low - margin <= effect.value <= high + margin
                row = {"change": change, "source": effect.source, "value": effect.value}
                rows.append({**row, "low": low, "high": high, "inside": inside})
    return rows


def _between(values: Sequence[float], errors: Sequence[float]) -> float:
    """Paule and Mandel's tau^2, by bisection; 0 where the sources agree within their errors."""

    def excess(tau2: float) -> float:
        weights = [1 / (e**2 + tau2) for e in errors]
        mean = _mean(values, weights)
        return sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True)) - (len(values) - 1)

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, 1.0
    while excess(high) > 0:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)


def _interval(mean: float, error: float, free: int) -> tuple[float, float]:
    from scipy.stats import t

    half = float(t.ppf(0.975, free)) * error
    return mean - half, mean + half
