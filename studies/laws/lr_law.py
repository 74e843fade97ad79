"""The learning-rate law on this house's tasks, factors by width, and the head-count tables with the rate chosen.

    python -m studies.laws.lr_law --part linear_max      # a quarter of an hour on two cores, as are the next two
    python -m studies.laws.lr_law --part wells
    python -m studies.laws.lr_law --part widths
    python -m studies.laws.lr_law --part silent_widths   # half an hour on one core
    python -m studies.laws.lr_law --part one_maximum     # the same
    python -m studies.laws.lr_law --device cuda --part tables
    python -m studies.laws.lr_law --tiny            # every part, far smaller, on a CPU
    python -m studies.laws.lr_law --part small      # the law of the smallest study, minutes on one core

`linear_max` and `wells`: 3 widths x 4 horizons x 8 rates x 5 seeds with warm-up, stable, decay, and noise in the
training targets; the law. The first design had no noise (`noise_free` in the data file holds its rows): there the
best rate lies right below the one at which training breaks, and its law was refused.
`widths`: the best rate of four widths, 32 to 256, at one horizon, plain and with factors against the narrowest; a first
run from 16 on, where four heads of four are still few, is kept as `narrow_widths`.
`silent_widths`: the same with factors and a read-out that starts at 0, so that all widths begin with the same answer;
rates closer together, sixteen seeds that no run before had. `one_maximum`: the largest of four numbers, which the
narrowest network learns as well as wider ones; five rates for factors, sixteen seeds that no run before had, and
seven lower ones with five seeds for one rate for all. Rule for both, fixed before the run: the best rate stays if the
paired interval of its slope lies within 0.1 of 0.
`tables`: Tables 2 to 4 of the head-count paper at lengths 8 and 32 with 3 seeds, at the house's one rate, at the best
of seven rates for every head count and length, at the rate that one seed chooses, and at the one that it chooses in a
quarter of the steps; with `--epochs 130` ten minutes on two cores. Finished banks are kept under --store and parts in
--out, so a run that is cut goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from headcount.files import write_text
from headcount.fits import knee
from headcount.numerals import today
from headcount.papers.head_count.reproduce import GRIDS
from headcount.papers.lr_law.experiments import RATES, heads_of_four, rate_study, small_study, tasks
from headcount.papers.lr_law.paired_slope import paired_width_slope
from headcount.papers.lr_law.parabola import best_rates
from headcount.papers.lr_law.rate_page import fitted, rate_page
from headcount.papers.lr_law.two_roads import width_slope
from headcount.results import Store, Study
from headcount.tasks import KthLargest, Task
from headcount.training import RateSearch, Recipe
from headcount.training.progress import bar
from headcount.training.sweeps import run
from studies.stored import DATA, stored

COLUMNS = ("length", "heads", "width", "parameters", "steps", "lr", "seed", "nmse", "final_nmse", "status")
CLOSE_RATES = tuple(float(f"{1e-3 * 1.5**i:.3g}") for i in range(8))
# Five rates from 0.001 to 0.032, so that the parabola of every width rests on the same ones; seven from lower down.
SPREAD_RATES = tuple(float(f"{1e-3 * 32 ** (i / 4):.3g}") for i in range(5))
LOWER_RATES = tuple(2.5e-4 * 2**i for i in range(7))
UNSEEN = tuple(range(10, 26))
# Seven rates, the house's 3e-3 in the middle.
TABLE_RATES = tuple(float(f"{3e-3 * 10 ** (i / 3):.3g}") for i in range(-3, 4))


@dataclass(frozen=True)
class Place:
    """Where and how large."""

    device: str
    tiny: bool
    store: Path
    lengths: tuple[int, ...] = (8, 32)
    epochs: int | None = None

    @property
    def rates(self) -> tuple[float, ...]:
        """Every rate, or every other where it must be quick."""
        return RATES[1::2] if self.tiny else RATES

    def law(self, name: str) -> dict[str, Any]:
        """One task's law."""
        widths, horizons = ((8, 16), (50, 100, 200)) if self.tiny else ((16, 32, 64), (250, 500, 1000, 2000))
        batch, length = (16, 4) if self.tiny else (32, 8)
        archs = [heads_of_four(width) for width in widths]
        study = rate_study(
            tasks(length)[name], archs, horizons, rates=self.rates, seeds=2 if self.tiny else 5, batch=batch,
            device=self.device, store=self.store / name.lower(), name=f"learning rate, {name}", on_progress=bar,
        )  # fmt: skip
        return self.lawful(study, name)

    def lawful(self, study: Study, name: str) -> dict[str, Any]:
        """What a study says, its page beside it; a refusal is a finding too, and the rows are kept either way."""
        try:
            findings = fitted(study)
            page = self.store / f"{name.lower()}.html"
            write_text(page, rate_page(study, command=f"headcount fit {self.store / name.lower()} --learning-rate"))
            says: dict[str, Any] = {**findings.as_row(), "page": str(page)}
            print(findings.sentence)
        except ValueError as problem:
            says = {"refused": str(problem)}
            print(f"refused: {problem}")
        return {**says, **_rows(study)}

    def small(self) -> dict[str, Any]:
        """The smallest study."""
        return self.lawful(small_study(self.store / "small", on_progress=bar), "small")

    def widths(self) -> dict[str, Any]:
        """The best rate of every width at one horizon, plain and with factors: does one rate fit them all?"""
        sizes, steps = ((8, 16, 32), 50) if self.tiny else ((32, 64, 128, 256), 1000)
        batch, length = (16, 4) if self.tiny else (32, 8)
        archs, says = [heads_of_four(width) for width in sizes], {}
        for name, base in (("plain", None), ("factors", archs[0])):
            study = rate_study(
                tasks(length)["LinearMax"], archs, (steps,), rates=self.rates, batch=batch, base=base, seeds=5,
                device=self.device, store=self.store / f"widths_{name}", name=f"widths, {name}", on_progress=bar,
            )  # fmt: skip
            says[name] = {**_slope(study), **_rows(study)}
            print(name, says[name].get("slope", says[name].get("refused")))
        return says

    def silent_widths(self) -> dict[str, Any]:
        """The same with factors where every width starts with the same answer: does one rate fit them all then?"""
        task, rates = tasks(4 if self.tiny else 8)["LinearMax"], CLOSE_RATES
        return {"factors": self._arm("silent_widths_factors", task, rates, UNSEEN, factors=True, read_out=0.0)}

    def one_maximum(self) -> dict[str, Any]:
        """The same on a task that the narrowest network learns as well as wider ones."""
        task = KthLargest(rank=1, length=4)
        return {
            "factors": self._arm("one_maximum_factors", task, SPREAD_RATES, UNSEEN, factors=True),
            "plain": self._arm("one_maximum_plain", task, LOWER_RATES, UNSEEN[:5]),
        }

    def _arm(
        self,
        name: str,
        task: Task,
        rates: tuple[float, ...],
        seeds: tuple[int, ...],
        *,
        factors: bool = False,
        read_out: float = 1.0,
    ) -> dict[str, Any]:
        """The best rate of every width and its slope, on seeds of its own."""
        sizes, steps, batch = ((8, 16, 32), 50, 16) if self.tiny else ((32, 64, 128, 256), 1000, 32)
        archs = [heads_of_four(width) for width in sizes]
        study = rate_study(
            task, archs, (steps,), rates=rates, batch=batch, base=archs[0] if factors else None, read_out=read_out,
            seeds=seeds[:3] if self.tiny else seeds, device=self.device, store=self.store / name, name=name,
            on_progress=bar,
        )  # fmt: skip
        says = {**_slope(study), **_rows(study)}
        print(name, says.get("slope", says.get("refused")), says.get("paired"))
        return says

    def tables(self) -> dict[str, Any]:
        """Tables 2 to 4, at one rate, at the best of seven, at a searched one and at one of a short search."""
        store = Store.open(self.store / "tables", create=True)
        return {name: self._table(name, store) for name in ("table-2", "table-3", "table-4")}

    def _table(self, name: str, store: Store) -> dict[str, Any]:
        grid = replace(GRIDS[name], lengths=self.lengths, seeds=3)
        grid = replace(grid, recipe=replace(grid.recipe, epochs=self.epochs or grid.recipe.epochs))
        if self.tiny:
            recipe = Recipe(samples=256, validation=64, epochs=4, batch=64, evaluations=2)
            grid = replace(grid, lengths=(4,), seeds=2, heads=grid.heads[-2:], recipe=recipe)
        spec = grid.sweep()
        several = replace(spec, members=tuple(replace(m, lr=r) for m in spec.members for r in TABLE_RATES))
        everything = run(several, store, device=self.device, on_progress=bar)
        searched, short = (
            run(replace(spec, search=RateSearch(TABLE_RATES, length_share)), store, device=self.device, on_progress=bar)
            for length_share in (1.0, 0.25)
        )
        best, rates = _best_rate_rows(everything)
        studies = {"one rate": everything.where(lr=grid.lr), "best of seven": best, "searched": searched}
        studies |= {"short search": short}
        says = {label: _knee(study, grid.retrievals) for label, study in studies.items()}
        for label, row in says.items():
            print(f"{name}, {label}: {row['sentence']}")
        verdicts = {row["verdict"] for label, row in says.items() if label != "short search"}
        return {
            "retrievals": grid.retrievals,
            "steps": grid.recipe.steps,
            "knees": says,
            "verdict_changes": len(verdicts) > 1,
            "best_rates": rates,
            "search": searched.spec["rate_search"],
            "short search": short.spec["rate_search"],
            "cost_of_best_of_seven": len(TABLE_RATES),
            **_rows(everything),
        }


