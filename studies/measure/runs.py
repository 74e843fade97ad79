"""One run of the bench: `measure` asked about a set, or a plain encoder trained on it, each in its own process."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from headcount.measuring import Measurement, Sequences, StudyPlan, measure
from headcount.measuring.baselines import lost
from headcount.measuring.fitted import load
from headcount.measuring.preparing import prepare
from headcount.measuring.splitting import outer_splits
from headcount.training.given import Part
from studies.measure.plain import Plain, PlainFold, search_plain
from studies.measure.sets import BenchSet

QUICK = StudyPlan(layers=1, steps=600, splits=5)
PLAIN_LAYERS, PLAIN_STEPS, PLAIN_SPLITS = (1, 2), 1500, 10
WORKERS = 2  # processes of a run, each of one thread
Row = dict[str, Any]  # Any: a line of JSON


@dataclass(frozen=True)
class Run:
    """A set and how it is asked about: by a budget of seconds, or by steps (in two layers, where `splits` are given).

    Or plain encoders of `heads` on it.

    >>> Run("wine", "ask", budget=220.0).form, Run("wine", "ask", steps=600, draw=1).form, Run("wine", "plain").form
    ('220 s', 'quick, draw 1', 'plain')
    """

    set: str
    kind: Literal["ask", "busy", "plain"] = "ask"
    budget: float | None = None
    steps: int | None = None
    draw: int = 0
    heads: tuple[int, ...] = ()
    splits: int | None = None
    workers: int = WORKERS
    first: int = 0  # split of ten, of plain encoders

    @property
    def form(self) -> str:
        """What rows of it are filed under."""
        if self.kind == "plain":
            return "plain"
        if self.splits is not None:
            return f"{self.steps} steps, {self.splits} splits"
        how = "quick" if self.steps == QUICK.steps else f"{self.steps} steps" if self.steps else f"{self.budget:g} s"
        how += "" if self.workers == WORKERS else f" of {self.workers} cores"
        return how + (", busy" if self.kind == "busy" else "") + (f", draw {self.draw}" if self.draw else "")

    def missing(self, rows: Iterable[Row]) -> list[tuple[int, int]]:
        """What these rows lack of it: heads and layers of plain encoders, or (0, 0) for the one row of a contest."""
        own_rows = [row for row in rows if (row["set"], row["form"]) == (self.set, self.form)]
        if self.kind != "plain":
            return [] if own_rows else [(0, 0)]
        have = {(row["heads"], row["layers"]) for row in own_rows if str(self.first) in row["by_split"]}
        return [place for place in product(self.heads, PLAIN_LAYERS) if place not in have]

    def made(self, one: BenchSet) -> Sequences:
        """The data, of another draw where that is asked for."""
        return (partial(one.make, draw=self.draw) if self.draw else one.make)()


@dataclass(frozen=True)
class PlainWay:
    """How plain encoders are trained: for how many steps, where, and by CUDA graphs or not."""

    steps: int = PLAIN_STEPS
    device: str = "cpu"
    graphs: bool = False


def asked(run: Run, one: BenchSet) -> Row:
    """What `measure` says of a set, with every error by split, and how it kept its time."""
    data = run.made(one)
    plan = StudyPlan() if run.steps is None else replace(QUICK, steps=run.steps)
    if run.splits is not None:
        plan = StudyPlan(steps=run.steps, splits=run.splits)
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        model = Path(folder, "model.hc")
        measurement = measure(data, plan=plan, budget=run.budget, model=model, workers=run.workers)
        wall = time.monotonic() - began
        cpu = sum(row.get("cpu_seconds", 0.0) for row in measurement.study)
        saved = saved_gap(measurement, data, model)
    answer, counts = measurement.answer, {count.layers: count for count in measurement.answer.counts}
    return {
        "set": run.set,
        "form": run.form,
        "worth": one.worth,
        "truth": one.heads,
        "steps": measurement.study.spec["steps"],
        "splits": len(measurement.study.spec["complete"]),
        **{k: v for k, v in answer.to_json().items() if k != "claims"},
        "one_layer": None if 1 not in counts else [counts[1].heads, counts[1].low, counts[1].high],
        "advice": measurement.sentence,
        "levels": {name: _short(level) for name, level in measurement.levels.items()},
        "by_split": {
            s.name: {str(n): [_short(s.outer[n]), _short(s.inner[n]), _short(s.short[n])] for n in sorted(s.outer)}
            for s in measurement.scores
        },
        "parts": {s.name: {str(n): _shorts(s.blocks[n]) for n in sorted(s.outer)} for s in measurement.scores},
        "attends": [s.name for s in measurement.scores if s.attends],
        "budget": run.budget,
        "cores": os.cpu_count(),
        "wall_seconds": round(wall, 1),
        "cpu_seconds": round(cpu, 1),
        "saved": saved,
    }


def saved_gap(found: Measurement, data: Sequences, model: Path) -> Row | None:
    """The saved file's own error on the inner part it was chosen by, beside the least of its block's rows."""
    network = found.saved
    if network is None or not model.exists():
        return None
    block: list[Row] = [dict(one) for one in found.study if one.get("contestant") == network.contestant.name]
    least = min(float(one["inner"]) for one in block)
    split = outer_splits(data)[network.split]
    fold, rows = prepare(data, split), split.inner
    saved = load(model)
    tokens = [data.x[i][: data.lengths[i]] for i in rows]
    if data.letters:
        tokens = [[data.letters[int(j) - 1] for j in one] for one in tokens]
    raw = (saved.raw(tokens) - saved.scale.y_mean) / saved.scale.y_spread
    error = lost(raw, fold.inner, fold.classes) / fold.constants[1]
    return {"inner": _short(error), "least": _short(least), "same": math.isclose(error, least, rel_tol=1e-3)}


def _short(value: float) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def _shorts(values: Iterable[float]) -> list[float | None]:
    return [None if (one := _short(value)) is None else float(f"{one:.3g}") for value in values]


def plain_rows(run: Run, one: BenchSet, kept: Iterable[Row], how: PlainWay) -> Iterator[Row]:
    """A row for each head count and depth of the plain encoder that is not kept: errors by split, outer and inner."""
    data = run.made(one)
    splits = outer_splits(data, run.first + PLAIN_SPLITS)[run.first :]
    folds = [prepare(data, split) for split in splits]
    plain = [
        PlainFold(
            training=_tensors(fold.training, fold.classes),
            inner=_tensors(fold.inner, fold.classes),
            outer=_tensors(fold.outer, fold.classes),
            blocks=torch.as_tensor(split.blocks[split.outer]),
            seed=number,
        )
        for number, (fold, split) in enumerate(zip(folds, splits, strict=True), run.first)
    ]
    x, _, y = plain[0].training
    features = 0 if data.letters else x.shape[2]
    places, began = run.missing(kept), time.monotonic()
    shapes = [Plain(features, len(data.letters), x.shape[1], y.shape[1], folds[0].classes, *place) for place in places]
    found = search_plain(shapes, plain, how.steps, how.device, how.graphs)
    seconds = round((time.monotonic() - began) / len(places), 1)  # trained side by side
    for (heads, layers), levels in zip(places, found, strict=True):
        by_split = {
            str(n): [_short(outer / fold.constants[2]), _short(inner / fold.constants[1])]
            for n, ((inner, outer, _), fold) in enumerate(zip(levels, folds, strict=True), run.first)
        }
        parts = {
            str(n): _shorts(part / fold.constants[2] for part in blocks)
            for n, ((*_, blocks), fold) in enumerate(zip(levels, folds, strict=True), run.first)
        }
        yield {
            "set": run.set, "form": "plain", "heads": heads, "layers": layers, "steps": how.steps,
            "by_split": by_split, "parts": parts, "device": how.device, "seconds": seconds,
        }  # fmt: skip


def _tensors(part: Part, classes: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.as_tensor(part.x)
    absent = torch.arange(x.shape[1]) >= torch.as_tensor(part.lengths)[:, None]
    y = torch.as_tensor(part.y).float()
    return x, absent, y if classes else y.reshape(len(y), -1)
