"""Half an hour on a GPU in one command: correctness, races, decoders, published cells again, growth.

    python -m benchmarks.gpu_round3 --limit 1700 --out round3 [--peers-again]
    python -m benchmarks.gpu_round3 --dry --out /tmp/dry        (tiny sizes, Triton's interpreter, no device)

Every cell has a process of its own, so that an illegal address spoils one cell; the next one gets ready meanwhile and
takes the device when the last lets go. What is done is written at once into `OUT/round3.json`, and the same command
goes on from there: finished cells are not run again.
`--gather ROUND3 [AFTER]` writes docs/data/deep_speed.json from such files: the race, and growth and races since.
JAX's figures are those of earlier runs (`docs/data`), by date, unless `--peers-again`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path as File
from typing import Any

from benchmarks import deep_race, gpu_round2
from benchmarks.round3_cells import STAGES, Round3, cells_of, measured_cell

READY = 3  # processes at a time: one measures, the others load
LONGEST = {
    "fuzz": 150.0,
    "race": 60.0,
    "decoders": 100.0,
    "recheck": 120.0,
    "growth": 60.0,
}  # seconds


class Whole:
    """What is known so far, and the time that is left."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked, self.end = asked, time.perf_counter() + asked.limit
        self.file = asked.out / "round3.json"
        self.known: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.lock = threading.Lock()

    def left(self) -> float:
        return self.end - time.perf_counter()

    def run(self) -> None:
        """Every stage in order, each cell that is not known, while there is time."""
        if not self.asked.dry:
            self.compile()
        for stage in self.asked.stages.split(","):
            todo = [
                c for c in cells_of(Round3(stage, self.asked.dry, self.asked.peers_again)) if not self._done(stage, c)
            ]
            with ThreadPoolExecutor(1 if stage == "fuzz" else READY) as pool:
                list(pool.map(lambda cell, stage=stage: self.one(stage, cell), todo))
            print(f"{stage}: {len(todo)} cells; {self.left():.0f} s left", flush=True)

    def _done(self, stage: str, cell: str) -> bool:
        row = self.known.get(stage, {}).get(cell)
        return row is not None and "error" not in row

    def compile(self) -> None:
        """The kernels of the races, as many at a time as there are cores: they stay in Triton's cache."""
        todo = [c for c in cells_of(Round3("race", False, False)) if not self._done("race", c) and "JAX" not in c]
        with ThreadPoolExecutor(14) as pool:
            list(pool.map(lambda cell: self.child("race", cell, "--compile", limit=90.0), todo))
        print(f"compiled; {self.left():.0f} s left", flush=True)

    def one(self, stage: str, cell: str) -> None:
        if self.left() < 10:
            print(f"no time left for {stage} {cell}", flush=True)
            return
        row = self.child(stage, cell, limit=min(LONGEST[stage] * (4 if self.asked.dry else 1), self.left() - 3))
        with self.lock:
            self.known.setdefault(stage, {})[cell] = row
            self.save()
        print(f"{stage} {cell}: {_short(row)}", flush=True)

    def child(self, stage: str, cell: str, *more: str, limit: float) -> dict[str, Any]:
        """A process for one cell; its row, or what went wrong."""
        file = self.asked.out / f"{stage}-{abs(hash(cell))}.part"
        file.unlink(missing_ok=True)
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu_round3", "--one", f"{stage}:{cell}"]
        command += ["--json", str(file), "--out", str(self.asked.out), "--limit", str(limit), *more]
        command += ["--dry"] * self.asked.dry + ["--peers-again"] * self.asked.peers_again
        chosen = {"TRITON_INTERPRET": "1"} if self.asked.dry else {}
        try:
            done = subprocess.run(
                command, check=False, timeout=limit, capture_output=True, text=True, env={**os.environ, **chosen}
            )
            why = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1][:200]
        except subprocess.TimeoutExpired:
            why = f"stopped after {limit:.0f} s"
        row = json.loads(file.read_text()) if file.exists() else {"error": why}
        file.unlink(missing_ok=True)
        return row

    def save(self) -> None:
        race = [r for r in self.known.get("race", {}).values() if "rate" in r]
        rows = race + [r for r in _earlier(self.asked) if not gpu_round2._has_peer(race, r)]
        self.known["ratios"] = deep_race.ratios(rows) if rows else []
        self.file.write_text(json.dumps(self.known, indent=1) + "\n")


def _earlier(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """JAX as the committed race measured it, by shape its faster way of several dates."""
    file = File("docs/data/deep_speed.json")
    return [] if asked.peers_again or not file.exists() else gpu_round2.earlier(file)


def _short(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"]
    shown = {
        k: v for k, v in row.items() if isinstance(v, (int, float, str)) and k not in ("python", "torch", "device")
    }
    return ", ".join(f"{k} {v:.5g}" if isinstance(v, float) else f"{k} {v}" for k, v in list(shown.items())[:9])


def gathered(files: list[File], pairs: File = File("docs/data/pair_table.json")) -> dict[str, Any]:
    """The races, growth and record as docs/performance.md shows them; what the last file has of growth counts."""
    known = [json.loads(file.read_text()) for file in files]
    races = [[row for row in made.get("race", {}).values() if "rate" in row] for made in known]
    first = max(races[0], key=lambda row: row["date"])
    growth = [
        {"models": r["models"], "rate": r["rate"], "microseconds": 1e6 / r["rate"], "bytes": r["bytes per member"]}
        for r in known[-1]["growth"].values()
    ]
    record = json.loads(pairs.read_text()).get("draws") if pairs.exists() else None
    return {
        **{key: first[key] for key in ("date", "device", "torch", "python")},
        "command": "python -m benchmarks.gpu_round3 --stages growth,race --peers-again",
        "ratios": deep_race.ratios(races[0]),
        "growth": sorted(growth, key=lambda row: row["models"]),
        "record": {k: record[k] for k in ("members", "steps", "seconds", "date", "device")} if record else None,
        "after": [row for rows in races[1:] for row in rows],
        "cells": races[0],
        "failed": [],
    }


def child(asked: argparse.Namespace, made: Callable[..., dict[str, Any]] = measured_cell) -> None:
    """One cell in this process; an error is a row too."""
    stage, cell = asked.one.split(":", 1)
    try:
        row = made(Round3(stage, asked.dry, asked.peers_again), cell, asked.out, asked.limit, asked.compile)
    except Exception as error:  # one cell that cannot run must not cost the others
        row = {"error": f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:180]}"}
    if row:
        asked.json.write_text(json.dumps(row))


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--limit", type=float, default=1700.0, help="seconds in all")
    ask.add_argument("--out", type=File, default=File("round3"))
    ask.add_argument("--stages", default=",".join(STAGES))
    ask.add_argument("--dry", action="store_true", help="tiny sizes on the CPU, kernels interpreted")
    ask.add_argument("--peers-again", action="store_true", help="measure JAX anew")
    ask.add_argument("--one", default="", help="one cell, STAGE:CELL, in this process")
    ask.add_argument("--compile", action="store_true")
    ask.add_argument("--json", type=File, default=File("cell.json"))
    ask.add_argument("--gather", type=File, nargs="+", help="write docs/data/deep_speed.json from these files")
    asked = ask.parse_args()
    if asked.gather:
        File("docs/data/deep_speed.json").write_text(json.dumps(gathered(asked.gather), indent=1) + "\n")
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.one:
        child(asked)
        return
    whole = Whole(asked)
    whole.run()
    whole.save()
    print(deep_race.table([r for r in whole.known.get("race", {}).values() if "rate" in r] + _earlier(asked)))


if __name__ == "__main__":
    main()
