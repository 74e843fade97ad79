"""The choices behind Theorem 2(1): how many pieces, how sharp a softmax, so that the terms add up to eps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headcount.certificates.arithmetic import smallest
from headcount.certificates.excess import gibbs_excess
from headcount.certificates.network import refuse_too_large
from headcount.certificates.relu import interpolation_error, pieces_for
from headcount.papers.head_count.networks.gate_mass import mass_outside
from headcount.papers.head_count.networks.minima import Minima
from headcount.results import Bound

GATE = 2.0  # the paper's 1 is too weak: see bounds.mass_outside
FEATURES, OUTER = 0.25, 0.25  # shares of the budget; softmax and gate take what is left


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

    @property
    def leak(self) -> float:
        """2 beta gate mu of the head that leaves most weight mu behind its gate (see `rounding.moved_by`)."""
        parts = zip(self.minima.windows, self.spreads, strict=True)
        return 2 * self.beta * self.gate * max(self._outside(len(w), spread).value for w, spread in parts)

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


def plan_for(minima: Minima, eps: float, budget: float, gate: float) -> Choices:
    """The smallest plan whose terms, rounding apart, add up to at most the budget; `eps` is what was asked for."""
    if gate <= 1.0:
        raise ValueError(
            f"gate {gate:g} is no stronger than the range 1 of a feature, so tokens outside a window keep weight at "
            f"every beta; use more than 1 (the default {GATE:g} repairs the printed proof)"
        )
    box, outer = minima.box, minima.outer
    # With one piece the reach is widest, so these slopes and curvatures bound those of any plan.
    widest = Choices(minima, 1, (1,) * len(outer.profiles), 1.0, gate)
    # features: sum_i slope_i * curve * d * (2 h^2/8)/2 <= FEATURES * budget
    scale = math.fsum(widest.slopes) * minima.curve * box.token_dim / 2
    pieces = pieces_for(FEATURES * budget, 2.0 * scale, box.low, box.high)
    ridges = list(zip(outer.profiles, outer.intervals(*widest.reach), strict=True))
    curved = sum(g.curvature(*interval) > 0 for g, interval in ridges) or 1
    ridge_pieces = tuple(pieces_for(OUTER * budget / curved, g.curvature(*iv), *iv) for g, iv in ridges)
    parameters = pieces * box.token_dim * (box.token_dim + 2 + 2 * minima.count)
    parameters += sum(ridge_pieces) * (2 * minima.count + 2)
    refuse_too_large(parameters, f"eps {eps:g}", eps=eps, rate=0.5)
    plan = Choices(minima, pieces, ridge_pieces, 1.0, gate)
    features = plan.feature_error * math.fsum(plan.slopes)
    return _sharp_enough(plan, budget - features - plan.outer_term())


def _sharp_enough(plan: Choices, budget: float) -> Choices:
    """The plan with the smallest beta whose softmax and outside terms fit the budget."""

    def fits(beta: float) -> bool:
        at = replace(plan, beta=beta)
        return at.softmax_term() + at.outside_term() <= budget

    if max(plan.spreads) >= plan.gate:
        raise ValueError(f"the features spread over {max(plan.spreads):.3g}, more than the gate {plan.gate:g}")
    start = max(plan.softmax_term() / budget, 1e-9)
    return replace(plan, beta=smallest(lambda beta: beta >= 1e-9 and fits(beta), start))
