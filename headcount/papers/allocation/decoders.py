"""Small decoders trained from scratch at equal parameters: does it matter how attention is divided over layers?

Six layers on the characters of one text, three schedules (the same heads everywhere; heads growing with depth; early
layers wide and late ones narrow), the same seeds for each: a seed fixes the batches, so they are compared in pairs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import torch
from scipy.stats import t as student
from torch import Tensor, nn
from torch.nn import functional

from headcount.nets.causal import CausalTransformer, DecoderShape
from headcount.papers.allocation.schedules import LayerSchedule, by_bound, ramp, uniform


@dataclass(frozen=True)
class Settings:
    """Everything that fixes a run beside its schedule and seed."""

    layers: int = 6
    heads: int = 6
    head_dim: int = 32
    embed_dim: int = 192
    length: int = 256
    batch: int = 64
    dropout: float = 0.2
    lr: float = 1e-3
    steps: int = 3000
    checks: int = 12  # evaluations, evenly spaced; the best counts
    device: str = "cpu"

    def schedules(self) -> tuple[LayerSchedule, ...]:
        shape = (self.layers, self.heads, self.head_dim)
        return uniform(*shape), ramp(*shape), by_bound(*shape, early=max(1, self.layers // 3), lags=2)


class DroppingDecoder(CausalTransformer):
    """The plain decoder with dropout on the attention weights and on what every branch adds, and a small start."""

    def __init__(self, settings: Settings, schedule: LayerSchedule, letters: int) -> None:
        embed = settings.embed_dim
        super().__init__(DecoderShape(schedule.layers, embed, 4 * embed, letters, settings.length))
        self.dropout = settings.dropout
        for name, p in self.named().items():
            if p.ndim == 2:
                ends = name.endswith(("write", "outer.weight"))  # keep the residual stream's size at the start
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * settings.layers) if ends else 0.02)

    def added(self, branch: Tensor) -> Tensor:
        return functional.dropout(branch, self.dropout, self.training)

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        off = self.dropout if self.training else 0.0
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=off)


@dataclass(frozen=True)
class Text:
    """A file's characters as numbers: nine tenths to train on, one tenth to validate."""

    train: Tensor
    valid: Tensor
    letters: int

    @classmethod
    def read(cls, path: Path, device: str) -> Text:
        if not path.is_file():
            raise FileNotFoundError(f"no text file at {path}")
        text = path.read_text(encoding="utf-8")
        letters = sorted(set(text))
        number = {c: i for i, c in enumerate(letters)}
        ids = torch.tensor([number[c] for c in text], device=device)
        cut = int(0.9 * len(ids))
        return cls(ids[:cut], ids[cut:], len(letters))


class DecoderRow(TypedDict):
    """One decoder: what it was, and its validation loss at its best check and at the last."""

    schedule: str
    layers: list[tuple[int, int]]
    seed: int
    parameters: int
    loss: float
    best_step: int
    final_loss: float
    curve: list[tuple[int, float]]


class ScheduleRow(TypedDict):
    """One schedule: mean loss over seeds and its change from uniform, each with the half-width of a 95% interval."""

    schedule: str
    layers: list[tuple[int, int]]
    parameters: int
    seeds: int
    loss: float
    loss_half_width: float
    change: float
    change_half_width: float


def run(settings: Settings, schedule: LayerSchedule, text: Text, seed: int, steps: int) -> DecoderRow:
    """Train one decoder; its validation loss at every check, and the best of them."""
    torch.manual_seed(seed)
    model = DroppingDecoder(settings, schedule, text.letters).to(settings.device)
    optimiser = _optimiser(model, settings)
    draw = torch.Generator(device="cpu").manual_seed(seed)
    checks = sorted({max(1, round(steps * (i + 1) / settings.checks)) for i in range(settings.checks)})
    curve: list[tuple[int, float]] = []
    for step in range(1, steps + 1):
        for group in optimiser.param_groups:
            group["lr"] = settings.lr * min(step / 100, 0.1 + 0.45 * (1 + math.cos(math.pi * step / steps)))
        loss = _loss(model, _windows(text.train, settings, draw), settings)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step in checks:
            curve.append((step, validate(model, text, settings)))
    best = min(curve, key=lambda at: at[1])
    return {
        "schedule": schedule.name,
        "layers": list(schedule.layers),
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "loss": best[1],
        "best_step": best[0],
        "final_loss": curve[-1][1],
        "curve": curve,
    }


