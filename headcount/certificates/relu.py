"""Functions of one variable as two-layer ReLU networks: linear between equally spaced knots, with a rigorous error."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.sources import Source, implements

INTERPOLATION = Source("headcount", "piecewise linear interpolation (Assumption 3 with gamma = 1/2)")


@dataclass(frozen=True)
class Hinges:
    """s -> offset + sum_k weights_k relu(s - knots_k): a two-layer ReLU network of one variable."""

    knots: Float[Tensor, " pieces"]
    weights: Float[Tensor, " pieces"]
    offset: float

    def __call__(self, s: Float[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        return self.offset + torch.relu(s[:, None] - self.knots) @ self.weights


def interpolant(g: Callable[[Tensor], Tensor], low: float, high: float, pieces: int) -> Hinges:
    """The function that is linear between `pieces` + 1 equally spaced knots on [low, high] and meets g there.

    >>> square = interpolant(torch.square, 0.0, 1.0, 2)
    >>> square(torch.tensor([0.0, 0.25, 0.5, 1.0], dtype=torch.float64))
    tensor([0.0000, 0.1250, 0.2500, 1.0000], dtype=torch.float64)
    """
    knots = torch.linspace(low, high, pieces + 1, dtype=torch.float64)
    values = g(knots)
    slopes = values.diff() / ((high - low) / pieces)
    # The slope changes by weights_k at knot k; left of the first knot nothing is promised.
    weights = torch.cat([slopes[:1], slopes.diff()])
    return Hinges(knots[:-1], weights, float(values[0]))


@implements(
    INTERPOLATION,
    test="tests/test_certificates_relu.py::test_interpolation_error_is_attained_by_a_square",
    status="proved here",
    hypotheses=("|g''| at most the curvature given",),
)
def interpolation_error(curvature: float, low: float, high: float, pieces: int) -> float:
    """|g - interpolant| <= curvature h^2/8 for |g''| <= curvature and pieces of length h.

    On a piece the difference vanishes at both ends, so at its largest point, at most h/2 from an end, it is at most
    curvature (h/2)^2 / 2. A square attains it, always from above, so half of it can be shifted away.

    >>> interpolation_error(2.0, 0.0, 1.0, 2)
    0.0625
    """
    return curvature * ((high - low) / pieces) ** 2 / 8


def pieces_for(error: float, curvature: float, low: float, high: float) -> int:
    """The fewest pieces whose interpolation error is at most `error`: as many as error^(-1/2).

    >>> pieces_for(0.0625, 2.0, 0.0, 1.0), pieces_for(1e-4, 0.0, 0.0, 1.0)
    (2, 1)
    """
    pieces = max(1, math.ceil((high - low) * math.sqrt(curvature / (8 * error)) * (1 - 1e-12)))
    return pieces if interpolation_error(curvature, low, high, pieces) <= error else pieces + 1
