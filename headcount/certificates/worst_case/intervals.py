"""Numbers known up to a radius, as tensors: middle and radius, with the arithmetic of enclosures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Interval:
    """The interval [mid - rad, mid + rad], entry by entry; sums and products enclose those of all members.

    >>> import torch
    >>> product = Interval(torch.tensor(2.0), torch.tensor(1.0)) * Interval(torch.tensor(0.0), torch.tensor(1.0))
    >>> product.mid, product.rad
    (tensor(0.), tensor(3.))
    """

    mid: Tensor
    rad: Tensor

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.mid + other.mid, self.rad + other.rad)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.mid - other.mid, self.rad + other.rad)

    def __mul__(self, other: Interval) -> Interval:
        return Interval(self.mid * other.mid, self.mid.abs() * other.rad + self.rad * (other.mid.abs() + other.rad))

    def __getitem__(self, key: Any) -> Interval:
        return Interval(self.mid[key], self.rad[key])

    @property
    def magnitude(self) -> Tensor:
        """The largest absolute value."""
        return self.mid.abs() + self.rad

    def sum(self, axis: int) -> Interval:
        """The sum along an axis."""
        return Interval(self.mid.sum(axis), self.rad.sum(axis))

    def unsqueeze(self, axis: int) -> Interval:
        """With one more axis."""
        return Interval(self.mid.unsqueeze(axis), self.rad.unsqueeze(axis))


def hull(low: Tensor, high: Tensor) -> Interval:
    """The interval between two ends.

    >>> import torch
    >>> hull(torch.tensor(1.0), torch.tensor(3.0))
    Interval(mid=tensor(2.), rad=tensor(1.))
    """
    return Interval((low + high) / 2, (high - low) / 2)
