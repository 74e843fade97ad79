"""The Poincare ball of curvature -c as a value: sums, the exponential map at the origin, products and distances."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.refusals import not_negative

Points = Float[Tensor, "... dim"]
RIM = 1 - 1e-15  # artanh has no digits left beyond: radii are clamped here


@dataclass(frozen=True)
class Ball:
    """Points of norm below 1/sqrt(c). At c = 0 it is flat space, exactly and without a division.

    The sum does not commute: `add(x, y)` moves y by x, so add(-x, add(x, y)) = y. Distances from the origin are
    2 |v| at exp0(v), so a score of dist^2 / 4 is the Euclidean one as c falls to 0. Near the rim, at g radii from it,
    float64 keeps these laws to about 1e-15 / g^2.

    >>> ball, x, y = Ball(1.0), torch.tensor([0.5, 0.0]).double(), torch.tensor([0.0, 0.5]).double()
    >>> torch.allclose(ball.add(-x, ball.add(x, y)), y), torch.allclose(ball.add(x, y), ball.add(y, x))
    (True, False)
    >>> Ball(0.0).add(x, y).tolist()
    [0.5, 0.5]
    """

    curvature: float

    def __post_init__(self) -> None:
        not_negative(curvature=self.curvature)

    def add(self, x: Points, y: Points) -> Points:
        """The Mobius sum x + y, in this order."""
        c = self.curvature
        if c == 0:
            return x + y
        both, xx, yy = ((a * b).sum(-1, keepdim=True) for a, b in ((x, y), (x, x), (y, y)))
        above = (1 + 2 * c * both + c * yy) * x + (1 - c * xx) * y
        return above / (1 + 2 * c * both + c * c * xx * yy)

    def exp0(self, v: Points) -> Points:
        """The point at which the geodesic from the origin along v ends: tanh(sqrt(c) |v|) v / (sqrt(c) |v|)."""
        if self.curvature == 0:
            return v
        size = self.curvature**0.5 * _size(v)
        return torch.tanh(size) / size * v

    def log0(self, x: Points) -> Points:
        """The inverse of exp0."""
        if self.curvature == 0:
            return x
        size = self.curvature**0.5 * _size(x)
        return torch.atanh(size.clamp(max=_rim(x))) / size * x

    def times(self, matrix: Float[Tensor, "out dim"], x: Points) -> Float[Tensor, "... out"]:
        """The product of a plain matrix with a point, exp0(M log0 x)."""
        return self.exp0(self.log0(x) @ matrix.mT)

    def distance(self, x: Points, y: Points) -> Tensor:
        """The length of the geodesic: (2 / sqrt(c)) artanh(sqrt(c) |(-x) + y|); at c = 0 its limit 2 |x - y|."""
        apart = self.add(-x, y).norm(dim=-1)
        if self.curvature == 0:
            return 2 * apart
        root = self.curvature**0.5
        return 2 / root * torch.atanh((root * apart).clamp(max=_rim(x)))


class BallResidual(nn.Module):
    """z -> log0(exp0(z) + exp0(part(z))): a residual whose sum is taken in the ball, tangent in and tangent out.

    The stream stands first in the sum. The part is a plain network of the tangent space, with plain matrices.
    """

    def __init__(self, part: nn.Module, ball: Ball) -> None:
        super().__init__()
        self.part, self.ball = part, ball

    def forward(self, z: Points, *seen: Tensor) -> Points:
        ball = self.ball
        return ball.log0(ball.add(ball.exp0(z), ball.exp0(self.part(z, *seen))))


def _size(v: Points) -> Float[Tensor, "... 1"]:
    """Norms, kept away from 0 by the smallest number of which the square root of c times it is still one."""
    return v.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(v.dtype).tiny ** 0.5)


def _rim(x: Tensor) -> float:
    return RIM if x.dtype == torch.float64 else 1 - 1e-6
