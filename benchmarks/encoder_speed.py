"""Banks of standard encoders on a CPU against the usual ways in torch: `python -m benchmarks.encoder_speed`.

Everyone starts from the same parameters, sees the same samples in the same order and moves by AdamW with one schedule;
the losses after the first steps are compared. On a busy machine the ways take turns, again and again, and seconds are
those of the processor, on one thread: a network-step per core-second is what each of the machine's cores adds.
`--clock wall` counts seconds of the clock and uses every core. Who trains one by one makes the steps of one network.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.ceilings import core_peak
from benchmarks.torch_encoder import TorchEncoder
from headcount.kernels.backend import Backend, eager
from headcount.kernels.bank import Bank
from headcount.kernels.cpp import compiled_encoders
from headcount.kernels.dropping import dropping_keys
from headcount.kernels.encoding import EncoderBatch, Encoding
from headcount.kernels.loss import squared
from headcount.kernels.optimiser import AdamW
from headcount.kernels.rate_schedule import COSINE
from headcount.nets.standard import EncoderShape
from headcount.numerals import now

LR, DECAY, STEPS, WARMUP = 2e-3, 1e-4, 10_000, 0.05
COMPARED = 20  # steps before losses are compared
OURS, PRODUCTS = "compiled C++", "batched products (bmm)"
ALONE = "one by one"


@dataclass(frozen=True)
class Case:
    """One size of the race: K encoders of width 48 on sequences of 12 tokens."""

    layers: int
    pooling: str
    dropout: float = 0.0
    models: int = 8
    embed_dim: int = 48
    width: int = 96
    heads: int = 4
    length: int = 12
    batch: int = 100
    samples: int = 1000
    token_dim: int = 4

    @property
    def shape(self) -> EncoderShape:
        layers = ((self.heads, self.embed_dim // self.heads),) * self.layers
        pooling: Any = self.pooling
        return EncoderShape(
            layers,
            self.embed_dim,
            self.width,
            token_dim=self.token_dim,
            positions=self.length,
            dropout=self.dropout,
            pooling=pooling,
        )

    @property
    def name(self) -> str:
        dropped = f", dropout {self.dropout}" if self.dropout else ""
        return f"{self.layers} layer{'s' * (self.layers > 1)}, {self.pooling}{dropped}"

    @property
    def operations(self) -> int:
        """Of a network-step as the network is written: every product, forwards and twice backwards."""
        E, tokens = self.embed_dim, self.length + (self.pooling == "class token")
        layer = 4 * E * E + 2 * E * self.width + 2 * tokens * E
        return 6 * self.batch * (self.length * self.token_dim * E + self.layers * tokens * layer)

    @property
    def needed(self) -> int:
        """Of these, what is computed here: in the last layer the class token asks alone, along a direction per head; or
        the mean is taken before the last matrix (where no unit of it is left out). Queries, keys and values of a first
        layer that everyone asks in are made of the tokens' features and one number more."""
        E, N, tokens = self.embed_dim, self.width, self.length + (self.pooling == "class token")
        if self.pooling == "class token":
            last_layer = 4 * E * E + 2 * E * N + tokens * 2 * self.heads * E
            spared = tokens * (4 * E * E + 2 * E * N + 2 * tokens * E) - last_layer
        else:
            spared = (tokens - 1) * E * N * (self.dropout == 0)
        if self.layers > (self.pooling == "class token"):
            spared += tokens * 3 * E * (E - self.token_dim - 1)
        return self.operations - 6 * self.batch * spared


CASES = tuple(Case(layers, pooling) for layers in (1, 2) for pooling in ("class token", "mean"))
CASES += (Case(1, "mean", 0.1), Case(2, "class token", 0.1))


