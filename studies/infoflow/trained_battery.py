"""Prediction against training over every family: `python -m studies.infoflow.trained_battery --device cuda --jobs 4`.

What a process found is written as it finishes, to docs/data/infoflow_battery.json, so that a run that is cut keeps
what it has, and `--only` adds tasks to what is there. `--tiny` runs the same lines in a minute on a CPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from headcount.numerals import today
from headcount.papers.infoflow.trained_cells import Entry, train_cells
from headcount.training import Recipe
from headcount.training.bank_jobs import environment
from studies.infoflow.battery import battery, confusion, judged, tiny
from studies.stored import DATA, of_steps, stored, written

Rows = list[dict[str, Any]]


def main() -> None:
    options = _arguments()
    groups = battery(options.length, options.width)
    groups = {name: tiny(groups[name]) if options.tiny else groups[name] for name in options.only or groups}
    if options.tiny:
        options.samples, options.batch, options.steps, options.seeds = 64, 16, 4, 1
    samples, seeds = options.samples, options.seeds
    recipe = of_steps(options.steps, samples, options.batch, 16 if options.tiny else 4096)
    run = {"samples": samples, "steps": recipe.steps, "batch": options.batch, "seeds": seeds, "length": options.length}
    run |= {"date": today(), **environment(options.device, "bank")}
    known = stored(options.out)
    runs = known.get("runs", {})
    by_group = {name: [row for row in known["rows"] if row["group"] == name] for name in runs}
    start = time.perf_counter()
    for names, trained in trained_shares(groups, recipe, seeds, options.device, options.jobs):
        by_group |= trained
        print(f"{', '.join(names)}: {time.perf_counter() - start:.0f} s")
        _show([row for name in names for row in by_group[name]])
        runs |= dict.fromkeys(names, run)
        rows = [row for group in battery() for row in by_group.get(group, [])]
        written(options.out, {"runs": runs, "confusion": confusion(rows), "rows": rows})


def trained_shares(
    groups: dict[str, list[Entry]], recipe: Recipe, seeds: int, device: str, jobs: int
) -> Iterator[tuple[list[str], dict[str, Rows]]]:
    """Every share's tasks and rows as they finish, in a process each: a failure on a device spoils its process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, max_tasks_per_child=1) as pool:
        learn = partial(learned, recipe=recipe, seeds=seeds, device=device)
        begun = {pool.submit(learn, part): list(part) for part in shares(groups, device)}
        for job in as_completed(begun):
            if job.exception() is not None:
                print(f"{', '.join(begun[job])} failed: {job.exception()}", flush=True)
                continue
            yield begun[job], job.result()


def shares(groups: dict[str, list[Entry]], device: str) -> list[dict[str, list[Entry]]]:
    """What is trained together: on a GPU the tasks whose sequences have one shape, which fall into common banks."""
    if device == "cpu":
        return [{name: cells} for name, cells in groups.items()]
    by_shape: dict[tuple[int, int], dict[str, list[Entry]]] = {}
    for name, cells in groups.items():
        by_shape.setdefault((cells[0].task.length, cells[0].task.token_dim), {})[name] = cells
    return list(by_shape.values())


def learned(share: dict[str, list[Entry]], recipe: Recipe, seeds: int, device: str) -> dict[str, Rows]:
    """The cells of some tasks, trained together and judged task by task."""
    torch.set_float32_matmul_precision("high")  # TF32 products on a GPU; a CPU takes no notice
    torch.set_num_threads(1)
    trained = iter(train_cells([c for cells in share.values() for c in cells], recipe, seeds=seeds, device=device))
    return {name: judged(name, list(islice(trained, len(cells)))) for name, cells in share.items()}


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
    parser.add_argument("--samples", type=int, default=32768)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", nargs="*", help="tasks by name")
    parser.add_argument("--out", type=Path, default=DATA / "infoflow_battery.json")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