@torch.no_grad()
def validate(model: DroppingDecoder, text: Text, settings: Settings) -> float:
    """Mean loss over the whole validation text, in windows that do not overlap."""
    model.eval()
    count = (len(text.valid) - 1) // settings.length
    ids = text.valid[: count * settings.length + 1]
    rows = torch.stack([ids[:-1].view(count, -1), ids[1:].view(count, -1)])
    total = 0.0
    for part in rows.split(4 * settings.batch, dim=1):
        total += float(_loss(model, (part[0], part[1]), settings)) * part.shape[1]
    model.train()
    return total / count


def train_all(
    settings: Settings,
    text: Text,
    seeds: Sequence[int],
    seconds: float = math.inf,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[list[DecoderRow], int]:
    """Every schedule with every seed, all for the same number of steps; the rows and that number."""
    schedules = settings.schedules()
    steps = settings.steps
    if math.isfinite(seconds):
        pace = max(_pace(settings, schedule, text) for schedule in schedules)
        fit = int(0.9 * seconds / pace / (len(schedules) * len(seeds)))
        if fit < settings.checks:
            raise ValueError(f"{seconds:g} seconds allow {fit} steps a run; give more time or fewer seeds")
        steps = min(steps, fit)
    rows: list[DecoderRow] = []
    for seed in seeds:
        for schedule in schedules:
            rows.append(run(settings, schedule, text, seed, steps))
            say(f"seed {seed} {schedule.name}: {rows[-1]['loss']:.4f} at step {rows[-1]['best_step']}")
    return rows, steps


def summary(rows: Sequence[DecoderRow]) -> list[ScheduleRow]:
    """Mean loss of every schedule, its difference from uniform seed by seed, and 95% t intervals of both."""
    base = {r["seed"]: r["loss"] for r in rows if r["schedule"] == "uniform"}
    lines: list[ScheduleRow] = []
    for name in dict.fromkeys(r["schedule"] for r in rows):
        runs = [r for r in rows if r["schedule"] == name]
        mean, half = _interval([r["loss"] for r in runs])
        change, spread = _interval([r["loss"] - base[r["seed"]] for r in runs])
        lines.append(
            {
                "schedule": name,
                "layers": runs[0]["layers"],
                "parameters": runs[0]["parameters"],
                "seeds": len(runs),
                "loss": mean,
                "loss_half_width": half,
                "change": change,
                "change_half_width": spread,
            }
        )
    return lines


def _interval(values: Sequence[float]) -> tuple[float, float]:
    v = torch.tensor(values, dtype=torch.float64)
    if len(v) < 2:
        return float(v.mean()), math.inf
    return float(v.mean()), float(v.std() / math.sqrt(len(v)) * student.ppf(0.975, len(v) - 1))


def _loss(model: DroppingDecoder, pair: tuple[Tensor, Tensor], settings: Settings) -> Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=settings.device.startswith("cuda")):
        logits = model(pair[0])
    return functional.cross_entropy(logits.float().flatten(0, 1), pair[1].flatten())


def _windows(ids: Tensor, settings: Settings, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    first = torch.randint(0, len(ids) - settings.length - 1, (settings.batch, 1), generator=draw).to(ids.device)
    rows = ids[first + torch.arange(settings.length + 1, device=ids.device)]
    return rows[:, :-1], rows[:, 1:]


def _optimiser(model: DroppingDecoder, settings: Settings) -> torch.optim.Optimizer:
    wide = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": wide, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.99), fused=settings.device.startswith("cuda"))


def _pace(settings: Settings, schedule: LayerSchedule, text: Text) -> float:
    """Seconds per step, evaluation included, after warming up."""
    for steps in (6, 40):
        began = time.perf_counter()
        run(settings, schedule, text, 0, steps)
        if settings.device.startswith("cuda"):
            torch.cuda.synchronize()
        took = (time.perf_counter() - began) / steps
    return took
