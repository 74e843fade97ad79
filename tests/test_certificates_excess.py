"""The Gibbs excess: never exceeded, attained, and sharper than the printed constant."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.certificates.excess import gibbs_excess, worst_distance
from headcount.papers.head_count.networks.gate_mass import mass_outside


def excess(values, beta):
    shifted = np.asarray(values) - np.min(values)
    weights = np.exp(-beta * shifted)
    return float((weights * shifted).sum() / weights.sum())


@pytest.mark.parametrize("competitors", [1, 3, 63, 1023])
@pytest.mark.parametrize("beta", [0.5, 20.0, 1e6])
def test_the_excess_is_attained_and_never_exceeded(competitors, beta):
    bound = gibbs_excess(competitors, beta).value
    at_worst = excess([0.0] + [worst_distance(competitors, beta)] * competitors, beta)
    assert at_worst == pytest.approx(bound, rel=1e-12)
    rng = np.random.default_rng(0)
    for scale in np.geomspace(0.1, 30, 40) / beta:
        assert excess(rng.exponential(scale, competitors + 1), beta) <= bound * (1 + 1e-12)


@given(st.lists(st.floats(0, 50), min_size=2, max_size=8), st.floats(0.01, 100))
def test_no_list_of_numbers_exceeds_it(values, beta):
    assert excess(values, beta) <= gibbs_excess(len(values) - 1, beta).value * (1 + 1e-9) + 1e-300


def test_it_is_the_number_whose_product_with_its_exponential_is_m_over_e():
    for m in (0, 1, 10, 63, 10_000):
        w = gibbs_excess(m, 1.0).value
        assert w * math.exp(w) == pytest.approx(m / math.e, rel=1e-12)


def test_the_printed_constant_is_ten_times_looser_at_63_competitors():
    assert gibbs_excess(63, 1.0).value == pytest.approx(2.31, abs=0.005)
    assert 63 / math.e > 10 * gibbs_excess(63, 1.0).value


def test_mass_outside_is_attained_by_a_token_that_scores_better_by_the_whole_spread():
    beta, inside, outside = 7.0, 3, 5
    for gate in (1.0, 1.5, 2.0):
        # In the window all features 1; outside all 0.
        within, off = inside * math.exp(-beta), outside * math.exp(-beta * gate)
        bound = mass_outside(inside, outside, beta=beta, gate=gate)
        assert bound.value == pytest.approx(off / (within + off), rel=1e-12)
        assert bound.vacuous == (gate == 1.0)
    rng = np.random.default_rng(0)
    for f, g in zip(rng.random((200, inside)), rng.random((200, outside)), strict=True):
        within, off = np.exp(-beta * f).sum(), np.exp(-beta * (g + 2.0)).sum()
        assert off / (within + off) <= mass_outside(inside, outside, beta=beta, gate=2.0).value
    assert mass_outside(inside, 0, beta=beta, gate=1.0).value == 0


def test_misuse_is_refused_by_name():
    with pytest.raises(ValueError, match="competitors"):
        gibbs_excess(-1, 1.0)
    with pytest.raises(ValueError, match="beta must be"):
        gibbs_excess(3, 0.0)
    with pytest.raises(ValueError, match="outside"):
        mass_outside(4, -1, beta=1.0, gate=2.0)
