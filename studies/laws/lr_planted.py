"""Planted learning-rate laws: how often does each interval hold the exponent that was planted?

    python -m studies.laws.lr_planted --studies 100 --out docs/data/lr_planted.json

A study has 3 sizes, 4 horizons, 7 rates a factor 2.5 apart. The loss is a parabola in log lr around the planted optimum
in its logarithm, or in itself as the paper has it; noise is of single seeds (relative), of cells (log of the optimum),
or both. The extrapolating road is run beside the other to show its bias; it is flagged, so it need not cover.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headcount.numerals import today
from headcount.papers.lr_law import PUBLISHED, best_rate, extrapolated_law, rate_law
from headcount.papers.lr_law.two_roads import RateLaw
from headcount.results import Study

MIDDLE = (2000, 700, 0.01)  # the anchor of the planted law


@dataclass(frozen=True)
class Planted:
    """One kind of study: the curvature of its parabolas, its noise, its seeds."""

    curvature: float = 0.1
    noise: float = 0.05
    cells: float = 0.0
    seeds: int = 3
    loss: str = "log"  # the parabola is in log loss, or "plain": in the loss itself
    sizes: tuple[int, ...] = (500, 2000, 8000)
    horizons: tuple[int, ...] = (250, 500, 1000, 2000)
    rates: int = 7
    factor: float = 2.5  # between neighbouring rates
    shared: float = 0.0  # scatter of the optimum that all horizons of a size share
    bad: float = 0.0  # by which one rate lies too high, in log loss, in every cell
    cliff: float = 0.0  # slope in log loss from 2.7 times the best rate on

    def optimum(self, size: int, steps: int) -> float:
        """The planted log of the best rate."""
        return math.log(PUBLISHED.rate(parameters=size, steps=steps, anchor=MIDDLE))

    def study(self, generator: np.random.Generator) -> Study:
        """Rows as a sweep writes them."""
        rows: list[Any] = []
        for size in self.sizes:
            common = self.shared * generator.standard_normal() if self.shared else 0.0
            for steps in self.horizons:
                place = self.optimum(size, steps) + self.cells * generator.standard_normal() + common
                for i in range(self.rates):
                    log = math.log(MIDDLE[2]) + (i - self.rates // 2) * math.log(self.factor)
                    level = self._level(size, steps, log - place) * math.exp(self._trouble(i, log - place))
                    for seed in range(self.seeds):
                        nmse = level * math.exp(self.noise * generator.standard_normal())
                        cell = {"parameters": size, "steps": steps, "lr": math.exp(log), "seed": seed}
                        rows.append({**cell, "nmse": nmse, "status": "done"})
        return Study(tuple(rows))

    def _trouble(self, number: int, away: float) -> float:
        """What is added to the log loss: one bad rate, and a cliff to the right."""
        bad = self.bad if number == self.rates // 2 - 2 else 0.0
        return bad + self.cliff * max(0.0, away - 1.0)

    def _level(self, size: int, steps: int, away: float) -> float:
        least = 0.05 * (size / 2000) ** -0.2 * (steps / 700) ** -0.4
        if self.loss == "log":
            return least * math.exp(self.curvature * away**2)
        return least + 0.05 * self.curvature * away**2


KINDS = {
    "seed noise 5%": Planted(),
    "seed noise 0.2%": Planted(loss="plain", curvature=0.2, noise=0.002),
    "seed noise 20%": Planted(curvature=0.2, noise=0.2),
    "seed noise 5%, optima scattered by 20%": Planted(cells=0.2),
    "parabola in the loss itself": Planted(loss="plain", curvature=0.2),
    "five seeds": Planted(seeds=5, noise=0.1),
    "one seed": Planted(seeds=1),
    "one bad rate": Planted(rates=11, factor=2.0, bad=0.4),
    "optima shared by size, 15%": Planted(rates=11, factor=2.0, shared=0.15),
    "a cliff to the right": Planted(rates=11, factor=2.0, cliff=2.0),
    "all three": Planted(rates=11, factor=2.0, bad=0.4, shared=0.15, cliff=2.0),
}
TROUBLED = tuple(KINDS)[-4:]


def covered(kind: Planted, studies: int, seed: int = 0, resamples: int = 200) -> dict[str, Any]:
    """In how many studies the interval of each fit holds what was planted, and where the estimates lie."""
    generator = np.random.default_rng(seed)
    laws, roads, best, refused = [], [], 0, 0
    for _ in range(studies):
        study = kind.study(generator)
        try:
            laws.append(rate_law(study, resamples=resamples))
        except ValueError:
            refused += 1
            continue
        with contextlib.suppress(ValueError):
            roads.append(extrapolated_law(study, resamples=30))
        best += _one(kind, generator, resamples)
    return {
        "studies": studies,
        "refused": refused,
        "parameters": sum(_holds(law, "parameters", PUBLISHED.parameters) for law in laws),
        "steps": sum(_holds(law, "steps", PUBLISHED.steps) for law in laws),
        "best_rate": best,
        "median_parameters": _median([law.parameters.value for law in laws]),
        "median_steps": _median([law.steps.value for law in laws]),
        "median_width_steps": _median([law.steps.high - law.steps.low for law in laws]),
        "extrapolated": len(roads),
        "extrapolated_steps_covered": sum(_holds(law, "steps", PUBLISHED.steps) for law in roads),
        "extrapolated_median_steps": _median([law.steps.value for law in roads]),
        "extrapolated_median_r2": _median([law.r2 for law in roads]),
    }


def _one(kind: Planted, generator: np.random.Generator, resamples: int) -> bool:
    """Whether best_rate's interval holds the optimum of a cell of its own, without scatter between cells."""
    alone = Planted(kind.curvature, kind.noise, 0.0, kind.seeds, kind.loss, (2000,), (700,), kind.rates)
    rate = best_rate(alone.study(generator), resamples=resamples).rate
    return rate.low <= math.exp(kind.optimum(2000, 700)) <= rate.high


def _holds(law: RateLaw, name: str, planted: float) -> bool:
    exponent = getattr(law, name)
    return exponent.low <= planted <= exponent.high


def _median(values: Sequence[float]) -> float | None:
    return round(float(np.median(values)), 4) if values else None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--studies", type=int, default=100)
    options.add_argument("--out", type=Path, default=None)
    chosen = options.parse_args()
    began = time.perf_counter()
    results = {name: {**asdict(kind), **covered(kind, chosen.studies)} for name, kind in KINDS.items()}
    for name, row in results.items():
        print(
            f"{name:40} parameters {row['parameters']}, steps {row['steps']}, best_rate {row['best_rate']} "
            f"of {row['studies']}; {row['refused']} refused; extrapolated steps {row['extrapolated_median_steps']} "
            f"({row['extrapolated_steps_covered']} of {row['extrapolated']} cover)"
        )
    content = {
        "date": today(),
        "command": f"python -m studies.laws.lr_planted --studies {chosen.studies}",
        "seconds": round(time.perf_counter() - began, 1),
        "planted": {"parameters": PUBLISHED.parameters, "steps": PUBLISHED.steps},
        "kinds": results,
    }
    if chosen.out:
        chosen.out.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
