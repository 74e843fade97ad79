"""A task as the theorems read it: H(x) = constant + F_0(z), z_i = min over t in S_i of f_i(x_t), tokens in a box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.domains import Box, radius_for
from headcount.refusals import positive
from headcount.tasks import Affine, LinearMax, Ridges, Task, Wells
from headcount.tasks.task import Matrix


@dataclass(frozen=True)
class Minima:
    """f_i(x) = curve |x|^2 + <slopes_i, x> + offsets_i, with values in [0, tops_i] and tops_i <= 1 on the box.

    Wells have curve 1/d; linear maxima curve 0, the largest <a, x> being the smallest (1 - <a, x>/(R |a|_1))/2.
    """

    box: Box
    curve: float
    slopes: Matrix
    offsets: tuple[float, ...]
    tops: tuple[float, ...]
    lowest: Matrix  # where f_i is 0: its minimiser on the box
    windows: tuple[tuple[int, ...], ...]
    outer: Ridges
    constant: float = 0.0

    @property
    def count(self) -> int:
        """The number D of retrievals."""
        return len(self.slopes)

    @property
    def length(self) -> int:
        return self.box.length

    @property
    def competitors(self) -> tuple[int, ...]:
        """How many tokens compete with the lowest in each window."""
        return tuple(len(w) - 1 for w in self.windows)

    @property
    def highest(self) -> Matrix:
        """Where f_i is largest on the box: every coordinate at the end farther from the minimiser."""
        low, high = self.box.low, self.box.high
        return tuple(tuple(high if v <= (low + high) / 2 else low for v in point) for point in self.lowest)

    def features(self, x: Float[Tensor, "*batch token_dim"]) -> Float[Tensor, "*batch retrievals"]:
        """f_i of every token."""
        slopes = torch.tensor(self.slopes, dtype=x.dtype)
        offsets = torch.tensor(self.offsets, dtype=x.dtype)
        return self.curve * x.square().sum(dim=-1, keepdim=True) + x @ slopes.T + offsets


@singledispatch
def minima_of(task: Task, radius: float | None = None) -> Minima:
    """The task as a combination of minima; tasks that are not are refused by name.

    >>> minima_of(Wells(centres=[[0.0], [1.0]], length=4)).slopes
    ((-0.0,), (-2.0,))
    >>> minima_of(LinearMax(directions=[[2.0, 0.0]], length=4), radius=3.0).constant
    6.0
    """
    raise ValueError(f"{type(task).__name__} is not a combination of minima; Wells and LinearMax are")


@minima_of.register
def _(task: Wells, radius: float | None = None) -> Minima:
    if radius is not None:
        raise ValueError(f"Wells lives on [0,1]^{task.token_dim}; radius belongs to tasks on all of R^d")
    d = task.token_dim
    assert task.windows is not None
    assert task.combine is not None
    return Minima(
        box=Box(task.length, d, 0.0, 1.0),
        curve=1 / d,
        slopes=tuple(tuple(-2 * v / d for v in c) for c in task.centres),
        offsets=tuple(math.fsum(v * v for v in c) / d for c in task.centres),
        tops=tuple(math.fsum(max(v, 1 - v) ** 2 for v in c) / d for c in task.centres),
        lowest=task.centres,
        windows=tuple(tuple(w) for w in task.windows),
        outer=task.combine,
    )


@minima_of.register
def _(task: LinearMax, radius: float | None = None) -> Minima:
    R = radius_for(task.length * task.token_dim) if radius is None else radius
    positive(radius=R)
    sizes = [math.fsum(abs(v) for v in a) for a in task.directions]
    for i, size in enumerate(sizes):
        if size == 0:
            raise ValueError(f"direction {i} is zero: its maximum is 0 whatever the tokens are")
    return Minima(
        box=Box(task.length, task.token_dim, -R, R),
        curve=0.0,
        slopes=tuple(tuple(-v / (2 * R * s) for v in a) for a, s in zip(task.directions, sizes, strict=True)),
        offsets=(0.5,) * len(sizes),
        tops=(1.0,) * len(sizes),
        lowest=tuple(tuple(math.copysign(R, v) for v in a) for a in task.directions),
        windows=(tuple(range(task.length)),) * len(sizes),
        # max_t <a, x_t> = R |a|_1 (1 - 2 min_t f(x_t))
        outer=Ridges([[-2 * R * s for s in sizes]], (Affine(),)),
        constant=R * math.fsum(sizes),
    )
