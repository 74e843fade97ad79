"""Model-steps a second: the bank against the usual ways, the same work in the same run.

    python -m benchmarks.bank_speed --device cpu
    python -m benchmarks.bank_speed --device cuda --limit 300 --json docs/data/bank_speed_cuda.json

Every contestant starts from the same parameters and visits the same samples in the same order; after two epochs the
losses it reached stand beside the reference's. Results are written as they come, so that a stop loses nothing.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import importlib.util
import json
import math
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path as File
from typing import Any

import torch

from benchmarks.ceilings import ceilings
from benchmarks.peers import batched, one_by_one, vmapped
from benchmarks.problem import Problem, Size, Train, of_path
from headcount.training.paths import Path, as_it_is, eager, fused, graph, recorded, reference

Contestant = Callable[[Problem], Train]
ALONE = ("one by one", "one by one, compiled")  # they train one network; its steps a second are the model-steps
REFERENCE = "plain batched products"
OURS = {"cpu": eager.name, "cuda": "fused (half), CUDA graph"}
PEER = {"cpu": ("one by one", "vmap"), "cuda": ("JAX vmap + scan",)}
CELLS = {
    "cuda": [Size(512, 32), Size(512, 128), Size(1024, 8), Size(64, 32)],
    "cpu": [Size(16, 32, batch=128, steps_per_epoch=2)],
}


def contestants(device: str) -> dict[str, Contestant]:
    """Everyone who can run here, the most telling first."""
    record = graph if device == "cuda" else as_it_is
    found: dict[str, Contestant] = {}
    if device == "cuda":
        found[OURS["cuda"]] = partial(of_path, path=fused("half"))
        if importlib.util.find_spec("jax"):
            from benchmarks.peers_jax import scanned

            found["JAX vmap + scan"] = partial(scanned, form="plain")
            found["JAX vmap + scan, collapsed"] = partial(scanned, form="collapsed")
        found[REFERENCE] = partial(of_path, path=reference)
        found[recorded.name] = partial(of_path, path=recorded)
        found["fused (fine), CUDA graph"] = partial(of_path, path=fused("fine"))
    else:
        found[OURS["cpu"]] = partial(of_path, path=eager)
        found[REFERENCE] = partial(of_path, path=reference)
    found["vmap"] = vmapped
    found["one by one"] = one_by_one
    if device == "cuda":
        for form in ("plain", "collapsed"):
            name = f"{form} batched products, compiled, CUDA graph"
            found[name] = partial(of_path, path=batched(form, compiled=True, record=record))
        found["one by one, compiled"] = partial(one_by_one, compiled=True)
    return found


class Run:
    """Measurements so far, and the time that is left."""

    def __init__(self, device: str, limit: float, seconds: float, file: File | None) -> None:
        self.device, self.seconds, self.file = device, seconds, file
        self.end = time.perf_counter() + limit
        self.rows: list[dict[str, Any]] = []
        self.growth: list[dict[str, Any]] = []
        self.about = {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "device": torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads",
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        self.ceilings = ceilings(device)

    def left(self) -> float:
        return self.end - time.perf_counter()

    def save(self) -> None:
        if self.file is not None:
            whole = {**self.about, "ceilings": self.ceilings, "cells": self.rows, "growth": self.growth}
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(whole, indent=1) + "\n")

    def measure(self, name: str, contestant: Contestant, size: Size) -> dict[str, Any]:
        """Losses after two epochs, then epochs against the clock; the median of three."""
        problem = Problem(size, self.device)
        start_memory, started = self._memory(), time.perf_counter()
        epoch, theta = contestant(problem)
        epoch()
        epoch()
        losses = problem.losses(theta().detach())
        made = time.perf_counter() - started
        steps = size.steps_per_epoch * (1 if name in ALONE else size.models)
        rates = sorted(self._rate(epoch, steps) for _ in range(3))
        row = {
            "way": name,
            **{key: getattr(size, key) for key in ("models", "length", "batch", "heads", "layers")},
            "rate": rates[1],
            "spread": (rates[2] - rates[0]) / rates[1],
            "loss": losses.median().item(),
            "first loss": losses[0].item(),
            "seconds to start": made,
            "peak bytes": None if name.startswith("JAX") else self._memory() - start_memory,
            "data bytes": problem.x.numel() * 4,
            "operations": size.operations(),
            "traffic": size.traffic(problem.theta.shape[1]),
        }
        del problem, epoch, theta
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return row

    def _rate(self, epoch: Callable[[], None], steps: int) -> float:
        self._wait()
        start, epochs = time.perf_counter(), 0
        while (spent := time.perf_counter() - start) < self.seconds / 3:
            epoch()
            self._wait()
            epochs += 1
        return epochs * steps / spent

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _memory(self) -> int:
        """Peak since the last call, on a GPU."""
        if self.device != "cuda":
            return 0
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak


def race(run: Run, cells: list[Size], everyone: dict[str, Contestant]) -> None:
    """Every contestant on every cell; who cannot run says why in one line and the race goes on."""
    for name, contestant in everyone.items():
        for size in cells:
            if run.left() < 15:
                print(f"no time left for {name} at K={size.models}, T={size.length}")
                continue
            try:
                row = run.measure(name, contestant, size)
            except Exception as error:  # a peer's failure must not cost the table
                print(f"{name} at K={size.models}, T={size.length} failed: {str(error).splitlines()[0][:150]}")
                continue
            run.rows.append(row)
            run.save()
            print(
                f"{name:48} K={size.models:<5} T={size.length:<4} {row['rate']:>12,.0f} model-steps/s "
                f"+-{50 * row['spread']:.0f}%  loss {row['loss']:.4f}  ({row['seconds to start']:.1f} s to start)",
                flush=True,
            )


def growth(run: Run, way: Contestant, base: Size) -> None:
    """How one step's time and memory grow with the bank, the length, the heads and the batch."""
    import dataclasses

    axes = {
        "models": (256, 512, 1024, 2048, 4096),
        "length": (8, 16, 32, 64, 128, 256),
        "heads": (1, 2, 4, 8, 16),
        "batch": (64, 128, 256, 512, 1024),
    }
    for axis, values in axes.items():
        for value in values:
            if run.left() < 12:
                return
            size = dataclasses.replace(base, **{axis: value, "steps_per_epoch": 8})
            row = run.measure(OURS[run.device], way, size)
            run.growth.append({"axis": axis, "value": value, **row})
            run.save()
            step = 1e6 * size.models / row["rate"]
            print(f"{axis} {value}: {step:,.0f} us a step, peak {row['peak bytes'] / 2**20:,.0f} MiB", flush=True)


