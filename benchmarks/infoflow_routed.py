"""Two layers of one head trained from near the network that needs positions: `python -m benchmarks.infoflow_routed`.

Adds the table "routed" to docs/data/infoflow_tables.json; 15 minutes on two cores. `--tiny` runs the same lines.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch

from benchmarks.infoflow_stored import of_steps, stored, today, written
from benchmarks.routed import trained_from
from headcount.tasks import LinearMax
from headcount.training import Recipe

NOISES = (0.05, 0.1, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/data/infoflow_tables.json"))
    parser.add_argument("--steps", type=int, default=7680)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    samples, validation, batch = (64, 32, 16) if asked.tiny else (16384, 4096, 128)
    recipe = of_steps(4 if asked.tiny else asked.steps, samples, batch, validation)
    cases = [(noise, places) for noise in NOISES for places in (True, False)]
    seeds = range(1 if asked.tiny else asked.seeds)
    with ProcessPoolExecutor(asked.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(partial(learned, recipe=recipe, seeds=seeds), *zip(*cases, strict=True)))
    for row in rows:
        print(f"{row['cell']:<70} {row['nmse']:.1e} ({row['median']:.1e})  {row['predicted']}")
    setup = {"samples": samples, "steps": recipe.steps, "batch": batch, "seeds": len(seeds)}
    about = {"device": "CPU, one thread", "torch": torch.__version__, "date": today()}
    written(asked.out, stored(asked.out) | {"routed": {"rows": rows, **setup, **about}})


def learned(noise: float | None, places: bool, recipe: Recipe, seeds: range) -> dict:
    """One start, with or without positions."""
    torch.set_num_threads(1)
    return trained_from(LinearMax.random(6, 4, 16), noise, seeds, recipe, lr=2e-3, places=places)


if __name__ == "__main__":
    main()
