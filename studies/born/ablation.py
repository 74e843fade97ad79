"""Edges of trained retrievals and copies cut: `python -m studies.born.ablation --device cuda`; `--tiny` in seconds.

Writes docs/data/born_ablation.json. `--cpu-small` is the version two cores make in a minute: retrievals only.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from headcount.numerals import today
from headcount.papers.born.ablations import ABLATED, AblationSetting, ablation, ablation_summary
from headcount.training.bank_jobs import environment
from studies.stored import DATA, stored, written

SMALL = AblationSetting(lengths=(4, 8), heads=2, embed_dim=32, steps=600, lr=4e-3)
TINY = AblationSetting(lengths=(4, 6), heads=2, embed_dim=8, steps=16, batch=4, seeds=(0,), samples=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cpu-small", action="store_true")
    parser.add_argument("--tasks", default=",".join(ABLATED))
    parser.add_argument("--out", type=Path, default=DATA / "born_ablation.json")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    name = "tiny" if options.tiny else "small" if options.cpu_small else "full"
    setting = {"tiny": TINY, "small": SMALL, "full": AblationSetting()}[name]
    tasks = ("UR", "UL") if options.cpu_small else tuple(options.tasks.split(","))
    began, machine = time.perf_counter(), environment(options.device, "bank")
    rows = ablation(setting, tasks, device=options.device)
    about = {"device": machine["device"], "torch": machine["torch"], "date": today(), "steps": setting.steps}
    sizes = {"embed_dim": setting.embed_dim, "layers": setting.depth, "lengths": list(setting.lengths)}
    seconds = round(time.perf_counter() - began, 1)
    written(options.out, {**stored(options.out), name: {"rows": rows, **about, **sizes, "seconds": seconds}})
    for line in ablation_summary(rows):
        print("  ".join(f"{key} {v:.3f}" if isinstance(v, float) else f"{key} {v}" for key, v in line.items()))


if __name__ == "__main__":
    main()
