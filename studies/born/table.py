"""The from-scratch table of Born a Transformer on a GPU: `python -m studies.born.table --device cuda`.

Adds to docs/data/born.json as banks finish; `--tiny` runs the same lines in seconds.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch

from headcount.numerals import today
from headcount.papers.born.experiments import LONG, SHORT, TASKS, from_scratch, summary, tiny
from headcount.training.bank_jobs import environment
from studies.stored import DATA, stored, written

SETTINGS = {"short": SHORT, "long": LONG, "wide": replace(SHORT, embed_dim=128)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--settings", default="short,long")
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--precision", default="full", choices=("full", "bfloat16"))
    parser.add_argument("--out", type=Path, default=DATA / "born.json")
    parser.add_argument("--folder", type=Path, help="where unfinished banks keep their state")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    table = stored(options.out)
    for name in options.settings.split(","):
        setting = tiny(SETTINGS[name]) if options.tiny else SETTINGS[name]
        setting = replace(setting, steps=options.steps) if options.steps else setting
        known = table.get(name, {}).get("rows", [])
        done = {row["code"] for row in known if row["steps"] >= setting.steps}
        todo = [code for code in options.tasks.split(",") if code not in done]
        rows, began = [row for row in known if row["code"] not in todo], time.perf_counter()
        made = environment(options.device, "bank")
        about = {"device": made["device"], "torch": made["torch"], "date": today(), "seeds": len(setting.seeds)}
        sizes = {"steps": setting.steps, "batch": setting.batch, "lr": setting.lr, "precision": options.precision}
        made = from_scratch(setting, todo, device=options.device, folder=options.folder, precision=options.precision)
        for row in made:
            rows.append({**row, "curve": [[step, *(round(v, 5) for v in rest)] for step, *rest in row["curve"]]})
            table[name] = {"rows": rows, **about, **sizes, "seconds": round(time.perf_counter() - began, 1)}
            written(options.out, table)
        for line in summary(rows):
            print(
                f"{name} {line['code']:<8} {line['lengths']}  median {line['median']:.3f}  {line['seeds']}", flush=True
            )


if __name__ == "__main__":
    main()
