"""Where a promise holds: a set of sequences that knows its members, samples itself and, where it can, projects."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from statistics import NormalDist
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.tasks import Induction, Neighbour, Task

RADIUS = 6.0  # a standard normal number leaves [-6, 6] twice in a thousand million draws


@runtime_checkable
class Domain(Protocol):
    """Sequences of `length` tokens: who belongs, random members, and the nearest member to any sequence."""

    @property
    def length(self) -> int: ...
    @property
    def token_dim(self) -> int: ...

    def covers(self, x: Float[Tensor, "batch length token_dim"]) -> Bool[Tensor, " batch"]: ...
    def sample(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch length token_dim"]: ...
    def project(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]: ...


@dataclass(frozen=True)
class Box:
    """Every token in [low, high]^token_dim.

    >>> Box(2, 1, 0.0, 1.0).project(torch.tensor([[[2.0], [0.5]]])).flatten()
    tensor([1.0000, 0.5000])
    >>> Box(2, 1, 0.0, 1.0).covers(torch.tensor([[[2.0], [0.5]], [[0.0], [1.0]]]))
    tensor([False,  True])
    """

    length: int
    token_dim: int
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a box needs low < high, got {self.low} and {self.high}")

    def covers(self, x: Float[Tensor, "batch length token_dim"]) -> Bool[Tensor, " batch"]:
        """Which sequences lie in the box; one of another length or dimension does not."""
        if x.shape[1:] != (self.length, self.token_dim):
            return torch.zeros(len(x), dtype=torch.bool)
        return ((x >= self.low) & (x <= self.high)).flatten(1).all(dim=1)

    def sample(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch length token_dim"]:
        u = torch.rand(batch, self.length, self.token_dim, generator=generator, dtype=torch.float64)
        return self.low + (self.high - self.low) * u

    def project(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]:
        return x.clamp(self.low, self.high)

    def __str__(self) -> str:
        return f"tokens in [{self.low:g}, {self.high:g}]^{self.token_dim}"


@dataclass(frozen=True)
class SampledDomain:
    """Sequences of a task's sizes that are known by their samples. Nothing is moved, so `project` is refused."""

    task: Task

    @property
    def length(self) -> int:
        return self.task.length

    @property
    def token_dim(self) -> int:
        return self.task.token_dim

    def project(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]:
        raise ValueError(f"the domain of {type(self.task).__name__} is known only by its samples; attempts cannot move")


@dataclass(frozen=True)
class Drawn(SampledDomain):
    """Only what the task's own sampler draws: discrete letters, a sphere."""

    def covers(self, x: Float[Tensor, "batch length token_dim"]) -> Bool[Tensor, " batch"]:
        """Which sequences the sampler could have drawn, for tasks that say so (see `drawable`)."""
        if x.shape[1:] != (self.length, self.token_dim):
            return torch.zeros(len(x), dtype=torch.bool)
        return drawable(self.task, x)

    def sample(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch length token_dim"]:
        return self.task.sample(batch, generator=generator, dtype=torch.float64)[0]

    def __str__(self) -> str:
        return self.task.domain


@singledispatch
def drawable(task: Task, x: Tensor) -> Tensor:
    """Which sequences the task's sampler could have drawn; tasks whose samples have no stated form are refused."""
    raise ValueError(
        f"which sequences {type(task).__name__} can draw is not stated; it has samples and no test of them"
    )


@drawable.register
def _(task: Neighbour, x: Tensor) -> Tensor:
    return task.draws(x)


@drawable.register
def _(task: Induction, x: Tensor) -> Tensor:
    """One-hot letters, the last of which occurred before."""
    letters = x.argmax(dim=-1)
    one_hot = ((x == 0) | (x == 1)).flatten(1).all(dim=1) & (x.sum(dim=-1) == 1).all(dim=1)
    return one_hot & (letters[:, :-1] == letters[:, -1:]).any(dim=1)


def radius_for(coordinates: int, deviation: float = 1.0) -> float:
    """A radius that N(0, deviation^2) numbers leave in fewer than 1 of 5000 sequences: 6 deviations, or more.

    At most `coordinates` times the tail of one number, by the union bound.

    >>> radius_for(256), radius_for(10**6) > 6
    (6.0, True)
    """
    if not (math.isfinite(deviation) and deviation > 0):
        raise ValueError(f"a radius needs a finite deviation above 0, got {deviation}")
    return deviation * max(RADIUS, -NormalDist().inv_cdf(1e-4 / coordinates))
