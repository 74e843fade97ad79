"""What both constructions make piecewise linear: the square of a coordinate, and each ridge of the outer function."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.relu import interpolant, interpolation_error, pieces_for
from headcount.papers.head_count.networks.minima import Minima

FEATURES, OUTER = 0.25, 0.25  # shares of the budget; a construction's own terms take what is left

Layer = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Interpolants:
    """Pieces of the square and of each ridge, and what they cost."""

    minima: Minima
    pieces: int
    ridge_pieces: tuple[int, ...]

    @property
    def feature_error(self) -> float:
        """|Psi_i - f_i| on the box: the interpolated square of each coordinate, its error halved by a shift."""
        box = self.minima.box
        return self.minima.curve * box.token_dim * interpolation_error(2.0, box.low, box.high, self.pieces) / 2

    @property
    def spreads(self) -> tuple[float, ...]:
        """The range of each Psi_i on the box."""
        return tuple(top + 2 * self.feature_error for top in self.minima.tops)

    @property
    def missed(self) -> float:
        """How far from a Psi_i the read-out may have it."""
        return 0.0

    @property
    def reach(self) -> tuple[float, float]:
        """An interval that holds whatever the outer function is given, and a little more for rounding."""
        margin = self.feature_error + self.missed + 1e-9
        return -margin, 1 + margin

    @property
    def slopes(self) -> tuple[float, ...]:
        """How much F_0 moves at most with each z_i over the reach."""
        return self.minima.outer.partial_bounds(*self.reach)

    def features_term(self) -> float:
        """sum_i |dF_0/dz_i| |Psi_i - f_i|."""
        return self.feature_error * math.fsum(self.slopes)

    def outer_term(self) -> float:
        """sum_j |g_j''| h_j^2/8."""
        outer = self.minima.outer
        parts = zip(outer.profiles, outer.intervals(*self.reach), self.ridge_pieces, strict=True)
        return math.fsum(interpolation_error(g.curvature(*iv), *iv, n) for g, iv, n in parts)

    def pieces_within(self, budget: float) -> tuple[int, tuple[int, ...]]:
        """The fewest pieces of the square and of each ridge for their shares of a budget.

        With one piece, as here, the reach is widest: these slopes and curvatures bound those of any plan.
        """
        box, outer = self.minima.box, self.minima.outer
        # features: sum_i slope_i * curve * d * (2 h^2/8)/2 <= FEATURES * budget
        scale = math.fsum(self.slopes) * self.minima.curve * box.token_dim / 2
        ridges = list(zip(outer.profiles, outer.intervals(*self.reach), strict=True))
        curved = sum(g.curvature(*iv) > 0 for g, iv in ridges) or 1
        ridge_pieces = tuple(pieces_for(OUTER * budget / curved, g.curvature(*iv), *iv) for g, iv in ridges)
        return pieces_for(FEATURES * budget, 2.0 * scale, box.low, box.high), ridge_pieces

    def features(
        self,
    ) -> tuple[Float[Tensor, " pieces"], Float[Tensor, "retrievals units"], Float[Tensor, " retrievals"]]:
        """The knots of a coordinate's units, and every Psi_i as weights of all coordinates' units and an offset."""
        minima, box = self.minima, self.minima.box
        square = interpolant(torch.square, box.low, box.high, self.pieces)
        shift = interpolation_error(2.0, box.low, box.high, self.pieces) / 2  # the interpolant lies above the square
        slopes = torch.tensor(minima.slopes, dtype=torch.float64)
        weights = (minima.curve * square.weights).repeat(minima.count, box.token_dim)
        weights[:, :: self.pieces] += slopes  # the first unit is x_j - low itself
        offset = torch.tensor(minima.offsets, dtype=torch.float64) + slopes.sum(dim=1) * box.low
        return square.knots, weights, offset + minima.curve * box.token_dim * (square.offset - shift)

    def read_out(
        self, z: Float[Tensor, "retrievals inputs"], bias: Float[Tensor, " retrievals"]
    ) -> tuple[Layer, Layer]:
        """F_0 of z_i = <z[i], input> + bias[i]: every ridge g_j(<u_j, z>) as its interpolant on the reach."""
        outer = self.minima.outer
        rows, biases, weights, constant = [], [], [], self.minima.constant
        ridges = zip(outer.directions, outer.profiles, outer.intervals(*self.reach), self.ridge_pieces, strict=True)
        for u, g, interval, pieces in ridges:
            part, along = interpolant(g, *interval, pieces), torch.tensor(u, dtype=torch.float64)
            rows.append((along @ z).expand(pieces, -1))
            biases.append(along @ bias - part.knots)
            weights.append(part.weights)
            constant += part.offset
        last = torch.cat(weights)[None, :], torch.tensor([constant], dtype=torch.float64)
        return (torch.cat(rows), torch.cat(biases)), last
