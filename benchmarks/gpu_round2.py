"""Deep and wide banks on a GPU in five minutes: our ways and JAX at eight shapes, then the fuzz.

    python -m benchmarks.gpu_round2 --limit 300 --json round2.json --fuzz fuzz.json --peers docs/data/deep_speed.json

Kernels are compiled first, many at a time. Then every way has a process of its own at every shape, so that an illegal
address spoils one cell; the next process gets ready meanwhile, and takes the device when the last one lets go.
`--peers` stands in for JAX at shapes for which no time is left (the row says from when). Written as it comes.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path as File
from typing import Any

import torch

from benchmarks import deep_race, fuzz
from benchmarks.measuring import SHAPE, Contestant, Run
from benchmarks.problem import Problem, Size, of_path
from headcount.training.backends.choice import Path, fused, layered, sublayered
from headcount.training.backends.plain import Batch
from headcount.training.backends.tiles import LayerTile

TILES = {
    "rows=64": LayerTile(rows=64),
    "registers=128": LayerTile(registers=128),
    "composed=32": LayerTile(composed=32),
    "feed=True": LayerTile(feed=True),
    "strip=32": LayerTile(strip=32),
    "feeding=(64, 4)": LayerTile(feeding=(64, 4)),
    "feeding=(32, 8)": LayerTile(feeding=(32, 8)),
}
AT = {0: tuple(TILES)[:6], 1: ("strip=32", "feeding=(32, 8)"), 3: ("rows=64",)}  # which are tried at which shape
SHAPES = [*deep_race.DEEP, *deep_race.WIDE]
DEEP = range(len(deep_race.DEEP))
PROFILED = (0, 1)
READY = 3  # processes at a time: one measures, the others load


def ways(number: int) -> dict[str, Path]:
    """Our paths at a shape."""
    if number not in DEEP:
        return {fused().name: fused()}
    found = {path.name: path for path in (sublayered(), layered(), layered(at_once=False))}
    return found | {f"layers in kernels (half), {name}": layered(tile=TILES[name]) for name in AT.get(number, ())}


def peers(number: int) -> list[str]:
    """The faster JAX peer of the last race at a shape."""
    return ["JAX vmap + scan, dot_product_attention" if number in DEEP else "JAX vmap + scan"]


def contestant(number: int, name: str) -> Contestant:
    """Who runs in one process."""
    if name.startswith("JAX"):
        return deep_race.deep_contestants("deep JAX" if number in DEEP else "wide JAX")[name]
    return partial(of_path, path=ways(number)[name])


def cells() -> list[tuple[int, str]]:
    """What is measured, in this order: our two ways everywhere, JAX on deep banks, our tiles, JAX on wide banks."""
    ours = [(n, name) for n in range(len(SHAPES)) for name in list(ways(n))[:2]]
    tiles = [(n, name) for n in DEEP for name in list(ways(n))[2:]]
    theirs = [(n, name) for n in range(len(SHAPES)) for name in peers(n)]
    return [*ours, *theirs[: len(DEEP)], *tiles, *theirs[len(DEEP) :]]


def compiled(number: int, name: str) -> None:
    """One small step with a shape's kernels, which leaves them in Triton's cache."""
    epoch, _ = of_path(Problem(replace(SHAPES[number], models=4, steps_per_epoch=1), "cuda"), ways(number)[name])
    epoch()
    torch.cuda.synchronize()


@contextmanager
def alone(lock: File) -> Iterator[None]:
    """The device to oneself."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured(number: int, name: str, seconds: float) -> dict[str, Any]:
    """One cell."""
    torch.backends.cuda.matmul.allow_tf32 = True
    run = Run("cuda", 60.0, seconds, None, time.perf_counter)
    row = run.measure(name, contestant(number, name), SHAPES[number])
    row["by kernel"] = profile(SHAPES[number], ways(number)[name]) if _profiled(number, name) else None
    return {**row, **run.about}


def _profiled(number: int, name: str) -> bool:
    return number in PROFILED and name in list(ways(number))[:2]


