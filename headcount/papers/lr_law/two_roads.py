"""The law of best rates in parameters and steps, by two roads: trained horizons, and extrapolated ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from headcount.fits import Estimate, Verdict, judge
from headcount.fits.projection import fit_law
from headcount.fits.settings import refuse_settings
from headcount.papers.lr_law.parabola import optimum, student, vertex
from headcount.papers.lr_law.published import PUBLISHED
from headcount.papers.lr_law.rate_losses import RateLosses, losses_of, widths_of
from headcount.results import Study
from headcount.sources import Source, implements

Road = Literal["trained", "extrapolated"]
LIKELY = 0.6  # of F: effects that a size shares are more likely than not already far below what proves them
COLLINEAR = 0.98  # a correlation of log parameters and log steps beyond which the two exponents cannot be told apart


@dataclass(frozen=True)
class RateLaw:
    """rate = anchor rate * (parameters / anchor parameters)^a * (steps / anchor steps)^b.

    The anchor is the middle of the cells, where the law is known best. `biased` marks the road of extrapolated losses:
    its exponent in steps is too flat however good its R^2, so it carries no verdict.
    """

    road: Road
    parameters: Estimate
    steps: Estimate
    anchor: tuple[float, float, Estimate]
    cells: tuple[tuple[int, int, float], ...]
    r2: float
    confidence: float
    seeds: int
    runs: int
    diverged: int

    def __call__(self, *, parameters: float, steps: float) -> float:
        """The best rate that the law gives at these sizes."""
        size, horizon, rate = self.anchor
        return rate.value * (parameters / size) ** self.parameters.value * (steps / horizon) ** self.steps.value

    def __str__(self) -> str:
        size, horizon, rate = self.anchor
        a, b = self.parameters.value, self.steps.value
        return f"lr = {rate.value:.3g} (parameters/{size:.0f})^{a:.3g} (steps/{horizon:.0f})^{b:.3g}"

    @property
    def biased(self) -> bool:
        """Whether the exponents are known to miss the true ones."""
        return self.road == "extrapolated"

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """What the intervals say about the published exponents; nothing where the road is biased."""
        if self.biased:
            return {}
        pairs = {"parameters": (PUBLISHED.parameters, self.parameters), "steps": (PUBLISHED.steps, self.steps)}
        return {name: judge(claimed, exponent.low, exponent.high) for name, (claimed, exponent) in pairs.items()}

    def as_row(self) -> dict[str, object]:
        """The law as one flat machine-readable row."""
        size, horizon, rate = self.anchor
        numbers = {
            f"{name}{end}": getattr(estimate, end.lstrip("_") or "value")
            for name, estimate in (("parameters", self.parameters), ("steps", self.steps), ("anchor_rate", rate))
            for end in ("", "_low", "_high")
        }
        verdicts = {f"{name}_verdict": v.outcome for name, v in self.verdicts.items()}
        counts = {"cells": len(self.cells), "seeds": self.seeds, "runs": self.runs, "diverged": self.diverged}
        anchor = {"anchor_parameters": size, "anchor_steps": horizon}
        return {"road": self.road, "biased": self.biased, **numbers, **anchor, "r2": self.r2, **counts, **verdicts}


@implements(
    Source("zhou2026lr", "Equation 6"),
    test="tests/test_lr_law.py::test_the_exponents_of_an_exact_law_are_recovered",
    status="measured",
)
def rate_law(study: Study, *, confidence: float = 0.95, resamples: int = 500, seed: int = 0) -> RateLaw:
    """The exponents of the best rate in parameters and steps, from a parabola at every trained size and horizon.

    log rate = c + a log parameters + b log steps by least squares over the cells. Intervals: seeds drawn again inside
    every cell, and on top of them, over cells, the distances from the law as far as they exceed what seeds explain;
    the spread is widened to Student's with cells - 3 degrees of freedom. Where all cells of a size, or a horizon, lie
    off the law together, its mean is one observation, and sizes (horizons) - 2 are the degrees of freedom.
    Source: Zhou et al. 2026 (learning rate), Equation 6.
    Departs: the paper extrapolates the loss at a fixed rate in the horizon first; see `extrapolated_law`.

    >>> rows = tuple({"parameters": n, "steps": d, "lr": 0.01 * 2.0**i, "seed": 0,
    ...               "nmse": 0.01 * math.exp(0.2 * (math.log(0.01 * 2.0**i / (n**-0.5 * d**-0.25))) ** 2)}
    ...              for n in (100, 400, 900) for d in (50, 200) for i in range(-2, 5))
    >>> print(rate_law(Study(rows)))
    lr = 0.0174 (parameters/330)^-0.5 (steps/100)^-0.25
    """
    refuse_settings(confidence, resamples)
    cells = losses_of(study)
    _refuse_design([(c.parameters, c.steps) for c in cells])
    generator = np.random.default_rng(seed)
    places, drawn = _optima(cells, resamples, generator)
    return _law("trained", cells, [(c.parameters, c.steps) for c in cells], places, drawn, confidence, generator)


def extrapolated_law(
    study: Study,
    *,
    beyond: Sequence[float] = (2.0, 4.0),
    confidence: float = 0.95,
    resamples: int = 100,
    seed: int = 0,
) -> RateLaw:
    """The same exponents by the paper's road: L(D) = L_0 + A D^-gamma at every rate, the parabola at longer horizons.

    Flagged as biased. If the loss is a parabola around m(D) = m_0 - b log D, then at a fixed rate
    L(D) = L_min(D) + C (log rate - m_0 + b log D)^2 is no power law and in the end rises for a rate that is too large:
    the extrapolated optimum moves too little. R^2 does not show it.
    Source: Zhou et al. 2026 (learning rate), Equation 4.
    """
    refuse_settings(confidence, resamples)
    cells = losses_of(study)
    _refuse_design([(c.parameters, c.steps) for c in cells])
    sizes = sorted({c.parameters for c in cells})
    horizons = sorted({c.steps for c in cells})
    if len(horizons) < 3:
        raise ValueError(f"extrapolating needs 3 horizons, got {', '.join(map(str, horizons))}: train another")
    further = [round(max(horizons) * factor) for factor in beyond]
    generator = np.random.default_rng(seed)
    places, drawn = [], []
    for size in sizes:
        logs, trained, again = _curves([c for c in cells if c.parameters == size], resamples, generator)
        curves = np.concatenate([trained[None], again])
        ahead = _ahead(curves, np.array(horizons, dtype=float), np.array(further, dtype=float))
        optima = np.stack([_enclosed(logs, ahead[..., i], size, further[i]) for i in range(len(further))], -1)
        places.append(optima[0])
        drawn.append(optima[1:])
    pairs = [(size, steps) for size in sizes for steps in further]
    return _law("extrapolated", cells, pairs, np.concatenate(places), np.concatenate(drawn, 1), confidence, generator)


def width_slope(study: Study, *, confidence: float = 0.95, resamples: int = 500, seed: int = 0) -> Estimate:
    """The exponent of the best rate in the width at one horizon: near 0 where one rate fits all widths.

    Least squares of log rate in log width, its interval made as that of `rate_law`.
    """
    refuse_settings(confidence, resamples)
    cells = losses_of(study)
    widths = widths_of(study, cells)
    logs = np.log(widths)
    if len(set(widths)) < 3:
        raise ValueError(f"a slope with an interval needs 3 widths, got {', '.join(map(str, widths))}")
    generator = np.random.default_rng(seed)
    places, drawn = _optima(cells, resamples, generator)
    design = np.column_stack([np.ones(len(logs)), logs - logs.mean()])
    fitted, away = _line(design, places, drawn, _seeded(cells), confidence, generator)
    return Estimate(float(fitted[1]), float(fitted[1] - away[1]), float(fitted[1] + away[1]))


def _seeded(cells: Sequence[RateLosses]) -> bool:
    """Whether every rate of every cell has seeds to draw from."""
    return all(np.isfinite(cell.nmse).sum(1).min() >= 2 for cell in cells)


def _line(
    design: Float[np.ndarray, "cell unknown"],
    places: Float[np.ndarray, " cell"],
    drawn: Float[np.ndarray, "r cell"],
    seeded: bool,
    confidence: float,
    generator: np.random.Generator,
) -> tuple[Float[np.ndarray, " unknown"], Float[np.ndarray, " unknown"]]:
    """Least squares over the cells and half the width of each interval.

    A draw is the law, what seeds drawn again move, and distances from the law as far as they exceed the seeds' share.
    """
    solve = np.linalg.pinv(design)
    fitted = solve @ places
    gaps = places - design @ fitted
    freedom = len(places) - design.shape[1]
    spread = float((gaps**2).sum() / freedom)
    within = float(drawn.var(0).mean()) if seeded else 0.0
    fraction = math.sqrt(max(0.0, spread - within) / spread) if spread > 0 else 0.0
    between = fraction * math.sqrt(len(places) / freedom) * generator.choice(gaps, drawn.shape)
    again = (design @ fitted + (drawn - places if seeded else 0.0) + between) @ solve.T
    return fitted, student(freedom, confidence) * np.sqrt(((again - fitted) ** 2).mean(0))


def _shared(
    logs: Float[np.ndarray, "cell axis"], gaps: Float[np.ndarray, " cell"], axis: int, confidence: float
) -> float:
    """Half the interval of one exponent where all cells of a size (or horizon) share a distance from the law.

    Their means then count as one observation each: sizes - 2 degrees of freedom. 0 where the distances inside a size
    are as large as those between sizes.
    """
    from scipy import stats

    names, group, counts = np.unique(logs[:, axis], return_inverse=True, return_counts=True)
    means = np.bincount(group, gaps) / counts
    inside, left, few = float(((gaps - means[group]) ** 2).sum()), len(gaps) - len(names) - 1, len(names) - 2
    if few < 1 or left < 1:
        return 0.0
    between = float((counts * means**2).sum()) / few
    if between <= stats.f.ppf(LIKELY, few, left) * inside / left or between == 0:
        return 0.0
    spread = float((means**2).sum()) / few
    return student(few, confidence) * math.sqrt(spread / float(((names - names.mean()) ** 2).sum()))


def _optima(
    cells: Sequence[RateLosses], resamples: int, generator: np.random.Generator
) -> tuple[Float[np.ndarray, " cell"], Float[np.ndarray, "r cell"]]:
    optima = [optimum(cell, resamples, generator) for cell in cells]
    places = np.array([place[0] for place, _, _, _ in optima])
    drawn = np.stack([place[0] + wider * (again[:, 0] - place[0]) for place, _, again, wider in optima], 1)
    return places, drawn


def _law(
    method: Road,
    cells: Sequence[RateLosses],
    pairs: Sequence[tuple[int, int]],
    places: Float[np.ndarray, " cell"],
    drawn: Float[np.ndarray, "r cell"],
    confidence: float,
    generator: np.random.Generator,
) -> RateLaw:
    """Least squares over the cells, and the same again for every draw."""
    logs = np.log(np.array(pairs, dtype=float))
    middle = logs.mean(0)
    design = np.column_stack([np.ones(len(pairs)), logs - middle])
    fitted, away = _line(design, places, drawn, _seeded(cells), confidence, generator)
    gaps = places - design @ fitted
    for axis in (0, 1):
        away[axis + 1] = max(away[axis + 1], _shared(logs, gaps, axis, confidence))
    low, high = fitted - away, fitted + away
    a, b = (Estimate(*(float(v[i]) for v in (fitted, low, high))) for i in (1, 2))
    rate = Estimate(*(float(math.exp(v[0])) for v in (fitted, low, high)))
    total = float(((places - places.mean()) ** 2).sum())
    r2 = 1 - float((gaps**2).sum()) / total if total > 0 else 1.0
    anchor = (float(math.exp(middle[0])), float(math.exp(middle[1])), rate)
    points = tuple((size, steps, float(math.exp(p))) for (size, steps), p in zip(pairs, places, strict=True))
    counts = [np.isfinite(c.nmse).sum(1) for c in cells]
    runs, lost = int(sum(c.sum() for c in counts)), sum(sum(c.diverged) for c in cells)
    return RateLaw(method, a, b, anchor, points, r2, confidence, int(min(c.min() for c in counts)), runs, lost)


def _curves(
    cells: Sequence[RateLosses], resamples: int, generator: np.random.Generator
) -> tuple[Float[np.ndarray, " rate"], Float[np.ndarray, "rate horizon"], Float[np.ndarray, "r rate horizon"]]:
    """log10 levels of one size by rate and horizon, and of seeds drawn again; every horizon needs the same rates."""
    if len({cell.rates for cell in cells}) > 1:
        raise ValueError(f"extrapolating needs the same rates at every horizon of {cells[0].parameters} parameters")
    levels = np.stack([cell.levels for cell in cells], 1)
    drawn = []
    for cell in cells:
        picks = generator.integers(0, cell.nmse.shape[1], (resamples, *cell.nmse.shape))
        chosen = np.take_along_axis(cell.nmse[None], picks, axis=2)
        drawn.append(np.log(np.nanmean(np.where(np.isnan(chosen), np.nanmean(cell.nmse, 1)[:, None], chosen), axis=2)))
    return np.log(cells[0].rates), levels / math.log(10), np.stack(drawn, -1) / math.log(10)


def _ahead(
    curves: Float[np.ndarray, "r rate horizon"], horizons: Float[np.ndarray, " horizon"], further: np.ndarray
) -> Float[np.ndarray, "r rate further"]:
    """log levels that the law of every rate gives at further horizons."""
    law = fit_law(curves, horizons)
    return np.log(law[..., 2:3] + law[..., 1:2] * further ** -law[..., 0:1])


def _enclosed(
    logs: Float[np.ndarray, " rate"], levels: Float[np.ndarray, "r rate"], size: int, steps: int
) -> Float[np.ndarray, " r"]:
    """The optimum of every curve by the five rates around the smallest level of the first, kept inside the rates."""
    first = max(0, min(int(levels[0].argmin()) - 2, len(logs) - 5))
    near = slice(first, first + 5)
    place, _, bend = np.moveaxis(vertex(logs[near], levels[:, near]), -1, 0)
    if not (bend[0] > 0 and logs[0] <= place[0] <= logs[-1]):
        end = "upwards" if levels[0, -1] < levels[0, 0] else "downwards"
        raise ValueError(f"extrapolated to {steps} steps, {size} parameters have no best rate: extend the rates {end}")
    place = np.where(bend > 0, place, logs[levels.argmin(-1)])
    return np.clip(place, logs[0], logs[-1])


def _refuse_design(pairs: Sequence[tuple[int, int]]) -> None:
    """Refuse cells from which two exponents cannot be read."""
    for name, values in (("parameters", {n for n, _ in pairs}), ("steps", {d for _, d in pairs})):
        if len(values) < 2:
            only = next(iter(values))
            raise ValueError(f"a law in {name} needs two values of it, got {only} alone: train {2 * only} as well")
    logs = np.log(np.array(pairs, dtype=float))
    together = abs(float(np.corrcoef(logs.T)[0, 1]))
    if together > COLLINEAR:
        raise ValueError(
            f"steps grow with parameters in every cell (correlation {together:.3f} of their logarithms), so the two "
            "exponents cannot be told apart: train one size at two horizons"
        )
    if len(pairs) < 4:
        raise ValueError(f"a law with three unknowns and an interval needs 4 cells, got {len(pairs)}: train another")
