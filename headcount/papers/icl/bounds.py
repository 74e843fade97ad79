"""What is claimed of in-context learning, as arithmetic: every formula here is a claim, none is a bound. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headcount.refusals import at_least, at_least_one, positive
from headcount.results import Bound
from headcount.sources import Checked, Source, implements

CLAIMED = "claimed, without a proof here"
PAPER = "mehta2025icl"


@implements(
    Source(PAPER, "the exponent of in-context learning"),
    test="tests/test_icl_claims.py::test_the_claimed_numbers_are_those_of_the_paper",
    status="conjectured",
    hypotheses=(CLAIMED, "levels: composed two-layer maps beyond a linear one (our reading of the hierarchy depth)"),
)
def icl_exponent(levels: int) -> Bound:
    """The claimed exponent of the error in depth, width, context and data: 1 / (2 (h + 1)).

    Source: Mehta and Gupta 2025 (in-context scaling), as a secondary source quotes it.

    >>> [round(icl_exponent(h).value, 4) for h in range(4)]
    [0.5, 0.25, 0.1667, 0.125]
    """
    at_least(0, levels=levels)
    return _claim("exponent", 1 / (2 * (levels + 1)), "the exponent of in-context learning", levels=levels)


@implements(
    Source(PAPER, "the transition"),
    test="tests/test_icl_claims.py::test_the_claimed_numbers_are_those_of_the_paper",
    status="conjectured",
    hypotheses=(CLAIMED, Checked("levels >= 1: at 0 the formula is 0")),
)
def icl_transition(examples: int, levels: int) -> Bound:
    """The claimed size of a sharp transition, (k h)^(2 (h + 1)): arithmetic, never a prediction on a plot.

    Source: Mehta and Gupta 2025 (in-context scaling), as a secondary source quotes it.
    Departs: refused at levels 0, where it is 0.

    >>> f"{icl_transition(16, 2).value:.3g}", f"{icl_transition(16, 3).value:.3g}"
    ('1.07e+09', '2.82e+13')
    """
    at_least_one(examples=examples)
    if levels < 1:
        raise ValueError(f"the transition (k h)^(2(h+1)) is 0 at h = 0: levels must be at least 1, got {levels}")
    try:
        value = float(examples * levels) ** (2 * (levels + 1))
    except OverflowError:
        raise ValueError(f"(k h)^(2(h+1)) is beyond float64 at k = {examples:.3g}, h = {levels}") from None
    return _claim("transition", value, "the transition", examples=examples, levels=levels)


@implements(
    Source(PAPER, "the effective step"),
    test="tests/test_icl_descent.py::test_the_claimed_step_is_far_worse_than_a_constant_one",
    status="conjectured",
    hypotheses=(CLAIMED, "what is shown here is that such a step would serve isotropic descent badly"),
)
def effective_step(layers: int, width: int) -> Bound:
    """The claimed step of the descent in a forward pass, 1 / sqrt(L d), without its constant.

    Source: Mehta and Gupta 2025 (in-context scaling), abstract.
    Departs: a step that shrinks with depth leaves exp(-2 sqrt(L/d)) of an isotropic error where a constant one leaves
    a geometric rest.

    >>> effective_step(4, 16).value
    0.125
    """
    at_least_one(layers=layers, width=width)
    return _claim("step", 1 / math.sqrt(layers * width), "the effective step", layers=layers, width=width)


@dataclass(frozen=True)
class ShapeCost:
    """What L layers of width d cost: scale L d^power."""

    name: str
    scale: float
    power: float

    def __call__(self, depth: float, width: float) -> float:
        return self.scale * depth * width**self.power


product = ShapeCost("depth x width", 1.0, 1.0)
parameters = ShapeCost("parameters", 12.0, 2.0)


@dataclass(frozen=True)
class BestShape:
    """Depth and width of the smallest L^(-a) + d^(-b) at a budget, and the powers of the budget they grow with."""

    depth: Bound
    width: Bound
    depth_power: float
    width_power: float
    error: float


@implements(
    Source(PAPER, "the best shape"),
    test="tests/test_icl_claims.py::test_the_best_shape_is_the_one_that_brute_force_finds",
    status="derived",
    hypotheses=(CLAIMED, "error = L^(-a) + d^(-b): two powers that add"),
)
def best_shape(budget: float, depth_exponent: float, width_exponent: float, cost: ShapeCost = product) -> BestShape:
    """The depth and width that minimise L^(-a) + d^(-b) where cost(L, d) = budget.

    With cost s L d^p: L ~ (N/s)^(b/(pa+b)), d ~ (N/s)^(a/(pa+b)), and a L^(-a) p = b d^(-b) fixes the constants.
    Source: Mehta and Gupta 2025 (in-context scaling), abstract: L ~ N^(2/3), d ~ N^(1/3).
    Departs: the published powers need b = 2a and N = L d; exponents and budget are arguments here.

    >>> shape = best_shape(1e6, 0.25, 0.5)
    >>> round(shape.depth_power, 4), round(shape.width_power, 4)
    (0.6667, 0.3333)
    >>> shape = best_shape(1e6, 0.25, 0.5, parameters)
    >>> shape.depth_power, shape.width_power
    (0.5, 0.25)
    """
    positive(budget=budget, depth_exponent=depth_exponent, width_exponent=width_exponent)
    a, b, p = depth_exponent, width_exponent, cost.power
    # On L = (N/s) d^(-p) the derivative in log d is p a L^(-a) - b d^(-b); it vanishes at one place.
    width = (b / (p * a) * (budget / cost.scale) ** a) ** (1 / (p * a + b))
    depth = budget / cost.scale / width**p
    sizes = {"budget": budget, "cost": cost.name, "depth_exponent": a, "width_exponent": b}
    deep, wide = (_claim(n, value, "the best shape", **sizes) for n, value in (("depth", depth), ("width", width)))
    return BestShape(deep, wide, b / (p * a + b), a / (p * a + b), depth**-a + width**-b)


def _claim(quantity: str, value: float, name: str, **sizes: float | str) -> Bound:
    return Bound(quantity, value, "exact", Source(PAPER, name), hypotheses=(CLAIMED,), sizes=sizes)
