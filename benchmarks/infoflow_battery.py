"""Prediction against training over every family: `python -m benchmarks.infoflow_battery --device cuda`.

Writes docs/data/infoflow_battery.json. `--tiny` runs the same lines in a minute on a CPU, to see that they run.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from headcount.files import whole
from headcount.papers.cells import train_cells
from headcount.papers.infoflow_battery import battery, confusion, judged, tiny
from headcount.training import Recipe
from headcount.training.sweeps import environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--out", type=Path, default=Path("docs/data/infoflow_battery.json"))
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # TF32 products on a GPU; a CPU takes no notice
    cells = tiny(battery(length=8)) if asked.tiny else battery()
    samples, batch, validation = (64, 16, 16) if asked.tiny else (32768, 256, 4096)
    steps, seeds = (4, 1) if asked.tiny else (asked.steps, asked.seeds)
    epochs = max(1, steps // (samples // batch))
    recipe = Recipe(samples=samples, validation=validation, epochs=epochs, batch=batch, evaluations=min(epochs, 16))
    start = time.perf_counter()
    trained = train_cells([cell for cell, _ in cells], recipe, seeds=seeds, device=asked.device)
    rows = judged(trained, [reference for _, reference in cells])
    table = confusion(rows)
    print(f"{len(rows)} cells, {time.perf_counter() - start:.0f} s; predicted x trained: {table}")
    for row in rows:
        sign = " " if row["agree"] else "!"
        print(
            f"{sign} {row['cell']:<40} {row['nmse']:.2e} ratio {row['ratio']:<8g} {row['predicted']}, {row['trained']}"
        )
    run = {"samples": samples, "steps": recipe.steps, "batch": batch, "seeds": seeds}
    written(asked.out, {"environment": environment(asked.device, "bank"), "run": run, "confusion": table, "rows": rows})


def written(path: Path, data: dict[str, Any]) -> None:
    """Write JSON, whole or not at all."""
    with whole(path) as scratch:
        scratch.write_text(json.dumps(data, indent=1) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
