"""Finished answers per second: who is stuck is stopped, and takes no more time (`python -m benchmarks.patience`).

One bank of networks with one to five heads on a task of three maxima, trained to the end, with patience but everyone's
gradient computed, and with patience as it is; in turn, again and again, medians.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

from headcount.kernels.backend import Backend, Problem, eager
from headcount.kernels.cpp import compiled
from headcount.kernels.cpp.native_library import native_library
from headcount.nets import Architecture
from headcount.numerals import now
from headcount.tasks import LinearMax
from headcount.training import Bank, Member, Recipe, train

TASK = LinearMax(directions=[[1.0, 0.0], [-0.5, 0.8], [-0.5, -0.8]], length=16)
RECIPE = Recipe(samples=2000, validation=500, epochs=150, batch=100, evaluations=75)
PATIENCE = 6


def bank(seeds: int = 4) -> list[Member]:
    """Every head count from one to five, some seeds of each."""
    archs = [Architecture(layers=((heads, 4),), width=16) for heads in (1, 2, 3, 4, 5)]
    return [Member(TASK, arch, seed, seed, lr=1e-2) for arch in archs for seed in range(seeds)]


def everyone(backend: Backend) -> Backend:
    """The backend with the gradients of those who have stopped, too."""

    def gradient(problem: Problem, bank: Bank, batch: Any) -> Tensor:
        active, bank.active = bank.active, None
        try:
            return backend.gradient(problem, bank, batch)
        finally:
            bank.active = active

    return replace(backend, gradient=gradient)


def ways() -> dict[str, tuple[Backend, Recipe]]:
    """What is compared: how a bank is computed, and whether members stop."""
    backend = compiled.backend if native_library() is not None else eager
    patient = replace(RECIPE, patience=PATIENCE)
    return {
        "to the end": (backend, RECIPE),
        "patience, everyone computed": (everyone(backend), patient),
        "patience": (backend, patient),
    }


def once(backend: Backend, recipe: Recipe) -> dict[str, Any]:
    """A bank's training: seconds, and by head count the median NMSE."""
    members, start = bank(), time.perf_counter()
    rows = train(members, recipe, backend=backend).rows
    seconds = time.perf_counter() - start
    of: Callable[[int], float] = lambda heads: median(row["nmse"] for row in rows if row["heads"] == heads)  # noqa: E731
    stopped = sum(row["status"] == "frozen" for row in rows)
    return {"seconds": seconds, "answers": len(rows), "stopped": stopped, "nmse": {h: of(h) for h in (1, 2, 3, 4, 5)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    by_way: dict[str, list[dict[str, Any]]] = {name: [] for name in ways()}
    for _ in range(options.rounds):
        for name, (backend, recipe) in ways().items():
            by_way[name].append(once(backend, recipe))
    rows = [
        {
            **runs[0],
            "way": name,
            "seconds": round(seconds, 2),
            "answers per second": round(runs[0]["answers"] / seconds, 2),
        }
        for name, runs in by_way.items()
        if (seconds := median(run["seconds"] for run in runs))
    ]
    content = {
        "date": now(),
        "device": f"CPU, {torch.get_num_threads()} threads, wall-clock time",
        "torch": torch.__version__,
        "command": "python -m benchmarks.patience",
        "rows": rows,
    }
    print(json.dumps(content, indent=1))
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
