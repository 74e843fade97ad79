"""Alternation languages by depth: `python -m studies.born.alternation --device cuda`; `--narrow` on a CPU; `--tiny`.

Adds to docs/data/alternation.json as depths finish, and trains only the depths and seeds that are not there yet; what
`--narrow` measures (width 16, half an hour of one core) stands in a part of its own, with more `--steps` in another.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headcount.numerals import today
from headcount.papers.born.alternation_study import (
    NARROW,
    AlternationSetting,
    DepthRow,
    by_depth,
    depth_summary,
    knees,
    small_alternation,
)
from headcount.training.bank_jobs import environment
from studies.stored import DATA, stored, written


def main() -> None:
    options = _options()
    torch.set_float32_matmul_precision("high")
    setting = NARROW if options.narrow else AlternationSetting()
    setting = small_alternation(setting) if options.tiny else setting
    setting = replace(
        setting,
        depths=tuple(options.depths or setting.depths),
        blocks=tuple(options.blocks or setting.blocks),
        steps=options.steps or setting.steps,
        embed_dim=options.width or setting.embed_dim,
        seeds=tuple(range(options.seeds)) if options.seeds else setting.seeds,
    )
    data = stored(options.out)
    longer = "" if setting.steps == NARROW.steps else f"_{setting.steps}"
    part = data.setdefault(f"narrow{longer}", {}) if options.narrow else data
    wide, steps = setting.embed_dim, setting.steps
    known = [row for row in part.get("rows", []) if row["embed_dim"] == wide and row["steps"] >= steps]
    rows, before, began = list(known), part.get("seconds", 0.0) if known else 0.0, time.perf_counter()
    for todo in missing(setting, known):
        rows += [_short(row) for row in by_depth(todo, device=options.device, precision=options.precision)]
        rows.sort(key=lambda row: (row["depth"], row["blocks"], row["lr"], row["seed"]))
        part |= {"rows": rows, **_about(setting, options), "seconds": round(before + time.perf_counter() - began, 1)}
        written(options.out, data)
    for line in depth_summary(rows):
        shown = "  ".join(f"{value:.3f}" for value in line["medians"])
        print(f"L_{line['blocks']} depth {line['depth']} (proved {line['proved']:g})  medians {shown}", flush=True)
    for knee in knees(rows):
        print(knee)


def missing(setting: AlternationSetting, kept: Sequence[DepthRow]) -> list[AlternationSetting]:
    """What is still to be trained: for every depth and language, the seeds without a row; equal ones together."""
    banks: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for depth in setting.depths:
        for blocks in setting.blocks:
            done = {row["seed"] for row in kept if (row["depth"], row["blocks"]) == (depth, blocks)}
            seeds = tuple(seed for seed in setting.seeds if seed not in done)
            banks.setdefault((depth, seeds), []).append(blocks)
    return [
        replace(setting, depths=(depth,), seeds=seeds, blocks=tuple(blocks))
        for (depth, seeds), blocks in banks.items()
        if seeds
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--depths", type=int, nargs="+")
    parser.add_argument("--blocks", type=int, nargs="+")
    parser.add_argument("--precision", default="full", choices=("full", "bfloat16"))
    parser.add_argument("--out", type=Path, default=DATA / "alternation.json")
    parser.add_argument("--narrow", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


def _about(setting: AlternationSetting, options: argparse.Namespace) -> dict[str, Any]:
    machine = environment(options.device, "bank")
    about = {"device": machine["device"], "torch": machine["torch"], "date": today(), "precision": options.precision}
    sizes = {"steps": setting.steps, "batch": setting.batch, "embed_dim": setting.embed_dim, "lrs": list(setting.lrs)}
    return about | sizes


def _short(row: DepthRow) -> DepthRow:
    return {**row, "curve": [[step, *(round(v, 5) for v in rest)] for step, *rest in row["curve"]]}


if __name__ == "__main__":
    main()
