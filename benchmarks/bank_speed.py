"""Model-steps per second: the bank against the usual ways, the same work in the same run.

    python -m benchmarks.bank_speed --device cpu
    python -m benchmarks.bank_speed --device cuda --limit 300 --json bank_speed_cuda.json
    python -m benchmarks.bank_speed --device cuda --deep --limit 450 --json deep_speed.json

Every contestant starts from the same parameters and visits the same samples in the same order; after two epochs the
losses it reached stand beside the reference's. On a GPU each group of contestants has a process of its own, so that
one that fails spoils no other. Results are written as they come, so that a stop loses nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path as File
from typing import Any

import torch

from benchmarks import deep_race
from benchmarks.ceilings import ceilings
from benchmarks.cpu_race import CPU_OURS, CPU_PEERS, cpu_race, cpu_table
from benchmarks.measuring import ALONE, Contestant, Run, growth, race
from benchmarks.peers import batched, one_by_one, vmapped
from benchmarks.problem import Size, of_backend
from headcount.kernels.backend import Backend, graph, recorded, reference
from headcount.kernels.tiles import Tile

REFERENCE = "plain batched products"
PLAIN, COLLAPSED = replace(reference, name=REFERENCE), replace(recorded, name="collapsed, CUDA graph")
KINDS = ("half", "fine")
OURS = {"cpu": CPU_OURS, "cuda": "fused (half), CUDA graph"}
PEER = {"cpu": CPU_PEERS, "cuda": ("JAX vmap + scan",)}
CELLS = [Size(512, 32), Size(512, 128), Size(1024, 8), Size(64, 32)]
DEEP = [Size(128, 32, layers=2), Size(48, 64, heads=6, layers=2, width=128, steps_per_epoch=8)]
GROUPS = {"ours": 60.0, "JAX": 110.0, "torch": 80.0, "growth": 80.0, "two layers": 90.0, "compiled": 120.0}  # seconds
EVERY = {**GROUPS, **deep_race.DEEP_GROUPS}


def contestants(group: str) -> dict[str, Contestant]:
    """Who runs in one process."""
    if group in deep_race.DEEP_GROUPS:
        return deep_race.deep_contestants(group)
    if group == "ours":
        return _by_name(*(deep_race.tiled(f"fused ({kind}), CUDA graph", Tile(precision=kind)) for kind in KINDS))
    if group == "JAX":
        return _jax()
    if group == "torch":
        return {**_by_name(PLAIN, COLLAPSED), "vmap": vmapped, "one by one": one_by_one}
    if group == "two layers":
        from headcount.kernels import parts
        from headcount.kernels.cuda import class_network

        compiled = replace(_compiled("collapsed"), name="collapsed, compiled, CUDA graph")
        ours = (class_network.backend, parts.backend, COLLAPSED, PLAIN, compiled)
        return _by_name(*(replace(backend, name=f"two layers, {backend.name}") for backend in ours))
    banks = _by_name(*(_compiled(form) for form in ("plain", "collapsed")))
    return {**banks, "one by one, compiled": partial(one_by_one, compiled=True)}


def _by_name(*backends: Backend) -> dict[str, Contestant]:
    return {backend.name: partial(of_backend, backend=backend) for backend in backends}


def _compiled(form: str) -> Backend:
    backend = batched(form, compiled=True, record=graph)
    return replace(backend, name=f"{backend.name}, compiled, CUDA graph")


def _jax() -> dict[str, Contestant]:
    if not importlib.util.find_spec("jax"):
        print("JAX is not installed: no JAX in this race")
        return {}
    from benchmarks.peers_jax import scanned

    names = {"JAX vmap + scan": "plain", "JAX vmap + scan, collapsed": "collapsed"}
    return {name: partial(scanned, form=form) for name, form in names.items()}


def compete(group: str, run: Run, quick: bool) -> None:
    """One group's share of the race, in this process."""
    if group == "CPU":
        cpu_race(run, rounds=3 if quick else 9)
    elif group == "growth":
        growth(run, OURS["cuda"], contestants("ours")[OURS["cuda"]], Size(512, 32))
    else:
        if group == "ours":
            run.ceilings = ceilings("cuda")
        cells = DEEP if group == "two layers" else CELLS
        if group in deep_race.DEEP_GROUPS:
            cells = deep_race.cells(group)
        race(run, cells[:1] if quick else cells, contestants(group))
    run.save()


