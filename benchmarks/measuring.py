"""Measure contestants: speed against the clock, losses, memory; keep what was measured as it comes."""

from __future__ import annotations

import dataclasses
import gc
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

import torch

from benchmarks.problem import Problem, Size, Train
from headcount.numerals import now

SHAPE = ("models", "length", "batch", "heads", "layers", "width")
Contestant = Callable[[Problem], Train]
ALONE = ("one by one", "one by one, compiled")  # they train one network; its steps per second are the model-steps


class Run:
    """Measurements so far, and the time that is left."""

    def __init__(
        self, device: str, limit: float, seconds: float, file: File | None, clock: Callable[[], float]
    ) -> None:
        self.device, self.seconds, self.file, self.clock = device, seconds, file, clock
        self.end = time.perf_counter() + limit
        self.rows: list[dict[str, Any]] = []
        self.growth: list[dict[str, Any]] = []
        self.about = {
            "date": now(),
            "device": _cpu(clock) if device == "cpu" else _gpu(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        self.ceilings: dict[str, float] = {}

    def left(self) -> float:
        return self.end - time.perf_counter()

    @property
    def whole(self) -> dict[str, Any]:
        return {**self.about, "ceilings": self.ceilings, "cells": self.rows, "growth": self.growth}

    def take_in(self, other: dict[str, Any]) -> None:
        """Add what another process measured."""
        self.about = {key: other[key] for key in self.about}
        self.ceilings |= other["ceilings"]
        self.rows += other["cells"]
        self.growth += other["growth"]
        self.save()

    def save(self) -> None:
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.whole, indent=1) + "\n")

    def measure(self, name: str, contestant: Contestant, size: Size) -> dict[str, Any]:
        """Losses after two epochs, then epochs against the clock; the median of three."""
        problem = Problem(size, self.device)
        started = time.perf_counter()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        epoch, theta = contestant(problem)
        epoch()
        epoch()
        peak = self._peak(name)  # before the losses are computed, which takes memory of its own
        losses = problem.losses(theta().detach())
        set_up = time.perf_counter() - started
        steps = size.steps_per_epoch * (1 if name in ALONE else size.models)
        rates = sorted(self._rate(epoch, steps) for _ in range(3))
        row = {
            "way": name,
            **{key: getattr(size, key) for key in SHAPE},
            "rate": rates[1],
            "spread": (rates[2] - rates[0]) / rates[1],
            "loss": losses.median().item(),
            "first loss": losses[0].item(),
            "seconds to start": set_up,
            "peak bytes": peak,
            "data bytes": problem.x.numel() * 4 + (32 * size.samples * size.length if name.startswith("fused") else 0),
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
        start, epochs = self.clock(), 0
        while (spent := self.clock() - start) < self.seconds / 3:
            epoch()
            self._wait()
            epochs += 1
        return epochs * steps / spent

    def _peak(self, name: str) -> int | None:
        """The most that was allocated at once, data and order included; JAX keeps its own books."""
        return torch.cuda.max_memory_allocated() if self.device == "cuda" and not name.startswith("JAX") else None

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


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


def growth(run: Run, name: str, way: Contestant, base: Size) -> None:
    """How one step's time and memory grow with the bank, the length, the heads and the batch."""
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
            try:
                row = run.measure(name, way, size)
            except Exception as error:  # one size too large must not cost the others
                print(f"{axis} {value} failed: {str(error).splitlines()[0][:150]}", flush=True)
                continue
            run.growth.append({"axis": axis, "value": value, **row})
            run.save()
            step = 1e6 * size.models / row["rate"]
            print(f"{axis} {value}: {step:,.0f} us per step, peak {row['peak bytes'] / 2**20:,.0f} MiB", flush=True)


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
    for name, speed in rates.items():
        speed.sort()
        run.rows.append({
            "way": name, **{key: getattr(size, key) for key in SHAPE},
            "rate": (middle := speed[len(speed) // 2]), "best": speed[-1], "spread": (speed[-1] - speed[0]) / middle,
            "loss": losses[name].median().item(), "first loss": losses[name][0].item(),
            "operations": size.operations(), "traffic": size.traffic(problem.theta.shape[1]),
        })  # fmt: skip
    run.save()


def _gpu() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"


def _cpu(clock: Callable[[], float]) -> str:
    counted = "processor time on a busy machine" if clock is time.process_time else "wall-clock time"
    return f"CPU, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}, {counted}"