class Course:
    """What everyone trains on: one data set, and rows for every member and step."""

    def __init__(self, case: Case) -> None:
        g = torch.Generator().manual_seed(0)
        self.case, self.seeds = case, list(range(case.models))
        self.x = torch.randn(1, case.samples, case.length, case.token_dim, generator=g)
        y = self.x[0, ..., :2].amax(dim=1).sum(dim=1)
        self.y = (y - y.mean()) / y.std()
        self.rows = torch.randint(0, case.samples, (64, case.models, case.batch), generator=g)
        self.which = torch.zeros(case.models, dtype=torch.int64)
        self.start = Bank([case.shape] * case.models, self.seeds).theta

    def batch(self, step: int) -> EncoderBatch:
        rows = self.rows[step % len(self.rows)]
        keys = dropping_keys(self.seeds, step) if self.case.dropout else None
        return EncoderBatch(self.x, self.which, rows, self.y[rows], None, keys)

    def bank(self) -> Bank:
        bank = Bank([self.case.shape] * self.case.models, self.seeds)
        bank.theta = self.start.clone()
        return bank

    def loss(self, theta: Tensor) -> float:
        """The first member's, on all samples, by the batched products."""
        bank = self.bank()
        bank.theta = theta[:1].expand(len(self.seeds), -1).contiguous()
        everyone = torch.arange(self.case.samples).expand(len(self.seeds), -1)
        batch = EncoderBatch(self.x, self.which, everyone, self.y[everyone])
        return squared(Encoding().output(bank, bank.named(), batch)[:1], self.y[None]).mean().item()


Contestant = tuple[Callable[[int], None], Callable[[], Tensor], int]  # a step, the parameters, networks it moves


def banked(course: Course, backend: Backend) -> Contestant:
    """A bank by one of the package's backends."""
    bank = course.bank()
    rates, decays = (torch.full((len(bank),), value) for value in (LR, DECAY))
    adam, active = AdamW(bank.theta, rates, decays, STEPS, WARMUP), torch.ones(len(bank), dtype=torch.bool)

    def step(number: int) -> None:
        gradient = backend.gradient(Encoding(), bank, course.batch(number))
        backend.update(adam, bank.theta, gradient, active)

    return step, lambda: bank.theta, len(bank)


def vmapped(course: Course) -> Contestant:
    """torch.func.vmap of the gradient of one network's loss, and AdamW on the stacked parameters."""
    shape = course.case.shape
    net, sizes = shape.module(), shape.tensors()
    counts = [torch.Size(size).numel() for size in sizes.values()]

    def lost(row: Tensor, x: Tensor, y: Tensor) -> Tensor:
        parts = {n: p.view(size) for (n, size), p in zip(sizes.items(), row.split(counts), strict=True)}
        return (functional_call(net, parts, (x,)) - y).square().mean()

    slope = vmap(grad(lost), randomness="different")

    return banked(
        course, Backend("vmap", gradient=lambda _, bank, batch: slope(bank.theta, batch.tokens(), batch.target))
    )


def one_by_one(course: Course, of_torch: bool = False, fused: bool = False) -> Contestant:
    """The first network alone with torch.optim.AdamW; the others would take as long again, each."""
    bank = course.bank()
    net: nn.Module = TorchEncoder(course.case.shape).load(bank.named(), 0) if of_torch else bank.module(0)
    names = list(course.case.shape.tensors())
    parameters = net.named() if isinstance(net, TorchEncoder) else dict(net.named_parameters())
    adam = torch.optim.AdamW(parameters.values(), lr=LR, weight_decay=DECAY, fused=fused)
    warm = torch.optim.lr_scheduler.LambdaLR(adam, lambda s: COSINE.share(torch.tensor(s + 1.0), STEPS, WARMUP).item())
    x = course.x[0]

    def step(number: int) -> None:
        rows = course.rows[number % len(course.rows), 0]
        adam.zero_grad(set_to_none=True)
        (net(x[rows]) - course.y[rows]).square().mean().backward()
        adam.step()
        warm.step()

    return step, lambda: torch.cat([parameters[name].detach().flatten() for name in names])[None], 1


def contestants(course: Course) -> dict[str, Contestant]:
    """Ours, and the usual ways."""
    everyone = {}
    if compiled_encoders.backend.holds(Encoding(), course.bank(), course.batch(0)):
        everyone[OURS] = banked(course, compiled_encoders.backend)
    everyone[PRODUCTS] = banked(course, eager)
    everyone["vmap"] = vmapped(course)
    everyone[ALONE] = one_by_one(course)
    everyone[f"{ALONE}, fused AdamW"] = one_by_one(course, fused=True)
    everyone[f"{ALONE}, nn.TransformerEncoder, fused AdamW"] = one_by_one(course, of_torch=True, fused=True)
    return everyone


