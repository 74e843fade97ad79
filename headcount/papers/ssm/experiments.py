"""Norm-bounded training: students of every depth learn one kernel with clipped entries, one bank a size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor

from headcount.papers.ssm.chains import by_modulus
from headcount.papers.ssm.deepen import capacity
from headcount.papers.ssm.systems import DiagonalSSM
from headcount.papers.ssm.trainable import RADIUS, clip_, kernel, stacked
from headcount.refusals import nearest
from headcount.results.gathering import grouped
from headcount.training.adam import descend

Parts = tuple[Tensor, Tensor, Tensor, Tensor]
"""Poles (layers, width), B_1, B_2 .. B_l and C."""

Start = Callable[[int, int, int], Parts]
"""The initial value of a student, from its depth, width and seed."""


@dataclass(frozen=True)
class StudentRecipe:
    """How students learn: Adam with a cosine from `lr` to 0 on the squared error of the first `length` samples."""

    steps: int = 4000
    lr: float = 0.01
    length: int = 64

    def __post_init__(self) -> None:
        if self.steps < 1 or self.length < 1 or not self.lr > 0:
            raise ValueError(f"steps, length and lr must be positive, got {self.steps}, {self.length}, {self.lr}")


def parameters(depth: int, width: int) -> int:
    """The number of parameters l m + m + (l-1) m^2 + m.

    >>> [parameters(l, m) for l, m in ((1, 25), (2, 7), (3, 5), (4, 4), (6, 3))]
    [75, 77, 75, 72, 69]
    """
    return depth * width + width + (depth - 1) * width**2 + width


def from_random(depth: int, width: int, seed: int) -> Parts:
    """Poles uniform on [-0.9, 0.9], weights normal with the variance of one over the inputs they sum."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    poles = 1.8 * torch.rand(depth, width, generator=g, dtype=torch.float64) - 0.9
    return poles, normal(width), normal(depth - 1, width, width) / width**0.5, normal(width)


def from_wiring(depth: int, width: int, seed: int) -> Parts:
    """The wiring of the construction with modes that know nothing: random poles, residues of +1 and -1."""
    rng = np.random.default_rng(seed)
    modes = capacity(depth, width)
    return _woven(DiagonalSSM(rng.uniform(-0.9, 0.9, modes), rng.choice([-1.0, 1.0], modes)), depth, width)


def from_construction(teacher: DiagonalSSM) -> Start:
    """The construction for the teacher itself: exact, where its entries fit the bound."""
    return lambda depth, width, seed: _woven(teacher, depth, width)


def from_nearby(teacher: DiagonalSSM, noise: float) -> Start:
    """The construction for a teacher whose poles and residues are off by a relative `noise`."""

    def start(depth: int, width: int, seed: int) -> Parts:
        rng = np.random.default_rng(seed)
        poles = teacher.poles.real * (1 + noise * rng.standard_normal(teacher.modes))
        residues = teacher.residues.real * (1 + noise * rng.standard_normal(teacher.modes))
        return _woven(DiagonalSSM(np.clip(poles, -0.99, 0.99), residues), depth, width)

    return start


def _woven(system: DiagonalSSM, depth: int, width: int) -> Parts:
    return stacked(system.deepen(depth, width, deal=by_modulus))


class StudentRow(TypedDict):
    """A student of one size, bound on its entries and seed; `nmse` is relative to the kernel's square."""

    depth: int
    width: int
    parameters: int
    max_entry: float
    seed: int
    nmse: float


BestRow = TypedDict(
    "BestRow",
    {
        "depth": int,
        "width": int,
        "parameters": int,
        "max_entry": float,
        "best nmse": float,
        "median nmse": float,
        "seeds": int,
    },
)
"""The best and the median seed of one size and bound."""


