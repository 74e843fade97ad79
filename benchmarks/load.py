"""What a store of a million rows costs to list, fit, export and report: `python -m benchmarks.load [ROWS] [FOLDER]`.

Prints JSON: seconds by the clock and of the processor, peak memory, the load of the machine, and the page's size.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headcount.numerals import today
from headcount.results import Store

COMMANDS = ("runs", "fit", "runs export", "report")
LENGTHS = (8, 16, 32, 64, 128)
TOGETHER = 20_000  # rows in a transaction
MEASURED = """
import json, sys, time
began = time.monotonic()
from headcount.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
# VmHWM, since ru_maxrss keeps what the process that started this one had
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
spent = {"clock_s": time.monotonic() - began, "processor_s": time.process_time(), "peak_mb": peak, "code": code}
print(json.dumps(spent), file=sys.stderr)
"""


def large_store(folder: Path, count: int) -> Store:
    """A store with `count` rows of eight head counts at five lengths; four heads are enough."""
    rng = np.random.default_rng(0)
    store = Store.open(folder, create=True)
    retrieval = {"name": "maxima", "count": 4}
    spec = {"structure": {"length": 8, "token_dim": 4, "retrievals": [retrieval]}}
    store.state("large", spec, [f"{i:016x}" for i in range(count)])
    for start in range(0, count, TOGETHER):
        places = range(start, min(count, start + TOGETHER))
        noise = rng.random(len(places)).tolist()
        rows = [large_row(i, u) for i, u in zip(places, noise, strict=True)]
        store.add([(row["run"], large_member(row), row) for row in rows], {"torch": "2", "device": "cpu"})
    return store


def large_row(i: int, noise: float) -> Any:
    """The row of a number, with every column of a true one: an error that falls until four heads."""
    heads, length, seed = i % 8 + 1, LENGTHS[i // 8 % 5], i // 40
    error = 10.0 ** -(min(heads, 4) + noise)
    return {
        "run": f"{i:016x}",
        "task": "LinearMax",
        "length": length,
        "heads": heads,
        "head_dim": 8,
        "layers": f"{heads}x8",
        "embed_dim": 8 * heads,
        "width": 32,
        "positions": 0,
        "parameters": 4000 + 500 * heads,
        "feedforward_parameters": 3000,
        "seed": seed,
        "data_seed": seed,
        "lr": 3e-3,
        "weight_decay": 1e-4,
        "steps": 20000,
        "nmse": error,
        "final_nmse": 1.01 * error,
        "train_nmse": 0.97 * error,
        "best_step": 100 * (i % 200),
        "status": "done",
    }


def large_member(row: Any) -> dict[str, Any]:
    """What determines a row, as long as a true one is."""
    task = {"class": "LinearMax", "directions": [[0.1234567 * k, -0.7654321 * k] for k in range(4)]}
    task |= {"length": row["length"]}
    arch = {"layers": [[row["heads"], 8]], "width": 32, "positions": 0, "embed_dim": row["embed_dim"]}
    recipe = {"samples": 8000, "validation": 2000, "epochs": 150, "batch": 100, "dtype": "float32", "evaluations": 60}
    return {"task": task, "arch": arch, "recipe": recipe, "seed": row["seed"], "data_seed": row["seed"], "lr": 3e-3}


def measured_command(command: str, folder: Path) -> dict[str, float]:
    """Seconds by the clock and of the processor, and megabytes, that a command takes as a process of its own."""
    words = [sys.executable, "-c", MEASURED, *command.split(), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True)
    spent = json.loads(done.stderr.splitlines()[-1])
    return {**{name: round(value, 1) for name, value in spent.items()}, "load": round(os.getloadavg()[0], 1)}


def main(rows: int, folder: Path) -> dict[str, Any]:
    """All commands on a store of so many rows, which is made where there is none."""
    if not (folder / "s" / "rows.sqlite").exists():
        large_store(folder / "s", rows)
    measured = {
        command: measured_command(command, folder if command == "runs" else folder / "s") for command in COMMANDS
    }
    page = (folder / "s" / "report.html").stat().st_size / 1e6
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "platform": platform.platform(terse=True)}
    date = today()
    return {"rows": rows, "date": date, **machine, "commands": measured, "page_mb": round(page, 2)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        rows, place = [*sys.argv[1:], *("1000000", scratch)[len(sys.argv) - 1 :]][:2]
        print(json.dumps(main(int(rows), Path(place)), indent=1))