def _best_rate_rows(study: Study) -> tuple[Study, list[dict[str, Any]]]:
    """The rows of every cell's best rate, by the mean NMSE over seeds; a diverged run counts as 1."""
    cells: dict[tuple[int, int], dict[float, list[Any]]] = {}
    for row in study:
        cells.setdefault((row["length"], row["heads"]), {}).setdefault(row["lr"], []).append(row)
    best_rows, rates = [], []
    for (length, heads), by_rate in sorted(cells.items()):
        lr = min(by_rate, key=lambda rate: sum(_nmse(row) for row in by_rate[rate]))
        best_rows += by_rate[lr]
        ends = lr in (min(by_rate), max(by_rate))
        rates.append({"length": length, "heads": heads, "lr": lr, "at_end": ends})
    return Study(tuple(best_rows), study.spec, study.environment, study.name), rates


def _nmse(row: Any) -> float:
    lost = row["status"] == "diverged" or not math.isfinite(row["nmse"])
    return 1.0 if lost else min(row["nmse"], 1.0)


def _knee(study: Study, retrievals: int) -> dict[str, Any]:
    heads = knee(study, predicted=retrievals)
    cells: dict[str, list[float]] = {}
    for row in study:
        cells.setdefault(f"T {row['length']}, h {row['heads']}", []).append(_nmse(row))
    numbers = {cell: {"median": median(values), "best": min(values)} for cell, values in cells.items()}
    diverged = sum(row["status"] == "diverged" for row in study)
    return {**heads.as_row(), "sentence": heads.sentence, "cells": numbers, "runs": len(study), "lost": diverged}


