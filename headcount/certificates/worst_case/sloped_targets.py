"""Targets of a bank with the range of their slopes over boxes: what a proof asks of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.worst_case.intervals import Interval, hull
from headcount.tasks import (
    Affine,
    Exponential,
    KthLargest,
    LinearMax,
    Lookups,
    MaxOf,
    PlaceOf,
    RankOf,
    Ridges,
    Sine,
    Square,
    WellOf,
    Wells,
)


@runtime_checkable
class SlopedTarget(Protocol):
    """K targets: their values; and over boxes the value at the middle, enclosures of the slopes and of all values."""

    @property
    def exchangeable(self) -> bool: ...

    def value(self, x: Float[Tensor, "models batch length token_dim"]) -> Float[Tensor, "models batch"]: ...
    def slopes(self, lo: Tensor, hi: Tensor) -> tuple[Tensor, Interval, Interval]: ...
    def of(self, members: Tensor | slice) -> SlopedTarget: ...
    def to(self, device: torch.device | str) -> SlopedTarget: ...


@dataclass(frozen=True)
class OrderStatistic:
    """The k-th smallest, over some places, of curve |x_t - vertex|^2 + <line, x_t>."""

    curve: float
    vertex: tuple[float, ...]
    line: tuple[float, ...]
    places: tuple[int, ...]
    rank: int


@dataclass(frozen=True, eq=False)
class LookedUp:
    """y = F(z_1, ..., z_D), z_i an order statistic of a quadratic of the tokens, F a sum of ridges; K of one form.

    The slope of z_i by x_t is that of the quadratic where no other token can stand at that rank in the box, between it
    and 0 where another can too, and 0 where x_t cannot.
    """

    outer: Ridges
    places: tuple[tuple[int, ...], ...]
    ranks: tuple[int, ...]
    length: int
    curve: Float[Tensor, "models retrievals"]
    vertex: Float[Tensor, "models retrievals token_dim"]
    line: Float[Tensor, "models retrievals token_dim"]

    @property
    def exchangeable(self) -> bool:
        """Whether the order of the tokens makes no difference."""
        return all(len(p) == self.length for p in self.places)

    def of(self, members: Tensor | slice) -> LookedUp:
        """Some of the targets, in this order."""
        return replace(self, curve=self.curve[members], vertex=self.vertex[members], line=self.line[members])

    def to(self, device: torch.device | str) -> LookedUp:
        """The same targets on another device."""
        return replace(self, curve=self.curve.to(device), vertex=self.vertex.to(device), line=self.line.to(device))

    def value(self, x: Float[Tensor, "models batch length token_dim"]) -> Float[Tensor, "models batch"]:
        """Every member's target on its own sequences."""
        return _outer(self.outer, [self._statistic(i, x) for i in range(len(self.ranks))])

    def _statistic(self, i: int, x: Tensor) -> Tensor:
        curve, vertex, line = self._of_place(i)
        scores = curve * (x - vertex).square().sum(-1) + (line * x).sum(-1)
        return ranked(self._there(i, scores), self.ranks[i])

    def _there(self, i: int, scores: Tensor) -> Tensor:
        """The scores at the places that are looked at."""
        return scores if len(self.places[i]) == self.length else scores[..., list(self.places[i])]

    def _of_place(self, i: int) -> tuple[Tensor, Tensor, Tensor]:
        return self.curve[:, i, None, None], self.vertex[:, i, None, None], self.line[:, i, None, None]

    def slopes(self, lo: Tensor, hi: Tensor) -> tuple[Tensor, Interval, Interval]:
        """The target at the middle of boxes (models, batch, length, token_dim), its slopes there, and its range."""
        mid, rad = (lo + hi) / 2, (hi - lo) / 2
        parts = [self._part(i, lo, hi, mid, rad) for i in range(len(self.ranks))]
        statistics = [z for z, _ in parts]
        along = _outer_slopes(self.outer, statistics)
        steep = [
            Interval(a.mid[..., None, None], a.rad[..., None, None]) * dz
            for a, (_, dz) in zip(along, parts, strict=True)
        ]
        total = steep[0]
        for more in steep[1:]:
            total = total + more
        return self.value(mid), total, _outer_range(self.outer, statistics, along)

    def _part(self, i: int, lo: Tensor, hi: Tensor, mid: Tensor, rad: Tensor) -> tuple[Interval, Interval]:
        """The range of z_i, and that of its slopes."""
        curve, vertex, line = self._of_place(i)
        away = (mid - vertex).abs()
        straight = (line * mid).sum(-1)
        wide = (line.abs() * rad).sum(-1)
        near = curve * (away - rad).clamp_min(0).square().sum(-1) + straight - wide
        far = curve * (away + rad).square().sum(-1) + straight + wide
        least, most = (ranked(self._there(i, scores), self.ranks[i]) for scores in (near, far))
        tiny = 1e-12 * (1 + least.abs() + most.abs())[..., None]  # rounding decides nothing
        can = (near <= most[..., None] + tiny) & (far >= least[..., None] - tiny)
        if len(self.places[i]) < self.length:
            can = can & torch.tensor([t in self.places[i] for t in range(self.length)], device=lo.device)
        must = can & (can.sum(-1, keepdim=True) == 1)
        bent = 2 * curve[..., None]
        low, high = bent * (lo - vertex) + line, bent * (hi - vertex) + line
        zero = torch.zeros_like(low)
        sure, may = must[..., None], can[..., None]
        low, high = (
            torch.where(sure, low, torch.where(may, low.clamp_max(0), zero)),
            torch.where(sure, high, torch.where(may, high.clamp_min(0), zero)),
        )
        return hull(least, most), hull(low, high)


