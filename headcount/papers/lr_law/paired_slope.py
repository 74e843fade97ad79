"""The exponent of the best rate in the width where all widths and rates share their seeds: an interval over seeds."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from headcount.fits import Estimate
from headcount.fits.settings import refuse_settings
from headcount.papers.lr_law.parabola import optimum, student, vertex
from headcount.papers.lr_law.rate_losses import RateLosses, losses_of, widths_of
from headcount.results import Study
from headcount.results.gathering import grouped


def paired_width_slope(study: Study, *, confidence: float = 0.95) -> Estimate:
    """Least squares of log best rate in log width, its interval by leaving out one seed at a time.

    A seed has the same samples, noise and order of batches at every rate and width, so what it does to the curves it
    does to all of them, and most of it drops out of the slope; `width_slope`, which draws seeds anew at each rate, does
    not know that. Every cell keeps the rates that its parabola rests on with all seeds. Student's interval with
    seeds - 1 degrees of freedom; the widths are taken as they are, not as a sample of widths.

    >>> rows = tuple({"parameters": w * w, "width": w, "steps": 50, "lr": 0.01 * 2.0**i, "seed": s,
    ...               "nmse": (1 + s) * math.exp(0.2 * (i * math.log(2) + 0.5 * math.log(w / 16)) ** 2) / 99}
    ...              for w in (8, 16, 32) for i in range(-3, 4) for s in (0, 1, 2))
    >>> print(paired_width_slope(Study(rows)))
    -0.5 [-0.5, -0.5]
    """
    refuse_settings(confidence, 2)
    seeds = _shared_seeds(study)
    cells = losses_of(Study(tuple(sorted(study.rows, key=lambda row: row["seed"]))))
    widths = widths_of(study, cells)
    if len(set(widths)) < 2:
        raise ValueError(f"a slope in the width needs 2 widths, got {', '.join(map(str, set(widths)))} alone")
    logs = np.log(widths)
    pull = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    all_seeds, one_out = (np.stack(part) for part in zip(*map(_places, cells), strict=True))
    slope, again = float(pull @ all_seeds), pull @ one_out
    spread = math.sqrt((seeds - 1) / seeds * float(((again - again.mean()) ** 2).sum()))
    away = student(seeds - 1, confidence) * spread
    return Estimate(slope, slope - away, slope + away)


def _places(cell: RateLosses) -> tuple[float, Float[np.ndarray, " seed"]]:
    """log of the best rate, with all seeds and without each of them."""
    place, used, _, _ = optimum(cell, 2, np.random.default_rng(0))
    losses, logs = cell.nmse[used], np.log(cell.rates)[used]
    levels = np.log((losses.sum(1, keepdims=True) - losses) / (losses.shape[1] - 1)).T
    again = vertex(logs, levels)
    inside = np.clip(again[:, 0], 2 * logs[0] - logs[-1], 2 * logs[-1] - logs[0])
    return float(place[0]), np.where(again[:, 2] > 0, inside, logs[levels.argmin(-1)])


def _shared_seeds(study: Study) -> int:
    """How many seeds every rate of every width has; refused where they differ."""
    by_cell = grouped(((row["parameters"], row["steps"], row["lr"]), row["seed"]) for row in study)
    seed_sets = {tuple(sorted(seeds)) for seeds in by_cell.values()}
    if len(seed_sets) != 1 or len(seeds := set(next(iter(seed_sets)))) != len(next(iter(seed_sets))):
        raise ValueError("pairing needs the same seeds at every rate of every width; see width_slope where they differ")
    if len(seeds) < 3:
        raise ValueError(f"an interval by leaving out a seed needs 3 of them, got {len(seeds)}")
    return len(seeds)
