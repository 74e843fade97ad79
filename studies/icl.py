"""In-context networks by depth, width and context: `python -m studies.icl --device cuda`.

Adds to docs/data/icl.json as banks finish, and leaves out what is there; no bank is begun after `--seconds`. `--tiny`
runs the same lines in seconds on a CPU.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import torch

from headcount.numerals import today
from headcount.papers.icl.experiments import ReaderRecipe, cells_of, tiny, train_readers
from headcount.training.bank_jobs import environment
from studies.stored import DATA, stored, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--studies", default="linear,shapes,softmax")
    parser.add_argument("--steps", type=int, default=ReaderRecipe().steps)
    parser.add_argument("--seconds", type=float, default=135.0, help="begin no bank after so many seconds")
    parser.add_argument("--out", type=Path, default=DATA / "icl.json")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    recipe = replace(ReaderRecipe(), steps=options.steps)
    if options.tiny:
        recipe = replace(recipe, steps=4, batch=4, seeds=(0, 1), contexts=8)
    table, began = stored(options.out), time.perf_counter()
    done = {row["key"] for row in table.get("rows", [])}
    todo = [cell for cell in cells_of(options.studies.split(",")) if cell.key not in done]
    where = environment(options.device, "bank")
    about = {"recipe": asdict(recipe), "device": where["device"], "torch": where["torch"], "date": today()}
    for n, cell in enumerate(todo):
        if time.perf_counter() - began > options.seconds:
            print(f"So: {len(todo) - n} of {len(todo)} banks are left; the same command goes on.")
            return
        start = time.perf_counter()
        trained = train_readers(tiny(cell) if options.tiny else cell, recipe, options.device)
        spent = time.perf_counter() - start
        rows = [*table.get("rows", []), *({**row, "key": cell.key} for row in trained)]
        table = {**about, "rows": rows, "seconds": round(table.get("seconds", 0.0) + spent, 1)}
        written(options.out, table)
        best = [min(map(median, row["nmse"])) for row in trained]
        print(f"{cell.key:<34} {spent:5.1f} s  " + "  ".join(f"{value:.4f}" for value in best), flush=True)
    print(f"So: all {len(todo)} banks are trained, {table.get('seconds', 0.0)} s of training in all.")


if __name__ == "__main__":
    main()
