"""The published pair and triangle tables, trained as banks: `python -m studies.infoflow.tables --device cuda`.

Adds to docs/data/infoflow_tables.json. `--tiny` runs the same lines in a minute on a CPU, to see that they run.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from headcount.numerals import today
from headcount.papers.infoflow.experiments import (
    TOKENS,
    pair_cells,
    pair_rows,
    position_cells,
    position_rows,
    triangle_cells,
    triangle_rows,
    window_cells,
)
from headcount.papers.infoflow.trained_cells import Entry, train_cells
from headcount.training.bank_jobs import environment
from studies.stored import DATA, of_steps, stored, written

NAMES = ("gaussian", "sphere", "triangle", "positions", "windows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--out", type=Path, default=DATA / "infoflow_tables.json")
    parser.add_argument("--only", choices=NAMES, help="one of the tables")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # TF32 products on a GPU; a CPU takes no notice
    if options.tiny:
        options.seeds, options.steps = 1, 4
    tables = stored(options.out)
    for name in (options.only,) if options.only else NAMES:
        start = time.perf_counter()
        tables[name] = table(name, options)
        seconds = time.perf_counter() - start
        print(f"{name}: {len(tables[name]['rows'])} cells, {seconds:.0f} s")
        for row in tables[name]["rows"]:
            published = "-" if row["published"] is None else f"{row['published']:.2e}"
            print(f"  {row['cell']:<40} {row['nmse']:.2e}  published {published}  {row['predicted']}")
        written(options.out, tables)
    print(f"written: {options.out}")


def table(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    samples = 64 if asked.tiny else 16384 if name in ("triangle", "windows") else 65536
    wanted = asked.steps if name != "positions" or asked.tiny else 2 * asked.steps  # small networks, slow to find it
    batch = 16 if asked.tiny else 128 if name == "windows" else 256
    recipe = of_steps(wanted, samples, batch, 16 if asked.tiny else 4096)
    decay = 1e-2 if name == "triangle" else 1e-4
    rates = (2e-3, 1e-3, 5e-3) if name in TOKENS else (5e-3, 2e-3)
    trained = train_cells(
        cells(name, asked.tiny), recipe, seeds=asked.seeds, rates=rates, weight_decay=decay, device=asked.device
    )
    rows = {"triangle": triangle_rows, "positions": position_rows, "windows": position_rows}.get(name, pair_rows)(
        trained
    )
    machine = environment(asked.device, "bank")
    about = {"device": machine["device"], "torch": machine["torch"], "date": today()}
    setup = {"samples": samples, "steps": recipe.steps, "batch": recipe.batch, "seeds": asked.seeds}
    return {"rows": rows, **setup, **about}


def cells(name: str, tiny: bool) -> list[Entry]:
    if name == "triangle":
        return triangle_cells(lengths=(3, 8), width=8) if tiny else triangle_cells()
    if name == "windows":
        return window_cells(length=6, width=8) if tiny else window_cells()
    if name == "positions":
        return position_cells(length=6, width=8) if tiny else position_cells()
    return pair_cells(name, length=6, width=8) if tiny else pair_cells(name)


if __name__ == "__main__":
    main()
