"""Prediction against training over every family: `python -m benchmarks.infoflow_battery --device cuda --jobs 6`.

Every task is trained in a process of its own and written as it finishes, to docs/data/infoflow_battery.json, so that
a run that is cut keeps what it has. `--tiny` runs the same lines in a minute on a CPU, to see that they run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

import torch

from headcount.files import whole
from headcount.papers.cells import Cell, train_cells
from headcount.papers.infoflow_battery import battery, confusion, judged, tiny
from headcount.training import Recipe
from headcount.training.sweeps import environment

Rows = list[dict[str, Any]]


def main() -> None:
    asked = _arguments()
    groups = {name: tiny(c) for name, c in battery(length=8).items()} if asked.tiny else battery()
    groups = {name: groups[name] for name in asked.only or groups}
    samples, batch, validation = (64, 16, 16) if asked.tiny else (32768, 256, 4096)
    steps, seeds = (4, 1) if asked.tiny else (asked.steps, asked.seeds)
    epochs = max(1, steps // (samples // batch))
    recipe = Recipe(samples=samples, validation=validation, epochs=epochs, batch=batch, evaluations=min(epochs, 16))
    run = {"samples": samples, "steps": recipe.steps, "batch": batch, "seeds": seeds}
    about = {"environment": environment(asked.device, "bank"), "run": run}
    found: dict[str, Rows] = {}
    start = time.perf_counter()
    with ProcessPoolExecutor(asked.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        learn = partial(learned, recipe=recipe, seeds=seeds, device=asked.device)
        jobs = {pool.submit(learn, cells): name for name, cells in groups.items()}
        for job in as_completed(jobs):
            name = jobs[job]
            if job.exception() is not None:
                print(f"{name} failed: {job.exception()}")
                continue
            found[name] = job.result()
            print(f"{name}: {len(found[name])} cells, {time.perf_counter() - start:.0f} s")
            _show(found[name])
            rows = [row for group in groups for row in found.get(group, [])]
            written(asked.out, {**about, "confusion": confusion(rows), "rows": rows})


def learned(cells: Sequence[Cell], recipe: Recipe, seeds: int, device: str) -> Rows:
    """One task's cells, trained and judged."""
    torch.set_float32_matmul_precision("high")  # TF32 products on a GPU; a CPU takes no notice
    torch.set_num_threads(1)
    return judged(train_cells(cells, recipe, seeds=seeds, device=device))


def written(path: Path, data: dict[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    with whole(path) as scratch:
        scratch.write_text(json.dumps(data, indent=1) + "\n")


def _show(rows: Rows) -> None:
    for row in rows:
        sign = " " if row["agree"] else "!"
        print(
            f"{sign} {row['cell']:<40} {row['nmse']:.2e} ratio {row['ratio']:<8g} {row['predicted']}, {row['trained']}"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--jobs", type=int, default=1, help="tasks trained at once")
    parser.add_argument("--only", nargs="*", help="tasks by name")
    parser.add_argument("--out", type=Path, default=Path("docs/data/infoflow_battery.json"))
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