def profile(size: Size, path: Path, steps: int = 4) -> dict[str, float]:
    """Microseconds of a step by kernel, the longest twelve."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    problem = Problem(size, "cuda")
    bank, rows = problem.bank(), problem.order[:, : size.batch].contiguous()
    batch, target = Batch(problem.x, problem.which, rows, None, path.pack(problem.x)), problem.y[0][rows]
    path.gradient(bank, batch, target)
    with watch(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            path.gradient(bank, batch, target)
        torch.cuda.synchronize()
    times = {event.key[:70]: event.self_device_time_total / steps for event in seen.key_averages()}
    return dict(sorted(times.items(), key=lambda item: -item[1])[:12])


def child(asked: argparse.Namespace) -> None:
    """One cell in this process; an error is a row too."""
    number, name = int(asked.one.split(":", 1)[0]), asked.one.split(":", 1)[1]
    shape = {key: getattr(SHAPES[number], key) for key in SHAPE}
    try:
        if asked.compile:
            compiled(number, name)
            return
        with alone(asked.lock):
            row = measured(number, name, asked.seconds_per_cell)
    except Exception as error:  # one way that cannot run must not cost the table
        row = {"way": name, **shape, "error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160]}"}
    if not asked.compile:
        asked.json.write_text(json.dumps(row))


class Round:
    """The rows so far, and the time that is left."""

    def __init__(self, asked: argparse.Namespace, folder: File) -> None:
        self.asked, self.folder = asked, folder
        self.end = time.perf_counter() + asked.limit
        self.rows: list[dict[str, Any]] = []

    def left(self) -> float:
        return self.end - time.perf_counter()

    def start(self, cell: tuple[int, str], *options: str, limit: float) -> dict[str, Any] | None:
        """A process for one cell; its row, or None where it left none."""
        number, name = cell
        file = self.folder / f"{number}-{abs(hash(name))}.json"
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu_round2", "--one", f"{number}:{name}"]
        command += ["--lock", str(self.folder / "lock"), "--json", str(file), *options]
        command += ["--seconds-per-cell", str(self.asked.seconds_per_cell)]
        try:
            subprocess.run(command, check=False, timeout=max(1.0, limit))
        except subprocess.TimeoutExpired:
            print(f"{name} at shape {number} was stopped", flush=True)
        return json.loads(file.read_text()) if file.exists() else None

    def compile(self, limit: float) -> None:
        """All our kernels, as many at a time as there are cores."""
        ours = [cell for cell in cells() if not cell[1].startswith("JAX")]
        with ThreadPoolExecutor(14) as pool:
            list(pool.map(lambda cell: self.start(cell, "--compile", limit=limit), ours))

    def race(self, keep: float) -> None:
        """Every cell for which there is time, so that `keep` seconds are left."""

        def one(cell: tuple[int, str]) -> None:
            if self.left() < keep + 8:
                print(f"no time left for {cell[1]} at shape {cell[0]}", flush=True)
                return
            row = self.start(cell, limit=min(60.0, self.left() - keep))
            if row is not None:
                self.rows.append(row)
                self.save()
                print(f"{cell[1]:48} shape {cell[0]}: {row.get('error') or format(row['rate'], ',.0f')}", flush=True)

        with ThreadPoolExecutor(READY) as pool:
            list(pool.map(one, cells()))

    def save(self) -> None:
        done, failed = [r for r in self.rows if "rate" in r], [r for r in self.rows if "error" in r]
        about = {key: done[0][key] for key in ("date", "device", "torch", "python")} if done else {}
        here = done + [r for r in earlier(self.asked.peers) if not _has_peer(done, r)]
        whole = {**about, "ratios": deep_race.ratios(here), "cells": done, "failed": failed}
        self.asked.json.write_text(json.dumps(whole, indent=1) + "\n")


def earlier(file: File | None) -> list[dict[str, Any]]:
    """JAX as another run measured it, its date in its name."""
    if file is None or not file.exists():
        return []
    run = json.loads(file.read_text())
    return [{**r, "way": f"{r['way']} ({run['date']})"} for r in run["cells"] if r["way"].startswith("JAX")]


def _has_peer(rows: list[dict[str, Any]], other: dict[str, Any]) -> bool:
    same = [r for r in rows if all(r[key] == other[key] for key in SHAPE)]
    return not same or any(r["way"].startswith("JAX") for r in same)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--limit", type=float, default=300.0, help="seconds in all")
    ask.add_argument("--fuzz-seconds", type=float, default=60.0)
    ask.add_argument("--json", type=File, default=File("round2.json"))
    ask.add_argument("--fuzz", type=File, default=None, help="write what the fuzz found here")
    ask.add_argument("--peers", type=File, default=None, help="an earlier race, for JAX where no time is left")
    ask.add_argument("--seconds-per-cell", type=float, default=0.6)
    ask.add_argument("--one", default="", help="one cell, SHAPE:WAY, in this process")
    ask.add_argument("--compile", action="store_true")
    ask.add_argument("--lock", type=File, default=File("lock"))
    asked = ask.parse_args()
    if asked.one:
        child(asked)
        return
    with tempfile.TemporaryDirectory() as folder:
        whole = Round(asked, File(folder))
        keep = asked.fuzz_seconds + 5 if asked.fuzz else 0.0
        whole.compile(limit=60.0)
        print(f"compiled; {whole.left():.0f} s left", flush=True)
        whole.race(keep)
        print(deep_race.table([row for row in whole.rows if "rate" in row]), flush=True)
        if asked.fuzz and whole.left() > 20:
            fuzz.run(asked.fuzz, cases=300, processes=14, limit=whole.left() - 5)


if __name__ == "__main__":
    main()
