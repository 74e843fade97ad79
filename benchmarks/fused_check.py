"""Check the fused bank against the plain one and time its step: `python -m benchmarks.fused_check`.

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
from headcount.training import Bank, Member, Recipe, fused, train
from headcount.training.chance import epoch_order
from headcount.training.forward import Batch, collapsed, plain
from headcount.training.loop import _Run
from headcount.training.paths import Path, as_it_is, graph, reference

SHAPES = [  # (heads, head_dim, width) of each member, longest, lengths, batch
    ([(4, 8, 32)] * 3, 32, None, 50),
    ([(1, 4, 8), (3, 5, 20), (4, 4, 32)], 12, [7, 12, 3], 33),
    ([(5, 4, 24), (2, 2, 10)], 150, [150, 77], 9),
    ([(2, 3, 64), (16, 4, 64)], 5, None, 40),
    ([(2, 8, 128)], 300, None, 7),
]
CELLS = [(512, 32), (1024, 8), (512, 128), (64, 32)]


def way(tile: fused.Tile, record) -> Path:
    """The fused path with a given tile."""
    forward = partial(collapsed, pool=partial(fused.pool, tile=tile))
    return Path(f"fused {tile}", forward, partial(fused.gradient, tile=tile), record, fused.update, fused.pack)


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
    batch, tile = Batch(data, which, rows, present), fused.Tile(precision=precision)
    wide = Bank(archs, 4, list(range(len(archs))), dtype=torch.float64, device=device)
    theta = bank.theta.double().requires_grad_()
    truth = plain(wide, wide.named(theta), Batch(data.double(), which, rows, present)) - target
    (true,) = torch.autograd.grad(truth.square().mean(dim=1).sum(), theta)
    theta = bank.theta.clone().requires_grad_()
    gap = collapsed(bank, bank.named(theta), batch, pool=partial(fused.pool, tile=tile)) - target
    (pooled,) = torch.autograd.grad(gap.square().mean(dim=1).sum(), theta)
    return relative(fused.gradient(bank, batch, target, tile), true), relative(pooled, true)


def trained(path: Path, device: str, epochs: int) -> list[float]:
    """NMSE of a small mixed bank, trained."""
    recipe = Recipe(samples=512, validation=256, epochs=epochs, batch=64, evaluations=2)
    members = [
        Member(LinearMax.random(2, 4, 6 + 3 * k), Architecture(layers=((h, 4),), width=16 + 8 * k), seed=k)
        for k, h in enumerate((1, 2, 4))
    ]
    return [row["final_nmse"] for row in train(members, recipe, device=device, path=path).rows]


def bank_run(models: int, length: int, path: Path, device: str, samples: int = 8192) -> _Run:
    arch = Architecture(layers=((4, 8),), width=32, positions=1)
    members = [Member(LinearMax.random(4, 4, length), arch, seed=k) for k in range(models)]
    return _Run(members, Recipe(samples=samples, validation=64, epochs=100, batch=256), device, path)


def speed(run: _Run, seconds: float) -> float:
    """Model-steps a second of whole epochs, without the drawing of the order."""
    per_epoch, epochs = run.recipe.steps_per_epoch, 0

    def epoch() -> None:
        run.cursor.zero_()
        for _ in range(per_epoch):
            run.step()

    epoch()
    torch.cuda.synchronize()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        epoch()
        torch.cuda.synchronize()
        epochs += 1
    return epochs * per_epoch * len(run.members) / (time.perf_counter() - start)


def profile(run: _Run) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watched

    run.cursor.zero_()
    torch.cuda.synchronize()
    with watched(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(8):
            run.step()
        torch.cuda.synchronize()
    rows = sorted(seen.key_averages(), key=lambda e: -e.device_time_total)
    total = sum(e.device_time_total for e in rows) / 8
    print(f"  one step: {sum(e.count for e in rows) / 8:.0f} kernels, {total:.0f} us on the device")
    for e in rows[:16]:
        print(f"    {e.device_time_total / 8:8.1f} us  x{e.count / 8:<4.0f} {e.key[:90]}")


def main() -> None:
    ask = argparse.ArgumentParser()
    ask.add_argument("--tiny", action="store_true")
    ask.add_argument("--limit", type=float, default=100.0, help="seconds in all")
    asked = ask.parse_args()
    began, device = time.perf_counter(), "cpu" if asked.tiny else "cuda"
    generator = torch.Generator().manual_seed(0)

    def left() -> float:
        return asked.limit - (time.perf_counter() - began)

    for precision in ("ieee", "half", "tf32"):
        for shape in SHAPES[: 5 if precision == "half" else 2]:
            step, pool = gaps(shape, precision, device, generator)
            print(
                f"{precision:5} {shape[0]} T={shape[1]}: gradient gap {step:.1e}, through pool {pool:.1e}", flush=True
            )
    record = as_it_is if asked.tiny else graph
    for name, path in (("plain", reference), ("fused", way(fused.Tile(), record))):
        print(f"{name}: NMSE after training {trained(path, device, 2 if asked.tiny else 60)}", flush=True)
    print(f"checked after {time.perf_counter() - began:.0f} s", flush=True)
    if asked.tiny:
        profile_of = bank_run(2, 8, way(fused.Tile(), record), device, samples=256)
        profile_of.step()
        return
    torch.backends.cuda.matmul.allow_tf32 = True
    base = fused.Tile()
    variants = {
        (512, 32): [base, replace(base, rows=64), replace(base, parts=16), replace(base, parts=4),
                    replace(base, rows=32), replace(base, stages=2), replace(base, precision="tf32")],
        (1024, 8): [base, replace(base, columns=64), replace(base, rows=64, columns=32)],
        (512, 128): [base, replace(base, rows=64)],
        (64, 32): [base, replace(base, parts=16)],
    }  # fmt: skip
    for cell in CELLS:
        for number, tile in enumerate(variants[cell]):
            if left() < 8:
                print("out of time")
                return
            start = time.perf_counter()
            run = bank_run(*cell, way(tile, graph), device)
            made = time.perf_counter() - start
            print(
                f"K={cell[0]} T={cell[1]} {tile}: {speed(run, 0.3):,.0f} model-steps/s (made in {made:.1f} s)",
                flush=True,
            )
            if number == 0:
                profile(run)
                torch.cuda.synchronize()
                start = time.perf_counter()
                epoch_order(run.streams, 1, run.recipe.samples)
                torch.cuda.synchronize()
                print(f"  order of an epoch: {1e3 * (time.perf_counter() - start):.2f} ms, "
                      f"peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")  # fmt: skip
            del run
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
