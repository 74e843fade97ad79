"""Equation 3, its closed-form minimum, and the integers that reach it."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.papers.allocation.bounds import exponential_sum_error, extraction_error, synthesis, trade_off
from headcount.papers.allocation.lags import _by_heads, _one_lag, allocate, relaxed

E_128 = {1: 1.326, 2: 0.663, 4: 0.332, 8: 0.166, 9: 0.481, 10: 0.580, 20: 0.841, 40: 0.928, 80: 0.965}


def brute_force(weights, token_dim, budget):
    """The least error over every choice of (heads, head_dim) for every lag: for small sizes, the second road."""
    pairs = [(0, 0)] + [(h, n) for h in range(1, budget + 1) for n in range(1, min(token_dim, budget // h) + 1)]
    return min(
        extraction_error(weights, [h for h, _ in choice], [n for _, n in choice], token_dim).value
        for choice in itertools.product(pairs, repeat=len(weights))
        if sum(h * n for h, n in choice) <= budget
    )


def test_equation_three_gives_the_published_values():
    found = trade_off(128, 16, list(E_128))
    assert found == pytest.approx(list(E_128.values()), abs=5e-4)
    assert min(E_128, key=lambda h: trade_off(128, 16, [h])[0]) == 8


def test_the_bound_of_whole_heads_is_the_trade_off_curve():
    for heads in (1, 2, 4, 8, 16, 32):
        alone = extraction_error([1.0], [heads], [128 // heads], 16).value
        assert alone == pytest.approx(trade_off(128, 16, [heads])[0])


def test_the_four_gram_gets_eight_heads_of_eight_for_each_lag():
    found = allocate([1.0] * 4, token_dim=8, budget=256)
    assert (found.lags, found.heads, found.head_dims) == (4, (8,) * 4, (8,) * 4)
    assert found.error == pytest.approx(0.6835, abs=5e-5)
    assert found.relaxed.error == pytest.approx(0.6834, abs=5e-5)
    assert found.relaxed.heads == pytest.approx((7.88, 7.96, 8.04, 8.12), abs=5e-3)


def test_decaying_weights_give_the_closed_form_of_the_notes():
    found = relaxed([0.7**i for i in range(1, 13)], token_dim=16, budget=256)
    kept = [h for h in found.heads if h]
    assert len(kept) == 4
    assert kept == pytest.approx((5.06, 4.28, 3.61, 3.05), abs=5e-3)


def test_the_closed_form_is_a_stationary_point_no_search_improves():
    weights, total = [1.0, 0.6, 0.4], 24.0
    found = relaxed(weights, token_dim=4, budget=4 * total)
    rng = np.random.default_rng(0)
    for _ in range(500):
        h = rng.dirichlet(np.ones(3)) * total
        error = sum(w * synthesis(m, 1) / x for m, (w, x) in enumerate(zip(weights, h, strict=True), start=1))
        assert error >= found.error - 1e-12
    spent = sum(w * synthesis(m, 1) / x for m, (w, x) in enumerate(zip(weights, found.heads, strict=True), start=1))
    assert spent == pytest.approx(found.error)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.0, 3.0), min_size=1, max_size=2),
    st.integers(1, 5),
    st.integers(1, 16),
)
def test_the_integer_optimum_equals_brute_force(weights, token_dim, budget):
    found = allocate(weights, token_dim, budget)
    assert found.error == pytest.approx(brute_force(weights, token_dim, budget), abs=1e-12)
    assert sum(h * n for h, n in zip(found.heads, found.head_dims, strict=True)) <= budget


def test_three_lags_equal_brute_force_over_full_heads():
    weights = [1.0, 0.9, 0.3]
    for total in (3, 5, 8, 12):
        found = allocate(weights, token_dim=4, budget=4 * total)
        full = min(
            extraction_error(weights, h, [4 if x else 0 for x in h], 4).value
            for h in itertools.product(range(total + 1), repeat=3)
            if sum(h) <= total
        )
        assert found.error <= full + 1e-12


def test_a_large_budget_is_solved_among_full_heads_and_stays_near_the_closed_form():
    found = allocate([1.0] * 4, token_dim=8, budget=8 * 1024)
    assert found.relaxed.error <= found.error <= found.relaxed.error * 1.001


def test_partial_heads_beat_full_ones_only_where_a_whole_head_is_missing():
    """With 2 d - 2 dimensions for d = 64, two heads of d - 1 beat one of d, and beat dropping the lag."""
    found = allocate([1.0], token_dim=64, budget=126)
    assert (found.heads, found.head_dims) == ((2,), (63,))
    assert found.error < 1.0


def test_few_heads_break_the_promise_and_one_more_keeps_it():
    """The note's warning: with H <= m decays nothing helps, with H = m + 1 the promise is beaten five times over."""
    grid = np.geomspace(0.02, 5.0, 7)
    starved = min(exponential_sum_error(2, pair) for pair in itertools.combinations(grid, 2))
    assert starved > 0.999 > synthesis(2, 2)
    assert exponential_sum_error(2, [3.0, 4.0, 5.0]) < synthesis(2, 3) / 5
    assert allocate([1.0] * 4, 8, 8 * 16).starved == (4,)
    assert not allocate([1.0] * 4, 8, 256).starved
    bound = extraction_error([0.0, 1.0], [1, 2], [8, 8], 8)
    assert "lag 2 has 2 heads and needs 3" in " ".join(map(str, bound.hypotheses))
    assert bound.vacuous and "says nothing here" in str(bound)
    assert not extraction_error([0.0, 1.0], [2, 3], [8, 8], 8).vacuous


