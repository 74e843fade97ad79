"""Is a time kept? `headcount measure --budget` as it stands in a shell, on the machine as it is and beside busy loops.

    python -m benchmarks.time_kept [--budgets 30,60,120] [--load 0,2] [--out docs/data/time_kept.json]

The data are 2000 sequences of 8 tokens, so that more seeds and steps remain at every budget. Counted is the whole
process, from its start to its end. The load of the machine is that of the minute before, as the system gives it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from headcount.files import whole

BUSY = "while True: pass"


def once(budget: float, busy: int) -> dict[str, Any]:
    """One measurement beside `busy` loops."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy)]
    try:
        with TemporaryDirectory() as folder:
            rng = np.random.default_rng(0)
            x = rng.standard_normal((2000, 8, 3))
            np.savez(Path(folder) / "mine.npz", x=x, y=x[:, :, :2].max(axis=1).sum(axis=1))
            load, start = os.getloadavg()[0], time.monotonic()
            command = ["measure", "mine.npz", "--budget", f"{budget:g}s", "--json"]
            done = subprocess.run(
                [sys.executable, "-m", "headcount", *command],
                cwd=folder,
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            )
            seconds = time.monotonic() - start
    finally:
        for loop in loops:
            loop.kill()
    told = json.loads(done.stdout)
    return {
        "budget": budget,
        "busy_loops": busy,
        "load_before": round(load, 1),
        "seconds": round(seconds, 1),
        "share": round(seconds / budget, 3),
        "heads": told["knee"]["tested"],
        "seeds": told["knee"]["seeds"],
        "steps": told["plan"]["steps"],
        "knee": told["knee"]["heads"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", default="30,60,120")
    parser.add_argument("--load", default="0,2")
    parser.add_argument("--out", type=Path, default=Path("docs/data/time_kept.json"))
    asked = parser.parse_args()
    rows = json.loads(asked.out.read_text()) if asked.out.exists() else []
    for budget in map(float, asked.budgets.split(",")):
        for busy in map(int, asked.load.split(",")):
            rows = [row for row in rows if (row["budget"], row["busy_loops"]) != (budget, busy)]
            rows.append(once(budget, busy))
            print(rows[-1], flush=True)
            with whole(asked.out) as scratch:
                scratch.write_text(json.dumps(rows, indent=1) + "\n")
    kept = sum(0.8 <= row["share"] <= 1.2 for row in rows)
    print(f"So: {kept} of {len(rows)} times were kept within a fifth.")


if __name__ == "__main__":
    main()