def _slope(study: Study) -> dict[str, Any]:
    try:
        slope, paired = width_slope(study), paired_width_slope(study)
        best = [{"parameters": b.parameters, "rate": b.rate.value, "nmse": b.loss.value} for b in best_rates(study)]
    except ValueError as problem:
        return {"refused": str(problem)}
    ends = {"slope": slope.value, "slope_low": slope.low, "slope_high": slope.high}
    return {**ends, "paired": [paired.low, paired.high], "best": best}


def _rows(study: Study) -> dict[str, Any]:
    """The rows in short, enough to fit them again."""
    return {"columns": list(COLUMNS), "rows": [[row.get(name) for name in COLUMNS] for row in study]}


PARTS: dict[str, Callable[[Place], dict[str, Any]]] = {
    "linear_max": lambda place: place.law("LinearMax"),
    "wells": lambda place: place.law("Wells"),
    "widths": Place.widths,
    "silent_widths": Place.silent_widths,
    "one_maximum": Place.one_maximum,
    "tables": Place.tables,
    "small": Place.small,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--part", choices=[*PARTS, "all"], default="all", help="all: every part but small")
    options.add_argument("--device", default="cpu")
    options.add_argument("--tiny", action="store_true")
    options.add_argument("--store", type=Path, default=Path("out/lr_law"))
    options.add_argument("--out", type=Path, default=None, help="docs/data/lr_law.json; nowhere with --tiny")
    options.add_argument("--lengths", default="8,32", help="of the tables")
    options.add_argument("--epochs", type=int, default=None, help="of the tables: the published ones unless said")
    chosen = options.parse_args()
    out = chosen.out or (None if chosen.tiny else DATA / "lr_law.json")
    lengths = tuple(int(length) for length in chosen.lengths.split(","))
    place = Place(
        chosen.device, chosen.tiny, chosen.store / ("tiny" if chosen.tiny else "full"), lengths, chosen.epochs
    )
    for name in [p for p in PARTS if p != "small"] if chosen.part == "all" else [chosen.part]:
        began = time.perf_counter()
        says = PARTS[name](place)
        facts = {
            "date": today(),
            "device": torch.cuda.get_device_name()
            if chosen.device.startswith("cuda")
            else platform.processor() or "cpu",
            "torch": torch.__version__,
            "command": " ".join(["python -m studies.laws.lr_law", *sys.argv[1:]]),
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(f"{name}: {facts['seconds']} s")
        if out is not None:
            _keep(out, name, {**facts, **says})


def _keep(out: Path, name: str, part: dict[str, Any]) -> None:
    """Add a part to the file, which appears whole."""
    write_text(out, json.dumps({**stored(out), name: part}, separators=(",", ":")).replace("],[", "],\n[") + "\n")


if __name__ == "__main__":
    main()