def train_bank(
    teacher: DiagonalSSM,
    size: tuple[int, int],
    clips: Sequence[float],
    seeds: Sequence[int],
    start: Start = from_random,
    recipe: StudentRecipe | None = None,
) -> list[StudentRow]:
    """Train a student of this (depth, width) for every bound and seed at once; a row each.

    `nmse` is the smallest squared error of the kernel over the kernel's square, always at clipped entries.
    """
    recipe = recipe or StudentRecipe()
    members = [(clip, seed) for clip in clips for seed in seeds]
    parts = [
        torch.stack(column).requires_grad_() for column in zip(*(start(*size, s) for _, s in members), strict=True)
    ]
    bounds = torch.tensor([clip for clip, _ in members], dtype=torch.float64)
    best = _descend(parts, bounds, _target(teacher, recipe.length), recipe)
    return [
        {
            "depth": size[0],
            "width": size[1],
            "parameters": parameters(*size),
            "max_entry": clip,
            "seed": seed,
            "nmse": float(value),
        }
        for (clip, seed), value in zip(members, best, strict=True)
    ]


def _descend(parts: list[Tensor], bounds: Tensor, target: Tensor, recipe: StudentRecipe) -> Tensor:
    best = torch.full_like(bounds, torch.inf)
    scale = target.square().sum()

    def loss(step: int) -> Tensor:
        _clip(parts, bounds)
        errors = (kernel(parts[0], parts[1], parts[2], parts[3], recipe.length) - target).square().sum(dim=-1) / scale
        best.copy_(torch.fmin(best, errors.detach()))
        return errors.sum()  # members share nothing, so the sum trains each alone

    descend(loss, parts, recipe.steps, recipe.lr)
    with torch.no_grad():
        loss(recipe.steps)
    return best


def _clip(parts: list[Tensor], bounds: Tensor) -> None:
    clip_(parts[0], RADIUS)
    for weights in parts[1:]:
        clip_(weights, bounds.view(-1, *[1] * (weights.ndim - 1)).expand_as(weights))


def _target(teacher: DiagonalSSM, length: int) -> Tensor:
    if not teacher.is_real or teacher.poles.imag.any():
        raise ValueError("the students are real with real poles, so the teacher must be too")
    return torch.tensor(np.real(teacher.impulse(length)))


def train_table(
    teacher: DiagonalSSM,
    sizes: Iterable[tuple[int, int]],
    clips: Sequence[float] = (1, 2, 3, 5, 10),
    seeds: Sequence[int] = (0, 1),
    start: Start = from_random,
    recipe: StudentRecipe | None = None,
) -> list[StudentRow]:
    """A bank for every size; all rows."""
    return [row for size in sizes for row in train_bank(teacher, size, clips, seeds, start, recipe)]


def best_rows(rows: Iterable[StudentRow]) -> list[BestRow]:
    """The best and the median seed for every size and bound."""
    groups = grouped(((row["depth"], row["width"], row["max_entry"]), row["nmse"]) for row in rows)
    return [
        {
            "depth": depth,
            "width": width,
            "parameters": parameters(depth, width),
            "max_entry": clip,
            "best nmse": min(values),
            "median nmse": float(np.median(values)),
            "seeds": len(values),
        }
        for (depth, width, clip), values in groups.items()
    ]


def rows_by_size(rows: Iterable[StudentRow]) -> list[dict[str, float]]:
    """The best seeds, a row for each size and a column for each bound on the entries."""
    best = (((r["depth"], r["width"]), (f"{r['max_entry']:g}", r["best nmse"])) for r in best_rows(rows))
    return [
        {"depth": depth, "width": width, "parameters": parameters(depth, width), **dict(cells)}
        for (depth, width), cells in grouped(best).items()
    ]


def start_named(name: str, teacher: DiagonalSSM) -> Start:
    """How students begin: random, wiring, nearby (the construction, a little moved) or construction."""
    starts = {
        "random": from_random,
        "wiring": from_wiring,
        "nearby": from_nearby(teacher, 0.1),
        "construction": from_construction(teacher),
    }
    if name not in starts:
        raise ValueError(f"unknown start {name!r}; {nearest(name, starts)}")
    return starts[name]