def race(case: Case, rounds: int, seconds: float, clock: Callable[[], float]) -> dict[str, Any]:
    """Network-steps per second of every way, in turns, and the first member's loss after the same steps of each."""
    course = Course(case)
    ways = contestants(course)
    losses, done = {}, dict.fromkeys(ways, COMPARED)
    for name, (step, theta, _) in ways.items():
        for number in range(COMPARED):
            step(number)
        losses[name] = course.loss(theta())
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (step, _, models) in ways.items():
            begun, first = clock(), done[name]
            while (spent := clock() - begun) < seconds:
                step(done[name])
                done[name] += 1
            rates[name].append(models * (done[name] - first) / spent)
    return _row(case, rates, losses)


def _row(case: Case, rates: dict[str, list[float]], losses: dict[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case.name, "operations": case.operations, "needed": case.needed}
    row["ways"] = {
        name: {
            "rate": round(median(measured), 1),
            "best": round(max(measured), 1),
            "loss": float(f"{losses[name]:.6g}"),
        }
        for name, measured in rates.items()
    }
    if OURS in rates:
        row["times"] = {
            name: round(median(a / b for a, b in zip(rates[OURS], measured, strict=True)), 1)
            for name, measured in rates.items()
            if name != OURS
        }
        row["times the fastest one by one"] = min(v for name, v in row["times"].items() if name.startswith(ALONE))
    return row


def peak(clock: Callable[[], float], times: int = 30) -> float:
    """The most operations per second that a large product in float32 was seen to make."""
    a, b = torch.randn(768, 768), torch.randn(768, 768)
    best = float("inf")
    for _ in range(times):
        begun = clock()
        torch.mm(a, b)
        best = min(best, clock() - begun)
    return 2 * 768**3 / best


def limit(row: dict[str, Any], most: float, core: float | None) -> str:
    """What the processor allows, beside what was reached."""
    ours = row["ways"][OURS]["best"]
    written, needed = (row[key] / 1e6 for key in ("operations", "needed"))
    return (
        f"{row['case']}: a network-step is {written:.0f} million operations as written, {needed:.1f} as computed here; "
        f"at {most / 1e9:.0f} thousand million per second, the most that a product reached, nobody makes more than "
        f"{most / row['operations']:.0f} steps per second of the first kind, {most / row['needed']:.0f} of the second; "
        f"ours made {ours:.0f}, {ours * row['needed'] / most:.0%} of that"
        + (
            f"; one core's registers allow {core / 1e9:.0f} thousand million, {core / row['needed']:.0f} steps of the "
            f"second kind, and ours is at {ours * row['needed'] / core:.0%}"
            if core
            else ""
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.4, help="of every way in a round")
    parser.add_argument("--clock", choices=["processor", "wall"], default="processor")
    parser.add_argument("--only", help="the cases whose names begin so")
    parser.add_argument("--tiny", action="store_true", help="one round of one small case: does it run")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    clock = time.process_time if options.clock == "processor" else time.perf_counter
    threads = 1 if options.clock == "processor" else os.cpu_count() or 1
    torch.set_num_threads(threads)
    cases = (Case(1, "mean", models=2, batch=4, samples=8),) if options.tiny else CASES
    cases = tuple(case for case in cases if case.name.startswith(options.only or ""))
    about: dict[str, Any] = {
        "date": now(),
        "device": f"CPU ({_processor()}), {threads} thread{'s' * (threads > 1)}, {options.clock} seconds, "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
        "torch": torch.__version__,
        "command": " ".join(["python -m benchmarks.encoder_speed", *sys.argv[1:]]),
        "shape": "8 encoders of width 48, feed-forwards of 96, 4 heads of 12, sequences of 12 tokens, batch 100",
    }
    rows: list[dict[str, Any]] = []
    most, core = peak(clock), core_peak(clock) if threads == 1 else None
    for case in cases:
        rows.append(race(case, 1 if options.tiny else options.rounds, options.seconds, clock))
        most = max(most, peak(clock))
        core = core and max(core, core_peak(clock) or 0)
        print(json.dumps(rows[-1]), flush=True)
        about |= {"peak": most, "core": core, "limit": [limit(row, most, core) for row in rows if OURS in row["ways"]]}
        if options.json:
            options.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    print(*about["limit"], sep="\n")


def _processor() -> str:
    words = Path("/proc/cpuinfo")
    lines = words.read_text(errors="replace").splitlines() if words.is_file() else []
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


if __name__ == "__main__":
    main()