def test_large_budgets_are_exact_and_a_larger_one_is_never_worse():
    """Full heads alone, as above 4096 before, drop every lag at 4097, where two heads of dimension 2048 read one."""
    weights = [1.0, 0.7, 0.3]
    errors = [allocate(weights, 2100, budget).error for budget in (4000, 4096, 4097, 4199, 4200, 5000, 8000)]
    assert errors == sorted(errors, reverse=True)
    found = allocate(weights, 2100, 4097)
    assert found.exact and found.gap == 0
    heads, dims = _by_heads(weights, 2100, 4097)
    assert found.error < extraction_error(weights, heads, dims, 2100).value - 0.1


def test_the_programme_over_useful_spendings_equals_the_plain_one():
    rng = np.random.default_rng(0)
    for _ in range(20):
        weights, token_dim, budget = rng.uniform(0, 2, 3), int(rng.integers(2, 40)), int(rng.integers(5, 200))
        tables = [_one_lag(lag, w, token_dim, budget)[0] for lag, w in enumerate(weights, start=1)]
        best = np.zeros(budget + 1)
        for error in tables:
            best = np.array([min(best[b - c] + error[c] for c in range(b + 1)) for b in range(budget + 1)])
        assert allocate(weights.tolist(), token_dim, budget).error == pytest.approx(best[-1], abs=1e-12)


def test_where_the_programme_is_too_long_the_gap_is_stated_and_true():
    found = allocate([1.0] * 4, token_dim=8, budget=8 * 2**20)
    assert not found.exact and 0 <= found.gap == found.error - found.relaxed.error < 1e-6 * found.error


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=5), st.integers(1, 12), st.integers(1, 60))
def test_no_integers_beat_the_closed_form(weights, token_dim, budget):
    found = allocate(weights, token_dim, budget)
    assert found.relaxed.error <= found.error + 1e-12


def test_nonsense_gets_one_sentence():
    with pytest.raises(ValueError, match="weights is empty"):
        allocate([], 8, 256)
    with pytest.raises(ValueError, match="budget must be a whole number of at least 1"):
        allocate([1.0], 8, 0)
    with pytest.raises(ValueError, match="finite and not negative, got -1"):
        allocate([-1.0], 8, 16)
    with pytest.raises(ValueError, match="token_dim must be at least 1"):
        allocate([1.0], 0, 16)
    with pytest.raises(ValueError, match="one entry per lag"):
        extraction_error([1.0], [1, 2], [3], 4)
    assert math.isclose(synthesis(5, 1), 1.3 * math.exp(0.1))


def test_the_bound_and_the_allocation_load_without_torch():
    code = "import sys, headcount as h, headcount.shrinking as s; "
    code += "h.allocation.allocate([1], 2, 4); h.allocation.trade_off(8, 2, [1]); "
    code += "s.spend([], 0); h.allocation.ramp(2, 2, 2); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
