"""The greedy division of a budget, against brute force."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.shrinking.budget import Curve, hull, spend


def best(curves, budget):
    ranks = itertools.product(*(range(c.least, len(c.errors)) for c in curves))
    fits = [r for r in ranks if sum(c.cost * k for c, k in zip(curves, r, strict=True)) <= budget]
    return min(sum(c.errors[k] for c, k in zip(curves, r, strict=True)) for r in fits)


def convex(gains):
    gains = sorted(gains, reverse=True)
    return tuple(sum(gains[r:]) for r in range(len(gains) + 1))


gains = st.lists(st.integers(0, 50), min_size=1, max_size=4)
errors = st.lists(st.integers(0, 50), min_size=2, max_size=5)


@settings(max_examples=80, deadline=None)
@given(st.lists(gains, min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 30))
def test_greedy_is_optimal_when_every_rank_costs_the_same(several, cost, budget):
    curves = [Curve(str(i), cost, convex(g)) for i, g in enumerate(several)]
    found = spend(curves, budget)
    assert found.error == pytest.approx(best(curves, budget))
    assert found.cost <= budget


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(errors, st.integers(1, 4)), min_size=1, max_size=4),
    st.integers(0, 25),
)
def test_any_curves_are_solved_within_the_stated_distance(several, budget):
    curves = [Curve(str(i), cost, tuple(values)) for i, (values, cost) in enumerate(several)]
    found, least = spend(curves, budget), best(curves, budget)
    assert found.floor - 1e-9 <= least <= found.error + 1e-9


def test_the_floor_is_tight_on_convex_curves():
    curves = [Curve("a", 2, (9.0, 4.0, 1.0, 0.0)), Curve("b", 2, (7.0, 3.0, 0.0))]
    found = spend(curves, 6)
    assert found.floor == pytest.approx(found.error) == pytest.approx(best(curves, 6))


def test_the_hull_skips_ranks_that_do_not_pay():
    assert hull((1.0, 1.0, 1.0, 0.0)) == [0, 3]
    assert hull((1.0, 0.2, 0.5)) == [0, 1]


def test_a_budget_below_the_least_ranks_is_refused():
    with pytest.raises(ValueError, match="budget of 3 parameters cannot be met: the least ranks alone cost 4"):
        spend([Curve("a", 4, (1.0, 0.0), least=1)], 3)
    with pytest.raises(ValueError, match="clash"):
        Curve("a", 0, (1.0,))
