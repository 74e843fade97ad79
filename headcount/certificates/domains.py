"""Where a promise holds: a set of sequences that samples itself and, where it can, projects onto itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.tasks import Task

__all__ = ["Box", "Domain", "Drawn"]


@runtime_checkable
class Domain(Protocol):
    """Sequences of `length` tokens: random members, and the nearest member to any sequence."""

    @property
    def length(self) -> int: ...
    @property
    def token_dim(self) -> int: ...

    def sample(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch length token_dim"]: ...
    def project(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]: ...


@dataclass(frozen=True)
class Box:
    """Every token in [low, high]^token_dim.

    >>> Box(2, 1, 0.0, 1.0).project(torch.tensor([[[2.0], [0.5]]])).flatten()
    tensor([1.0000, 0.5000])
    """

    length: int
    token_dim: int
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ValueError(f"a box needs low < high, got {self.low} and {self.high}")

    def sample(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch length token_dim"]:
        u = torch.rand(batch, self.length, self.token_dim, generator=generator, dtype=torch.float64)
        return self.low + (self.high - self.low) * u

    def project(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]:
        return x.clamp(self.low, self.high)

    def __str__(self) -> str:
        return f"tokens in [{self.low:g}, {self.high:g}]^{self.token_dim}"


@dataclass(frozen=True)
class Drawn:
    """Only what the task's own sampler draws: discrete letters, a sphere. Nothing is moved, so `project` is refused."""

    task: Task

    @property
    def length(self) -> int:
        return self.task.length

    @property
    def token_dim(self) -> int:
        return self.task.token_dim

    def sample(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch length token_dim"]:
        return self.task.sample(batch, generator=generator, dtype=torch.float64)[0]

    def project(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]:
        raise ValueError(f"the domain of {type(self.task).__name__} is known only by its samples; attempts cannot move")

    def __str__(self) -> str:
        return self.task.domain
