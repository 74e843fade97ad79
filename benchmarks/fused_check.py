"""Check the fused bank against the plain one, time its step, and train with it: `python -m benchmarks.fused_check`.

On a machine without a GPU, `TRITON_INTERPRET=1 python -m benchmarks.fused_check --tiny` runs the same lines slowly.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from functools import partial

import torch

from headcount.nets import Architecture
from headcount.tasks import LinearMax
from headcount.training import Bank, Member, Recipe, train
from headcount.training.backends import fused as kernels
from headcount.training.backends.choice import Path, Record, as_it_is, fused, graph, recorded
from headcount.training.backends.plain import Batch, collapsed, plain
from headcount.training.backends.tiles import Tile
from headcount.training.loop import _Run

SHAPES = [  # (heads, head_dim, width) of each member, longest, lengths, batch
    ([(4, 8, 32)] * 3, 32, None, 50),
    ([(1, 4, 8), (3, 5, 20), (4, 4, 32)], 12, [7, 12, 3], 33),
    ([(5, 4, 24), (2, 2, 10)], 150, [150, 77], 9),
    ([(2, 3, 64), (16, 4, 64)], 5, None, 40),
    ([(2, 8, 128)], 300, None, 7),
]
CELLS = [(512, 32), (1024, 8), (512, 128), (64, 32)]


def way(tile: Tile, record: Record) -> Path:
    """The fused path with a given tile."""
    known = fused(tile.precision)
    return replace(known, gradient=partial(kernels.gradient, tile=tile), record=record)


def relative(got: torch.Tensor, true: torch.Tensor) -> float:
    return (got.double() - true).norm().item() / true.norm().item()


def gaps(shape, precision: str, device: str, generator: torch.Generator) -> tuple[float, float]:
    """Relative gap of the whole gradient, by the fused step and by autograd through the fused pool."""
    members, longest, lengths, count = shape
    archs = [Architecture(layers=((h, n),), width=w, positions=1) for h, n, w in members]
    bank = Bank(archs, 4, list(range(len(archs))), device=device)
    data = torch.randn(2, 64, longest, 5, generator=generator).to(device)
    which = torch.arange(len(archs), device=device) % 2
    rows = torch.stack([torch.randperm(64, generator=generator)[:count] for _ in archs]).to(device)
    target = torch.randn(len(archs), count, generator=generator).to(device)
    present = None
    if lengths is not None:
        present = torch.arange(longest, device=device) < torch.tensor(lengths, device=device)[:, None]
    batch, tile = Batch(data, which, rows, present), Tile(precision=precision)
    wide = Bank(archs, 4, list(range(len(archs))), dtype=torch.float64, device=device)
    theta = bank.theta.double().requires_grad_()
    truth = plain(wide, wide.named(theta), Batch(data.double(), which, rows, present)) - target
    (true,) = torch.autograd.grad(truth.square().mean(dim=1).sum(), theta)
    theta = bank.theta.clone().requires_grad_()
    gap = collapsed(bank, bank.named(theta), batch, pool=partial(kernels.pool, tile=tile)) - target
    (pooled,) = torch.autograd.grad(gap.square().mean(dim=1).sum(), theta)
    return relative(kernels.gradient(bank, batch, target, tile), true), relative(pooled, true)


def trained(path: Path, device: str, seeds: int, epochs: int) -> list[float]:
    """NMSE of the same network from many seeds, smallest first: does rounding put a floor under training?"""
    recipe = Recipe(samples=8000, validation=2000, epochs=epochs, batch=256, evaluations=4)
    arch = Architecture(layers=((4, 8),), width=32)
    members = [Member(LinearMax.random(4, 4, 8), arch, seed=k, lr=3e-3) for k in range(seeds)]
    return sorted(row["final_nmse"] for row in train(members, recipe, device=device, path=path).rows)


def bank_run(models: int, length: int, path: Path, device: str, samples: int = 8192) -> _Run:
    arch = Architecture(layers=((4, 8),), width=32, positions=1)
    members = [Member(LinearMax.random(4, 4, length), arch, seed=k) for k in range(models)]
    return _Run(members, Recipe(samples=samples, validation=64, epochs=100, batch=256), device, path)


def speed(run: _Run, seconds: float) -> float:
    """Model-steps per second, without the drawing of the order."""
    epochs = 0
    run.epoch(0)
    torch.cuda.synchronize()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        run.advance()
        torch.cuda.synchronize()
        epochs += 1
    return epochs * run.stretch * len(run.members) / (time.perf_counter() - start)


def profile(run: _Run) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watched

    torch.cuda.synchronize()
    with watched(activities=[ProfilerActivity.CUDA]) as seen:
        run.advance()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda e: -e.device_time_total)
    total = sum(e.device_time_total for e in rows) / run.stretch
    print(f"  one step: {sum(e.count for e in rows) / run.stretch:.0f} kernels, {total:.0f} us on the device")
    for e in rows[:12]:
        print(f"    {e.device_time_total / run.stretch:8.1f} us  x{e.count / run.stretch:<4.0f} {e.key[:90]}")


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--tiny", action="store_true")
    ask.add_argument("--limit", type=float, default=100.0, help="seconds in all")
    asked = ask.parse_args()
    began, device = time.perf_counter(), "cpu" if asked.tiny else "cuda"
    generator = torch.Generator().manual_seed(0)

    def left() -> float:
        return asked.limit - (time.perf_counter() - began)

    checks = [("half", 0), ("half", 1), ("half", 2), ("fine", 1), ("fine", 3), ("half", 4)]
    for precision, number in checks:
        step, pool = gaps(SHAPES[number], precision, device, generator)
        print(f"{precision:5} {SHAPES[number]}: gradient gap {step:.1e}, through pool {pool:.1e}", flush=True)
    print(f"checked after {time.perf_counter() - began:.0f} s", flush=True)
    if asked.tiny:
        bank_run(2, 8, way(Tile(), as_it_is), device, samples=256).epoch(0)
        return
    base, fine = Tile(), Tile(precision="fine")
    variants = [
        (512, 32, base), (1024, 8, base), (512, 128, base), (64, 32, base),
        (512, 32, replace(base, registers=128)), (512, 32, fine), (512, 32, replace(base, tail=16384)),
        (512, 32, replace(base, stages=2)), (1024, 8, replace(base, registers=128)), (1024, 8, fine),
        (1024, 8, replace(base, tail=16384)), (512, 32, replace(base, rows=64)), (64, 32, replace(base, parts=16)),
        (4096, 32, base),
    ]  # fmt: skip
    for number, (models, length, tile) in enumerate(variants):
        if left() < 30:
            print("short of time")
            break
        start = time.perf_counter()
        run = bank_run(models, length, way(tile, graph), device)
        made = time.perf_counter() - start
        print(f"K={models} T={length} {tile}: {speed(run, 0.25):,.0f} model-steps/s (made in {made:.1f} s)", flush=True)
        if number < 4:
            profile(run)
        del run
        torch.cuda.empty_cache()
    for path in (fused("half"), fused("fine"), recorded):
        start = time.perf_counter()
        found = trained(path, device, 24, 1000)
        shown = " ".join(f"{x:.1e}" for x in found)
        print(f"{path.name}: NMSE of 24 seeds ({time.perf_counter() - start:.0f} s): {shown}", flush=True)


if __name__ == "__main__":
    main()
