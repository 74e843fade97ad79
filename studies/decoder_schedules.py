"""Does it matter how attention is divided over layers? Small decoders trained from scratch at equal parameters.

    python -m studies.decoder_schedules input.txt --device cuda --seconds 150 --out docs/data/decoder_schedules.json

Six layers on the characters of one text file, three schedules (the same heads everywhere; heads growing with depth;
early layers wide and late ones narrow), the same seeds for each: a seed fixes the batches, so schedules are compared in
pairs. All runs take the same number of steps, as many as fit in the given time.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from pathlib import Path

import torch

from headcount.papers.allocation.decoders import Settings, Text, summary, train_all
from studies.stored import DATA, written


def main() -> None:
    parser = argparse.ArgumentParser(description="Schedules of heads over layers, compared at equal parameters.")
    parser.add_argument("text", type=Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=150.0, help="time for all runs together")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=Settings.steps, help="at most so many steps a run")
    parser.add_argument("--out", type=Path, default=DATA / "decoder_schedules.json")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    settings = Settings(device=options.device, steps=options.steps)
    began = time.perf_counter()
    rows, steps = train_all(
        settings, Text.read(options.text, options.device), range(options.seeds), options.seconds, say=print
    )
    lines = summary(rows)
    took = round(time.perf_counter() - began, 1)
    facts = {"settings": asdict(settings), "steps": steps, "seconds": took, "text": options.text.name}
    written(options.out, {**facts, "summary": lines, "rows": rows})
    for row in lines:
        change = f"{row['change']:+.4f} ± {row['change_half_width']:.4f}"
        print(f"{row['schedule']:24} {row['loss']:.4f} ± {row['loss_half_width']:.4f}   vs uniform {change}")
    print(f"{steps} steps a run, {took} s; wrote {options.out}")


if __name__ == "__main__":
    main()