def ranked(scores: Tensor, rank: int) -> Tensor:
    """The rank-th smallest along the last axis, counted from 1.

    >>> ranked(torch.tensor([[3.0, 1.0, 2.0]]), 2)
    tensor([2.])
    """
    if rank == 1:
        return scores.amin(-1)
    return scores.amax(-1) if rank == scores.shape[-1] else scores.sort(-1).values[..., rank - 1]


def _along(outer: Ridges, z: Sequence[Tensor], j: int) -> Tensor:
    return torch.stack([u * v for u, v in zip(outer.directions[j], z, strict=True)]).sum(0)


def _outer(outer: Ridges, z: Sequence[Tensor]) -> Tensor:
    return torch.stack([g(_along(outer, z, j)) for j, g in enumerate(outer.profiles)]).sum(0)


def _outer_slopes(outer: Ridges, z: Sequence[Interval]) -> list[Interval]:
    """dF/dz_i over the ranges of z, for every i."""
    steep = [_profile_slope(g, _interval_along(u, z)) for u, g in zip(outer.directions, outer.profiles, strict=True)]
    return [_interval_along([u[i] for u in outer.directions], steep) for i in range(outer.arguments)]


def _outer_range(outer: Ridges, z: Sequence[Interval], along: Sequence[Interval]) -> Interval:
    """The range of F over the ranges of z, by its slopes."""
    moved = torch.stack([a.magnitude * v.rad for a, v in zip(along, z, strict=True)]).sum(0)
    return Interval(_outer(outer, [v.mid for v in z]), moved)


def _interval_along(u: Sequence[float], z: Sequence[Interval]) -> Interval:
    mid = torch.stack([a * v.mid for a, v in zip(u, z, strict=True)]).sum(0)
    return Interval(mid, torch.stack([abs(a) * v.rad for a, v in zip(u, z, strict=True)]).sum(0))


def _profile_slope(profile: Any, s: Interval) -> Interval:
    match profile:
        case Affine(scale=k):
            return Interval(torch.full_like(s.mid, k), torch.zeros_like(s.rad))
        case Square(scale=k):
            return Interval(2 * k * s.mid, 2 * abs(k) * s.rad)
        case Sine(scale=k, frequency=w, phase=p):  # cos moves at most by |w| rad, and never by more than 2
            return Interval(k * w * torch.cos(w * s.mid + p), abs(k * w) * (abs(w) * s.rad).clamp_max(2))
        case Exponential(scale=k, rate=r):
            return hull(*(k * r * torch.exp(r * (s.mid + e * s.rad)) for e in ((-1, 1) if k * r * r >= 0 else (1, -1))))
    raise ValueError(f"no slopes are known of the profile {type(profile).__name__}")


# What a task looks up -------------------------------------------------------------------------------------------------


@singledispatch
def looked_up(task: Any) -> tuple[list[OrderStatistic], Ridges]:
    """A task as order statistics and what is made of them."""
    raise ValueError(
        f"no slopes are known of the target of {type(task).__name__}: give it a method slopes(lo, hi) that returns the "
        "value at the middle of boxes and the least and largest slope by every coordinate"
    )


@looked_up.register
def _(task: Wells) -> tuple[list[OrderStatistic], Ridges]:
    assert task.windows is not None
    assert task.combine is not None
    d = task.token_dim
    statistics = [
        OrderStatistic(1 / d, tuple(c), (0.0,) * d, tuple(w), 1)
        for c, w in zip(task.centres, task.windows, strict=True)
    ]
    return statistics, task.combine


