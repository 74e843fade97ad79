"""Alternation languages by depth on a GPU: `python -m benchmarks.alternation --device cuda`; `--tiny` in seconds.

Adds to docs/data/alternation.json as depths finish.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.infoflow_stored import stored, today, written
from headcount.papers.born.alternation_study import (
    AlternationSetting,
    by_depth,
    depth_summary,
    knees,
    small_alternation,
)
from headcount.training.sweeps import environment


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--precision", default="full", choices=("full", "bfloat16"))
    parser.add_argument("--out", type=Path, default=Path("docs/data/alternation.json"))
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    setting = small_alternation(AlternationSetting()) if options.tiny else AlternationSetting()
    setting = replace(
        setting,
        steps=options.steps or setting.steps,
        embed_dim=options.width or setting.embed_dim,
        seeds=tuple(range(options.seeds)) if options.seeds else setting.seeds,
    )
    began, made = time.perf_counter(), environment(options.device, "bank")
    about = {"device": made["device"], "torch": made["torch"], "date": today(), "precision": options.precision}
    sizes = {"steps": setting.steps, "batch": setting.batch, "embed_dim": setting.embed_dim, "lrs": list(setting.lrs)}
    kept = [row for row in stored(options.out).get("rows", []) if row["steps"] >= setting.steps]
    done = {row["depth"] for row in kept}
    rows = list(kept)
    todo = replace(setting, depths=tuple(depth for depth in setting.depths if depth not in done))
    for row in by_depth(todo, device=options.device, precision=options.precision):
        rows.append({**row, "curve": [[step, *(round(v, 5) for v in rest)] for step, *rest in row["curve"]]})
        seconds = round(time.perf_counter() - began, 1)
        written(options.out, {"rows": rows, **about, **sizes, "seconds": seconds})
    for line in depth_summary(rows):
        shown = "  ".join(f"{value:.3f}" for value in line["medians"])
        print(f"L_{line['blocks']} depth {line['depth']} (proved {line['proved']:g})  medians {shown}", flush=True)
    for knee in knees(rows):
        print(knee)


if __name__ == "__main__":
    main()
