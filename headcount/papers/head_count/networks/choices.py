"""The choices behind Theorem 2(1): how many pieces, how sharp a softmax, so that the terms add up to eps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headcount.certificates.arithmetic import smallest
from headcount.certificates.excess import gibbs_excess
from headcount.certificates.network import refuse_too_large
from headcount.papers.head_count.networks.gate_mass import mass_outside
from headcount.papers.head_count.networks.interpolants import Interpolants
from headcount.papers.head_count.networks.minima import Minima
from headcount.results import Bound

GATE = 2.0  # the paper's 1 is too weak: see bounds.mass_outside


@dataclass(frozen=True)
class Choices(Interpolants):
    """All choices of the construction: pieces of the square, pieces of each ridge, beta and the gate."""

    beta: float
    gate: float = GATE

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


def plan_for(minima: Minima, eps: float, budget: float, gate: float) -> Choices:
    """The smallest plan whose terms, rounding apart, add up to at most the budget; `eps` is what was asked for."""
    if gate <= 1.0:
        raise ValueError(
            f"gate {gate:g} is no stronger than the range 1 of a feature, so tokens outside a window keep weight at "
            f"every beta; use more than 1 (the default {GATE:g} repairs the printed proof)"
        )
    box = minima.box
    pieces, ridge_pieces = Interpolants(minima, 1, (1,) * len(minima.outer.profiles)).pieces_within(budget)
    parameters = pieces * box.token_dim * (box.token_dim + 2 + 2 * minima.count)
    parameters += sum(ridge_pieces) * (2 * minima.count + 2)
    refuse_too_large(parameters, f"eps {eps:g}", eps=eps, rate=0.5)
    plan = Choices(minima, pieces, ridge_pieces, 1.0, gate)
    return _sharp_enough(plan, budget - plan.features_term() - plan.outer_term())


def _sharp_enough(plan: Choices, budget: float) -> Choices:
    """The plan with the smallest beta whose softmax and outside terms fit the budget."""

    def fits(beta: float) -> bool:
        at = replace(plan, beta=beta)
        return at.softmax_term() + at.outside_term() <= budget

    if max(plan.spreads) >= plan.gate:
        raise ValueError(f"the features spread over {max(plan.spreads):.3g}, more than the gate {plan.gate:g}")
    start = max(plan.softmax_term() / budget, 1e-9)
    return replace(plan, beta=smallest(lambda beta: beta >= 1e-9 and fits(beta), start))
