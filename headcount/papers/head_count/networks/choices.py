"""The choices behind Theorem 2(1): how many pieces, how sharp a softmax, so that the terms add up to eps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headcount.certificates.excess import gibbs_excess, mass_outside
from headcount.certificates.minima import Minima
from headcount.certificates.network import refuse_too_large
from headcount.certificates.relu import interpolation_error, pieces_for
from headcount.results import Bound

__all__ = ["GATE", "ROUNDING", "Choices", "plan_for"]

GATE = 2.0  # the paper's 1 is too weak: see bounds.mass_outside
FEATURES, OUTER, ROUNDING = 0.25, 0.25, (0.001, 0.02, 0.2)  # shares of eps; softmax and gate take what is left


@dataclass(frozen=True)
class Choices:
    """All choices of the construction: pieces of the square, pieces of each ridge, beta and the gate."""

    minima: Minima
    pieces: int
    ridge_pieces: tuple[int, ...]
    beta: float
    gate: float = GATE

    @property
    def feature_error(self) -> float:
        """|Psi_i - f_i| on the box: the interpolated square of each coordinate, its error halved by a shift."""
        box = self.minima.box
        return self.minima.curve * box.token_dim * interpolation_error(2.0, box.low, box.high, self.pieces) / 2

    @property
    def reach(self) -> tuple[float, float]:
        """An interval that holds every average of Psi_i, and a little more for rounding."""
        margin = self.feature_error + 1e-9
        return -margin, 1 + margin

    @property
    def slopes(self) -> tuple[float, ...]:
        """How much F_0 moves at most with each z_i over the reach."""
        return self.minima.outer.partial_bounds(*self.reach)

    @property
    def spreads(self) -> tuple[float, ...]:
        """The range of each Psi_i on the box."""
        return tuple(top + 2 * self.feature_error for top in self.minima.tops)

    def softmax_term(self) -> float:
        """sum_i |dF_0/dz_i| W(m_i/e)/beta."""
        excesses = [gibbs_excess(m, self.beta).value for m in self.minima.competitors]
        return math.fsum(s * e for s, e in zip(self.slopes, excesses, strict=True))

    def outside_term(self) -> float:
        """sum_i |dF_0/dz_i| spread_i (weight outside S_i)."""
        parts = zip(self.slopes, self.spreads, self.minima.windows, strict=True)
        # A millionth of the gate is given away, far more than rounding moves a score.
        return math.fsum(slope * spread * self._outside(len(w), spread).value for slope, spread, w in parts)

    def _outside(self, inside: int, spread: float) -> Bound:
        gate = self.gate - 1e-6
        return mass_outside(inside, self.minima.length - inside, beta=self.beta, gate=gate, spread=spread)

    def outer_term(self) -> float:
        """sum_j |g_j''| h_j^2/8."""
        ridges = zip(self.minima.outer.profiles, self.minima.outer.intervals(*self.reach), strict=True)
        return math.fsum(
            interpolation_error(g.curvature(low, high), low, high, n)
            for (g, (low, high)), n in zip(ridges, self.ridge_pieces, strict=True)
        )


def plan_for(minima: Minima, eps: float, gate: float, kept: float) -> Choices:
    if gate <= 1.0:
        raise ValueError(
            f"gate {gate:g} is no stronger than the range 1 of a feature, so tokens outside a window keep weight at "
            f"every beta; use more than 1 (the default {GATE:g} repairs the printed proof)"
        )
    box = minima.box
    # With one piece the reach is widest, so these slopes and curvatures bound those of any plan.
    widest = Choices(minima, 1, (1,) * len(minima.outer.profiles), 1.0, gate)
    # features: sum_i slope_i * curve * d * (2 h^2/8)/2 <= FEATURES * eps
    scale = math.fsum(widest.slopes) * minima.curve * box.token_dim / 2
    pieces = pieces_for(FEATURES * eps, 2.0 * scale, box.low, box.high)
    refuse_too_large(pieces * box.token_dim * (box.token_dim + 2 + 2 * minima.count), f"eps {eps:g}")
    ridges = list(zip(minima.outer.profiles, minima.outer.intervals(*widest.reach), strict=True))
    curved = sum(g.curvature(*interval) > 0 for g, interval in ridges) or 1
    ridge_pieces = tuple(pieces_for(OUTER * eps / curved, g.curvature(*iv), *iv) for g, iv in ridges)
    plan = Choices(minima, pieces, ridge_pieces, 1.0, gate)
    features = plan.feature_error * math.fsum(plan.slopes)
    return _sharp_enough(plan, (1 - kept) * eps - features - plan.outer_term())


def _sharp_enough(plan: Choices, budget: float) -> Choices:
    """The plan with the smallest beta whose softmax and outside terms fit the budget, to 1 part in 10^12."""

    def at(beta: float) -> Choices:
        return replace(plan, beta=beta)

    def fits(beta: float) -> bool:
        return at(beta).softmax_term() + at(beta).outside_term() <= budget

    if max(plan.spreads) >= plan.gate:
        raise ValueError(f"the features spread over {max(plan.spreads):.3g}, more than the gate {plan.gate:g}")
    high = max(plan.softmax_term() / budget, 1e-9)
    while not fits(high):
        high *= 1.25
    low = high / 1.25
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return at(high)