@looked_up.register
def _(task: LinearMax) -> tuple[list[OrderStatistic], Ridges]:
    T, d = task.length, task.token_dim
    return [OrderStatistic(0.0, (0.0,) * d, tuple(a), tuple(range(T)), T) for a in task.directions], Ridges.sum(
        len(task.directions)
    )


@looked_up.register
def _(task: KthLargest) -> tuple[list[OrderStatistic], Ridges]:
    T = task.length
    return [OrderStatistic(0.0, (0.0,), (1.0,), tuple(range(T)), T - task.rank + 1)], Ridges.sum(1)


@looked_up.register
def _(task: Lookups) -> tuple[list[OrderStatistic], Ridges]:
    if not isinstance(task.outer, Ridges):
        raise ValueError(f"slopes are known of look-ups combined by Ridges, not of {type(task.outer).__name__}")
    return [_one_look_up(part, task.length, task.token_dim) for part in task.parts], task.outer


def _one_look_up(part: Any, length: int, d: int) -> OrderStatistic:
    everywhere, origin = tuple(range(length)), (0.0,) * d
    match part:
        case MaxOf():
            return OrderStatistic(0.0, origin, tuple(part.direction), everywhere, length)
        case WellOf():
            return OrderStatistic(1 / d, tuple(part.centre), origin, everywhere, 1)
        case PlaceOf():
            return OrderStatistic(0.0, origin, tuple(part.direction), (part.position,), 1)
        case RankOf():
            return OrderStatistic(0.0, origin, tuple(part.direction), everywhere, length - part.rank + 1)
    raise ValueError(f"no slopes are known of the look-up {type(part).__name__}")


@dataclass(frozen=True, eq=False)
class StatedSlopes:
    """One task that states the slopes of its own target: `slopes(lo, hi)` gives value, least and largest slope."""

    task: Any
    exchangeable: bool = False

    def value(self, x: Float[Tensor, "models batch length token_dim"]) -> Float[Tensor, "models batch"]:
        return self.task(x.flatten(0, 1)).view(x.shape[:2])

    def slopes(self, lo: Tensor, hi: Tensor) -> tuple[Tensor, Interval, Interval]:
        value, low, high = self.task.slopes(lo.flatten(0, 1), hi.flatten(0, 1))
        value, steep = value.view(lo.shape[:2]), hull(low.view(lo.shape), high.view(lo.shape))
        return value, steep, Interval(value, (steep.magnitude * (hi - lo) / 2).sum((2, 3)))

    def of(self, members: Tensor | slice) -> StatedSlopes:
        return self

    def to(self, device: torch.device | str) -> StatedSlopes:
        return self


def sloped(tasks: Sequence[Any]) -> LookedUp | StatedSlopes:
    """The targets of a bank: one for each member, of one form.

    >>> target = sloped([Wells([[0.0]], 2), Wells([[1.0]], 2)])
    >>> value, slope, _ = target.slopes(torch.zeros(2, 1, 2, 1), torch.ones(2, 1, 2, 1) / 2)
    >>> value.flatten().tolist(), slope.mid[:, 0, 0, 0].tolist(), slope.rad[:, 0, 0, 0].tolist()
    ([0.0625, 0.5625], [0.5, -1.0], [0.5, 1.0])
    """
    if callable(getattr(tasks[0], "slopes", None)):
        if len(set(map(id, tasks))) > 1:
            raise ValueError("a bank of tasks that state their own slopes must have one task")
        return StatedSlopes(tasks[0], bool(getattr(tasks[0], "exchangeable", False)))
    forms = {task: looked_up(task) for task in dict.fromkeys(tasks)}
    first, outer = forms[tasks[0]]
    shape = _form(first, outer)
    if any(_form(*form) != shape for form in forms.values()):
        raise ValueError("the targets of a bank must have one form: places, ranks and what is made of them")
    statistics = [forms[task][0] for task in tasks]
    curve, vertex, line = (
        torch.tensor([[getattr(s, name) for s in part] for part in statistics], dtype=torch.float64)
        for name in ("curve", "vertex", "line")
    )
    places, ranks, _ = shape
    return LookedUp(outer, places, ranks, tasks[0].length, curve, vertex, line)


def _form(statistics: list[OrderStatistic], outer: Ridges) -> tuple[Any, Any, Ridges]:
    return tuple(s.places for s in statistics), tuple(s.rank for s in statistics), outer