def apart(group: str, run: Run, asked: argparse.Namespace) -> None:
    """The same in a process of its own; what it measured is taken in even if it came to grief."""
    with tempfile.TemporaryDirectory() as folder:
        file, seconds = File(folder) / "part.json", min(EVERY[group], run.left())
        options = ["--device", "cuda", "--limit", str(seconds), "--seconds-per-cell", str(asked.seconds_per_cell)]
        command = [sys.executable, "-u", "-m", "benchmarks.bank_speed", *options, "--group", group, "--json", str(file)]
        try:
            subprocess.run([*command, *(["--quick"] if asked.quick else [])], check=False, timeout=seconds + 20)
        except subprocess.TimeoutExpired:
            print(f"the group {group} was stopped after {seconds + 20:.0f} s", flush=True)
        if file.exists():
            run.take_in(json.loads(file.read_text()))


def slope(points: list[tuple[float, float]]) -> float:
    """Least-squares slope of log y on log x."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mx, my = (sum(v) / len(logs) for v in zip(*logs, strict=True))
    return sum((x - mx) * (y - my) for x, y in logs) / sum((x - mx) ** 2 for x, _ in logs)


def table(whole: dict[str, Any]) -> str:
    """One table of model-steps per second, and beneath it what the ratios, slopes and shares are."""
    cells = list(dict.fromkeys((r["models"], r["length"]) for r in whole["cells"]))
    titles = list(dict.fromkeys(r["way"] for r in whole["cells"]))
    rate = {(r["way"], r["models"], r["length"]): r for r in whole["cells"]}
    lines = [
        f"{whole['device']}, torch {whole['torch']}, {whole['date']}; model-steps per second (loss after 2 epochs)",
        f"{'way':48}" + "".join(f"{f'K={k}, T={t}':>24}" for k, t in cells),
    ]
    for title in titles:
        measured = [rate.get((title, *cell)) for cell in cells]
        lines.append(f"{title:48}" + "".join(f"{_cell(r, title):>24}" for r in measured))
    ours = OURS["cuda"]
    for peer in PEER["cuda"]:
        ratios = [
            f"{rate[ours, *cell]['rate'] / rate[peer, *cell]['rate']:.1f}x" if (peer, *cell) in rate else "-"
            for cell in cells
            if (ours, *cell) in rate
        ]
        lines.append(f"{'ours over ' + peer:48}" + "".join(f"{r:>24}" for r in ratios))
    for kind, what in (("operations", "product"), ("traffic", "copy")):
        for ceiling in (name for name in whole["ceilings"] if what in name):
            fractions = [
                f"{r['rate'] * r[kind] / whole['ceilings'][ceiling]:.1%}"
                for cell in cells
                if (r := rate.get((ours, *cell)))
            ]
            label = f"ours: share of the {ceiling} ({whole['ceilings'][ceiling]:.2e}/s)"
            lines.append(f"{label:48}" + "".join(f"{s:>24}" for s in fractions))
    for axis in dict.fromkeys(g["axis"] for g in whole["growth"]):
        points = [g for g in whole["growth"] if g["axis"] == axis]
        if len(points) > 1:
            time_slope = slope([(g["value"], g["models"] / g["rate"]) for g in points])
            lines.append(f"time of a step grows as {axis}^{time_slope:.2f} for {axis} {[g['value'] for g in points]}")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None, name: str) -> str:
    if row is None:
        return "-"
    return f"{row['rate']:,.0f} ({row['first loss' if name in ALONE else 'loss']:.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="one cell, no growth")
    parser.add_argument("--json", type=File, default=None, help="write the measurements here as they come")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds in all")
    parser.add_argument("--seconds-per-cell", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2, help="of a CPU")
    parser.add_argument("--busy", action="store_true", help="a CPU has other work: one thread, processor time")
    parser.add_argument("--deep", action="store_true", help="the shapes of deep and wide banks")
    parser.add_argument("--group", choices=EVERY, default=None, help="only this group, in this process")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    if options.device == "cpu":
        torch.set_num_threads(1 if options.busy else options.threads)
    clock = time.process_time if options.busy else time.perf_counter
    run = Run(options.device, options.limit, options.seconds_per_cell, options.json, clock)
    if options.device == "cpu" or options.group:
        compete(options.group or "CPU", run, options.quick)
    else:
        few = ("ours", "JAX", "torch") if options.quick else GROUPS
        for group in deep_race.DEEP_GROUPS if options.deep else few:
            if run.left() > 25:
                apart(group, run, options)
    if options.deep:
        run.about["ratios"] = deep_race.ratios(run.rows)
        run.save()
    if not options.group:
        on_cpu = options.device == "cpu"
        print(
            "\n" + (deep_race.table(run.rows) if options.deep else cpu_table(run.whole) if on_cpu else table(run.whole))
        )


if __name__ == "__main__":
    main()
