"""Outer functions as sums of ridge functions: F_0(z) = sum_j g_j(<u_j, z>), with what a proof needs of each g_j."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.tasks.task import Table, matrix


@runtime_checkable
class Profile(Protocol):
    """A smooth function of one variable with rigorous bounds of its first two derivatives on an interval."""

    def __call__(self, s: Tensor) -> Tensor: ...
    def slope(self, s: float) -> float: ...
    def steepest(self, low: float, high: float) -> float: ...
    def curvature(self, low: float, high: float) -> float: ...


@dataclass(frozen=True)
class Affine:
    """g(s) = scale * s."""

    scale: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        return self.scale * s

    def slope(self, s: float) -> float:
        return self.scale

    def steepest(self, low: float, high: float) -> float:
        return abs(self.scale)

    def curvature(self, low: float, high: float) -> float:
        return 0.0


@dataclass(frozen=True)
class Square:
    """g(s) = scale * s^2."""

    scale: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        return self.scale * s * s

    def slope(self, s: float) -> float:
        return 2 * self.scale * s

    def steepest(self, low: float, high: float) -> float:
        return 2 * abs(self.scale) * max(abs(low), abs(high))

    def curvature(self, low: float, high: float) -> float:
        return 2 * abs(self.scale)


@dataclass(frozen=True)
class Sine:
    """g(s) = scale * sin(frequency * s + phase)."""

    scale: float = 1.0
    frequency: float = 1.0
    phase: float = 0.0

    def __call__(self, s: Tensor) -> Tensor:
        return self.scale * torch.sin(self.frequency * s + self.phase)

    def slope(self, s: float) -> float:
        return self.scale * self.frequency * math.cos(self.frequency * s + self.phase)

    def steepest(self, low: float, high: float) -> float:
        return abs(self.scale * self.frequency)

    def curvature(self, low: float, high: float) -> float:
        return abs(self.scale) * self.frequency**2


@dataclass(frozen=True)
class Exponential:
    """g(s) = scale * exp(rate * s)."""

    scale: float = 1.0
    rate: float = 1.0

    def __call__(self, s: Tensor) -> Tensor:
        return self.scale * torch.exp(self.rate * s)

    def slope(self, s: float) -> float:
        return self.scale * self.rate * math.exp(self.rate * s)

    def steepest(self, low: float, high: float) -> float:
        return max(abs(self.slope(low)), abs(self.slope(high)))

    def curvature(self, low: float, high: float) -> float:
        return abs(self.rate) * self.steepest(low, high)


@dataclass(frozen=True)
class Ridges:
    """F_0(z) = sum_j g_j(<u_j, z>): row j of `directions` is u_j, entry j of `profiles` is g_j.

    >>> Ridges.sum(3)(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([6.])
    >>> Ridges(directions=[[1, 1], [1, -1]], profiles=(Square(), Sine(scale=2.0))).gradient((0.5, 0.5))
    (4.0, 0.0)
    """

    directions: Table
    profiles: tuple[Profile, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "directions", matrix(self.directions, "directions of the ridges"))
        object.__setattr__(self, "profiles", tuple(self.profiles))
        if len(self.profiles) != len(self.directions):
            raise ValueError(f"{len(self.directions)} directions of ridges but {len(self.profiles)} profiles")

    @classmethod
    def sum(cls, arguments: int) -> Ridges:
        """The plain sum z_1 + ... + z_D."""
        return cls(matrix([[1.0] * arguments], "directions of the ridges"), (Affine(),))

    @property
    def arguments(self) -> int:
        """The number D of variables."""
        return len(self.directions[0])

    def __call__(self, z: Float[Tensor, "batch arguments"]) -> Float[Tensor, " batch"]:
        u = torch.tensor(self.directions, dtype=z.dtype, device=z.device)
        along = z @ u.T
        return torch.stack([g(along[:, j]) for j, g in enumerate(self.profiles)]).sum(dim=0)

    def gradient(self, z: tuple[float, ...]) -> tuple[float, ...]:
        """The gradient of F_0 at z."""
        slopes = [g.slope(sum(a * b for a, b in zip(u, z, strict=True))) for u, g in self._pairs()]
        return tuple(sum(u[i] * s for u, s in zip(self.directions, slopes, strict=True)) for i in range(self.arguments))

    def intervals(self, low: float = 0.0, high: float = 1.0) -> tuple[tuple[float, float], ...]:
        """The range of <u_j, z> over z in [low, high]^D, for each ridge."""
        return tuple(
            (
                sum(min(a * low, a * high) for a in u),
                sum(max(a * low, a * high) for a in u),
            )
            for u in self.directions
        )

    def partial_bounds(self, low: float = 0.0, high: float = 1.0) -> tuple[float, ...]:
        """An upper bound of |dF_0/dz_i| over the box, for each i."""
        steepest = [g.steepest(*iv) for (_, g), iv in zip(self._pairs(), self.intervals(low, high), strict=True)]
        return tuple(
            sum(abs(u[i]) * s for u, s in zip(self.directions, steepest, strict=True)) for i in range(self.arguments)
        )

    def _pairs(self) -> list[tuple[tuple[float, ...], Profile]]:
        return list(zip(self.directions, self.profiles, strict=True))
