"""Shapes compared in pairs: the same seeds, the same data order, one pass, each shape at its own best rate.

Rows are written as they come, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from headcount.files import text_in, write_json
from headcount.nets.grouped import GroupedShape
from headcount.numerals import today
from headcount.sizing.model_shape import BARE, ModelShape
from headcount.sizing.windows import TokenWindows
from headcount.training import Given, Member, Recipe, Schedule, train
from headcount.training.windows_in_order import WindowsInOrder

SeedAndRate = tuple[int, float]

CHECKS = 4  # looks at the held-out windows, evenly spaced
DECAY, COOL = 0.1, 0.3  # of the weights; the share of the steps in which the rate falls
SPARE = 1.15  # a bank is begun only if so many times the longest yet still fits


@dataclass(frozen=True)
class PairedTrial:
    """What is trained: every shape with every rate and seed, `batch` windows a step, each window once.

    `steps` shortens the pass; 0 is the whole of it.
    """

    shapes: dict[str, ModelShape] = field(hash=False)
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    batch: int = 16
    steps: int = 0

    def __post_init__(self) -> None:
        if not self.shapes or not self.rates or not self.seeds:
            raise ValueError("a trial needs shapes, rates and seeds")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds must differ, got {self.seeds}")

    @property
    def members(self) -> tuple[SeedAndRate, ...]:
        return tuple((seed, rate) for seed in self.seeds for rate in self.rates)

    def steps_on(self, text: TokenWindows) -> int:
        """The steps that one pass allows."""
        most = len(text.train) // self.batch
        if most < CHECKS:
            raise ValueError(f"{len(text.train)} windows in batches of {self.batch} make {most} steps; too few")
        return min(self.steps or most, most)


@dataclass
class TrialRows:
    """The rows of a trial on disk: written whole after every bank."""

    path: Path
    facts: dict[str, object]
    rows: list[dict[str, object]] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, facts: dict[str, object]) -> TrialRows:
        """What is there already, if it was made with the same facts."""
        if not path.exists():
            return cls(path, facts)
        stored = json.loads(text_in(path))
        stored_facts = {name: stored.get("facts", {}).get(name) for name in facts}
        if stored_facts != facts:
            wrong = next(name for name in facts if stored_facts[name] != facts[name])
            raise ValueError(
                f"{path} was made with {wrong} {stored_facts[wrong]}, not {facts[wrong]}; give another file"
            )
        return cls(path, facts, stored["rows"])

    def has(self, shape: str, members: Sequence[SeedAndRate]) -> bool:
        there = {(row["shape"], row["seed"], row["rate"]) for row in self.rows}
        return all((shape, seed, rate) in there for seed, rate in members)

    def add(self, rows: Sequence[dict[str, object]], **more: Any) -> None:
        new = {(row["shape"], row["seed"], row["rate"]) for row in rows}
        self.rows = [r for r in self.rows if (r["shape"], r["seed"], r["rate"]) not in new] + list(rows)
        environment = {"date": today(), "torch": torch.__version__, **more}
        content = {"facts": self.facts, "made": environment, "rows": self.rows}
        write_json(self.path, content)


def run(
    trial: PairedTrial,
    text: TokenWindows,
    kept: TrialRows,
    *,
    device: str = "cpu",
    until: float = math.inf,
    room: float = 0.0,
    say: Callable[[str], None] = lambda _: None,
) -> bool:
    """Train what is missing; whether all of it is there. No bank is begun that would end after `until`.

    A bank holds members of at most `room` parameters together: what a common device has memory for, unless said else.
    """
    longest = 0.0
    for name, shape in trial.shapes.items():
        for members in banks(shape, [m for m in trial.members if not kept.has(name, [m])], room or _room(device)):
            began = time.perf_counter()
            if began + SPARE * longest > until:
                say(f"{name}: no time left")
                return False
            rows = trained(name, shape, members, trial, text, device)
            took = time.perf_counter() - began
            longest = max(longest, took)
            kept.add(rows, device=_device_name(device), seconds_per_bank=round(longest, 1))
            best = min((row["loss"] for row in rows if row["loss"] is not None), default=math.nan)
            say(f"{name}: best {best:.4f} of {len(rows)} members in {took:.1f} s")
    return True


def banks(shape: ModelShape, members: Sequence[SeedAndRate], room: float) -> list[Sequence[SeedAndRate]]:
    """The members in banks of at most `room` parameters together, at least one in each.

    >>> shape = ModelShape.uniform(1, heads=1, head_dim=8, embed_dim=8, width=8, vocab=8)
    >>> [len(bank) for bank in banks(shape, [(s, 0.1) for s in range(5)], room=2 * shape.parameters)]
    [2, 2, 1]
    """
    each = max(1, int(room / shape.parameters))
    return [members[i : i + each] for i in range(0, len(members), each)]


def trained(
    name: str, shape: ModelShape, members: Sequence[SeedAndRate], trial: PairedTrial, text: TokenWindows, device: str
) -> list[dict[str, Any]]:
    """A row for each of these members of one shape, trained at once."""
    facts, net = Given(text.digest(), text.length, 0), grouped(shape)
    networks = [Member(facts, net, seed, seed, lr=rate, weight_decay=DECAY) for seed, rate in members]
    rows = train(networks, recipe_of(trial, text, device), device=device, data=partial(WindowsInOrder, text)).rows
    return [
        {
            "shape": name,
            "seed": seed,
            "rate": rate,
            **{key: _number(value) for key, value in row.items() if key == "loss" or key.startswith("loss on ")},
            "curve": [[step, _number(value)] for step, value in cast("Sequence[tuple[int, float]]", row["curve"])],
            "parameters": shape.parameters,
        }
        for (seed, rate), row in zip(members, map(dict, rows), strict=True)
    ]


def grouped(shape: ModelShape) -> GroupedShape:
    """The decoder that is trained: one without gains, biases and gates, so that shapes differ in their sizes alone."""
    if shape.wiring != BARE:
        raise ValueError("only decoders without gains, biases and gates are trained here: give wiring=BARE")
    blocks = tuple((one.heads, one.head_dim, one.kv_heads, one.width) for one in shape.layers)
    return GroupedShape(blocks, shape.embed_dim, shape.vocab)


def recipe_of(trial: PairedTrial, text: TokenWindows, device: str) -> Recipe:
    """One pass: the rate rises, stays and falls, a gradient is no longer than 1, the last network is kept."""
    return Recipe(
        samples=trial.steps_on(text) * trial.batch, validation=len(text.valid), epochs=1, batch=trial.batch,
        evaluations=CHECKS, schedule=Schedule("trapezoid", COOL), stop="never", keep="last", clip=1.0, beta2=0.95,
        dtype=str(torch.get_default_dtype()).removeprefix("torch."),
        precision="bfloat16" if device.startswith("cuda") else "full",
    )  # fmt: skip


def _number(value: Any) -> float | None:
    """A loss, or None where the member has diverged."""
    number = float(value)
    return round(number, 6) if math.isfinite(number) else None


def _room(device: str) -> float:
    """A billion parameters take 16 GB with gradients and moments; a CPU is better off with fewer at a time."""
    return 1e9 if device.startswith("cuda") else 1e8


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