def slope(points: list[tuple[float, float]]) -> float:
    """Least-squares slope of log y on log x."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mx, my = (sum(v) / len(logs) for v in zip(*logs, strict=True))
    return sum((x - mx) * (y - my) for x, y in logs) / sum((x - mx) ** 2 for x, _ in logs)


def table(whole: dict[str, Any], device: str) -> str:
    """One table of model-steps a second, and beneath it what the ratios, slopes and shares are."""
    cells = list(dict.fromkeys((r["models"], r["length"]) for r in whole["cells"]))
    ways = list(dict.fromkeys(r["way"] for r in whole["cells"]))
    rate = {(r["way"], r["models"], r["length"]): r for r in whole["cells"]}
    lines = [
        f"{whole['device']}, torch {whole['torch']}, {whole['date']}; model-steps a second (loss after 2 epochs)",
        f"{'way':48}" + "".join(f"{f'K={k}, T={t}':>24}" for k, t in cells),
    ]
    for way in ways:
        found = [rate.get((way, *cell)) for cell in cells]
        lines.append(f"{way:48}" + "".join(f"{_cell(r, way):>24}" for r in found))
    ours = OURS[device]
    for peer in PEER[device]:
        ratios = [
            f"{rate[ours, *cell]['rate'] / rate[peer, *cell]['rate']:.1f}x" if (peer, *cell) in rate else "-"
            for cell in cells
            if (ours, *cell) in rate
        ]
        lines.append(f"{'ours over ' + peer:48}" + "".join(f"{r:>24}" for r in ratios))
    for kind, what in (("operations", "product"), ("traffic", "copy")):
        for ceiling in (name for name in whole["ceilings"] if what in name):
            shares = [
                f"{r['rate'] * r[kind] / whole['ceilings'][ceiling]:.1%}"
                for cell in cells
                if (r := rate.get((ours, *cell)))
            ]
            label = f"ours: share of the {ceiling} ({whole['ceilings'][ceiling]:.2e}/s)"
            lines.append(f"{label:48}" + "".join(f"{s:>24}" for s in shares))
    for axis in dict.fromkeys(g["axis"] for g in whole["growth"]):
        points = [g for g in whole["growth"] if g["axis"] == axis]
        if len(points) > 1:
            time_slope = slope([(g["value"], g["models"] / g["rate"]) for g in points])
            lines.append(f"time of a step grows as {axis}^{time_slope:.2f} for {axis} {[g['value'] for g in points]}")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None, way: str) -> str:
    if row is None:
        return "-"
    return f"{row['rate']:,.0f} ({row['first loss' if way in ALONE else 'loss']:.4f})"


def interleaved(run: Run, size: Size, everyone: dict[str, Contestant], rounds: int) -> None:
    """On a busy CPU: everyone a little, again and again; the medians' ratios within one run."""
    problem = Problem(size, run.device)
    ready = {name: contestant(problem) for name, contestant in everyone.items()}
    losses = {}
    for name, (epoch, theta) in ready.items():
        epoch()
        epoch()
        losses[name] = problem.losses(theta().detach())
    rates: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, (epoch, _) in ready.items():
            steps = size.steps_per_epoch * (1 if name in ALONE else size.models)
            rates[name].append(run._rate(epoch, steps))
    for name, found in rates.items():
        found.sort()
        run.rows.append({
            "way": name, **{key: getattr(size, key) for key in ("models", "length", "batch", "heads", "layers")},
            "rate": found[len(found) // 2], "spread": (found[-1] - found[0]) / found[len(found) // 2],
            "loss": losses[name].median().item(), "first loss": losses[name][0].item(),
            "operations": size.operations(), "traffic": size.traffic(problem.theta.shape[1]),
        })  # fmt: skip
    run.save()


def deep(run: Run) -> None:
    """Two layers: the bank by batched products, recorded, with and without the compiler."""
    size = Size(128, 32, layers=2)
    ways: dict[str, Path] = {
        "two layers, " + REFERENCE: reference,
        "two layers, " + recorded.name: recorded,
        "two layers, collapsed, compiled, CUDA graph": batched("collapsed", compiled=True, record=graph),
    }
    race(run, [size], {name: partial(of_path, path=path) for name, path in ways.items()})


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    ask.add_argument("--quick", action="store_true", help="one cell, no growth")
    ask.add_argument("--json", type=File, default=None, help="write the measurements here as they come")
    ask.add_argument("--limit", type=float, default=300.0, help="seconds in all")
    ask.add_argument("--seconds-per-cell", type=float, default=1.0)
    asked = ask.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    if asked.device == "cpu":
        torch.set_num_threads(2)
    run = Run(asked.device, asked.limit, asked.seconds_per_cell, asked.json)
    everyone, cells = contestants(asked.device), CELLS[asked.device]
    if asked.device == "cpu":
        interleaved(run, cells[0], everyone, rounds=3 if asked.quick else 9)
    else:
        first = dict(list(everyone.items())[:5])
        race(run, cells[:1] if asked.quick else cells, first)
        if not asked.quick:
            growth(run, everyone[OURS["cuda"]], Size(512, 32))
            race(run, cells, {name: way for name, way in everyone.items() if name not in first})
            deep(run)
    run.save()
    print("\n" + table({**run.about, "ceilings": run.ceilings, "cells": run.rows, "growth": run.growth}, asked.device))


if __name__ == "__main__":
    main()
