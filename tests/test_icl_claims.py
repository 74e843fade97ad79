"""The claims of the in-context paper as arithmetic, the best shape against brute force, and bad sizes."""

import math

import pytest

import headcount as hc
from headcount.papers.icl.bounds import CLAIMED
from headcount.papers.icl.published import EXPONENT_CLAIM, SHAPE_CLAIM

PAIRS = ((0.25, 0.5), (0.25, 0.25), (0.5, 0.25))


def brute_shape(budget, error, cost):
    """The best shape by search over ten thousand widths: the second road."""
    top = math.log(budget / cost.scale) / cost.power
    widths = [math.exp(top * i / 10_000) for i in range(10_001)]
    best = min(widths, key=lambda d: error(budget / cost.scale / d**cost.power, d))
    return budget / cost.scale / best**cost.power, best


def test_the_claimed_numbers_are_those_of_the_paper():
    for h in EXPONENT_CLAIM.rows:
        assert hc.icl.icl_exponent(h).value == pytest.approx(EXPONENT_CLAIM.at(h, "exponent"), abs=5e-5)
    assert hc.icl.icl_transition(16, 2).value == 32**6
    assert hc.icl.icl_transition(16, 3).value == 48**8
    assert hc.icl.effective_step(9, 4).value == 1 / 6


def test_every_claim_says_first_that_it_is_claimed():
    shape = hc.icl.best_shape(1e4, 0.5, 0.5)
    claims = [
        hc.icl.icl_exponent(1),
        hc.icl.icl_transition(8, 1),
        hc.icl.effective_step(2, 2),
        shape.depth,
        shape.width,
    ]
    assert all(claim.assumed[0] == CLAIMED for claim in claims)
    assert "claimed, without a proof here" in str(claims[0])


@pytest.mark.parametrize("a, b", PAIRS)
@pytest.mark.parametrize("cost", (hc.icl.product, hc.icl.parameters), ids=("L d", "12 L d^2"))
def test_the_best_shape_is_the_one_that_brute_force_finds(a, b, cost):
    found = {}
    for budget in (1e6, 1e8):
        shape = hc.icl.best_shape(budget, a, b, cost)
        assert cost(shape.depth.value, shape.width.value) == pytest.approx(budget)
        depth, width = brute_shape(budget, lambda L, d: L**-a + d**-b, cost)
        assert shape.width.value == pytest.approx(width, rel=3e-3)
        assert shape.depth.value == pytest.approx(depth, rel=6e-3)
        assert shape.error <= (depth**-a + width**-b) * (1 + 1e-12)
        found[budget] = shape
    power = math.log(found[1e8].depth.value / found[1e6].depth.value) / math.log(100)
    assert power == pytest.approx(shape.depth_power, abs=1e-9)


def test_the_published_powers_need_a_width_exponent_twice_that_of_depth_and_the_budget_l_d():
    shape = hc.icl.best_shape(1e6, 0.25, 0.5)
    assert shape.depth_power == pytest.approx(SHAPE_CLAIM.at("depth", "depth x width"), abs=5e-5)
    assert shape.width_power == pytest.approx(SHAPE_CLAIM.at("width", "depth x width"), abs=5e-5)
    assert hc.icl.best_shape(1e6, 0.25, 0.25).depth_power == 0.5
    assert hc.icl.best_shape(1e6, 0.25, 0.5, hc.icl.parameters).depth_power == 0.5


def test_bad_sizes_are_refused_in_one_line():
    with pytest.raises(ValueError, match="levels must be at least 1, got 0"):
        hc.icl.icl_transition(16, 0)
    with pytest.raises(ValueError, match="levels must be at least 0, got -1"):
        hc.icl.icl_exponent(-1)
    with pytest.raises(ValueError, match="budget must be a finite number above 0"):
        hc.icl.best_shape(0, 0.5, 0.5)
