"""Where training goes: W to the Frobenius solution, (K, Q) to the nuclear one, and what happens on the way."""

import dataclasses

import numpy as np
import pytest
import torch

from headcount.papers.attention_svm import (
    Selection,
    decompose,
    direction_gap,
    directions,
    frobenius,
    infeasible_choices,
    largest_rise,
    max_margin,
    nonlinear_study,
    nuclear,
    regularisation_path,
    select,
    settled,
    summary,
)
from headcount.papers.attention_svm.descent import from_tails, plain_gradient
from headcount.papers.attention_svm.experiments import solutions
from headcount.papers.attention_svm.nonlinear import _ridged, concave_head, vanishing_ridge


def drawn(instances, seed=0, sizes=(6, 8, 10)):
    return Selection(*sizes).sample(instances, generator=torch.Generator().manual_seed(seed))


def trained(data, *, factored, steps=2000, looks=1):
    return select(data, factored=factored, steps=steps, looks=looks, generator=torch.Generator().manual_seed(1))


def table(instances):
    data = drawn(instances)
    return tuple(
        summary(name, directions(data, trained(data, factored=factored)))
        for name, factored in (("W", False), ("(K, Q)", True))
    )


def holds(joint, factored, instances, within):
    assert joint["instances"] == factored["instances"] == instances
    assert joint["nearer to Frobenius"] == instances
    assert factored["nearer to Frobenius"] == 0
    assert joint["cosine to Frobenius"] == pytest.approx(0.9971, abs=within)
    assert factored["cosine to nuclear"] == pytest.approx(0.9960, abs=within)
    assert max(joint["largest gap"], factored["largest gap"]) < 1e-6


def test_each_training_goes_to_its_own_solution():
    holds(*table(6), 6, 0.005)


@pytest.mark.slow
def test_each_training_goes_to_its_own_solution_in_a_hundred_instances():
    joint, factored = table(100)
    holds(joint, factored, 100, 0.005)
    assert joint["not locally optimal"] <= 5


def test_the_gradient_from_tails_has_the_direction_of_the_plain_one():
    data = drawn(5, 3, (3, 4, 5))
    w = torch.randn((5, 5, 5), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    one, other = plain_gradient(data, w), from_tails(data, w)
    cosines = (one * other).sum(dim=(1, 2)) / one.norm(dim=(1, 2)) / other.norm(dim=(1, 2))
    assert torch.allclose(cosines, torch.ones(5, dtype=torch.float64), atol=1e-12)


def test_a_plain_gradient_gets_worse_and_the_stop_rule_ends_near_its_best():
    data = drawn(2)
    path = select(data, steps=6000, looks=24, slope=plain_gradient)
    for i in range(2):
        one, _ = solutions(data, path, i)
        gaps = direction_gap(path.weights[:, i].numpy(), one.weights)
        stop = settled(path, 0.1, i)
        assert 0 < stop < len(path.steps) - 1
        assert gaps[stop] < 2 * gaps.min()
        assert gaps[-1] > 1.3 * gaps.min()
        assert largest_rise(path, i, one.weights) > 1e-5


def test_exact_tails_only_come_nearer_once_the_tokens_are_chosen():
    data = drawn(6, 5)
    path = trained(data, factored=False, looks=40)
    for i in range(6):
        one, _ = solutions(data, path, i)
        assert largest_rise(path, i, one.weights) < 1e-4


@pytest.mark.slow
def test_exact_tails_only_come_nearer_in_three_hundred_instances():
    """After the last change of a chosen token, which two instances of 300 make only after step 4,000."""
    data = drawn(300, 6)
    late = [i for i, rise in enumerate(rises(data, 4000, 40)) if rise >= 1e-4]
    assert len(late) <= 3
    assert max(rises(some(data, late), 20_000, 200), default=0.0) < 1e-4


def rises(data, steps, looks):
    path = trained(data, factored=False, steps=steps, looks=looks)
    count = path.weights.shape[1]
    return [largest_rise(path, i, solutions(data, path, i)[0].weights) for i in range(count)]


def some(data, which):
    parts = {f.name: getattr(data, f.name) for f in dataclasses.fields(data)}
    return type(data)(**{name: part[which] if torch.is_tensor(part) else part for name, part in parts.items()})


def test_a_rise_is_seen_where_there_is_one():
    data = drawn(1)
    path = trained(data, factored=False, steps=200, looks=10)
    start = path.weights[5, 0].numpy()
    assert largest_rise(path, 0, start) > 1e-3


def test_where_the_best_tokens_are_infeasible_training_chooses_feasible_ones():
    found = infeasible_choices(10, 5, 3, wanted=12, steps=4000)
    assert found.trained == 12
    assert found.saturated >= 5
    assert found.on_feasible == found.saturated
    assert found.locally_optimal >= found.saturated - 1
    with pytest.raises(ValueError, match="smaller token_dim"):
        infeasible_choices(2, 3, 6, wanted=1)


@pytest.mark.slow
def test_a_hundred_and_fifty_infeasible_draws():
    found = infeasible_choices(10, 5, 3, wanted=150)
    assert found.saturated > 110
    assert found.on_feasible == found.saturated
    assert found.locally_optimal >= found.saturated - 4


def test_nonlinear_heads_need_the_finite_part():
    found = nonlinear_study(10, 8)
    assert found["drawn"] == 8
    assert found["set aside"] + found["one token each"] + found["mixing tokens"] == 8
    assert found["mixing tokens"] >= 5
    assert found["gap of the rest"] < 0.01  # the part that can fail: W - W_fin against W_dir
    assert found["gap of the rest"] < found["gap of W_dir"]


@pytest.mark.slow
@pytest.mark.parametrize("token_dim", [4, 6, 8, 10])
def test_nonlinear_heads_need_the_finite_part_in_every_dimension(token_dim):
    found = nonlinear_study(token_dim, 100)
    assert found["mixing tokens"] >= 50
    assert found["gap of the rest"] < 0.02


def relu_head(token_dim, g):
    """sum_k relu(V^T m)_k with V normal over its Frobenius norm, as in the published study of mixtures: convex in m."""
    values = g.standard_normal((token_dim, token_dim))
    values /= np.linalg.norm(values)

    def head(m):
        before = m @ values
        return np.maximum(before, 0).sum(axis=1), (before > 0) @ values.T

    return head


def test_the_gradient_by_hand_is_the_gradient():
    g = np.random.default_rng(0)
    x, z, y, w = (g.standard_normal(s) for s in ((3, 4, 5), (3, 5), (3,), (25,)))
    for draw in (concave_head, relu_head):
        head = draw(5, g)
        args = (x, z, np.sign(y), head, 0.1, (5, 5))
        slope = _ridged(w, *args)[1]
        for k in range(0, 25, 6):
            step = 1e-6 * np.eye(25)[k]
            assert (_ridged(w + step, *args)[0] - _ridged(w - step, *args)[0]) / 2e-6 == pytest.approx(
                slope[k], abs=1e-8
            )


def test_the_mixture_is_the_nearest_point_of_the_hull():
    g = np.random.default_rng(3)
    x, z = g.standard_normal((1, 3, 4)), g.standard_normal((1, 4))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    head = concave_head(4, np.random.default_rng(7))
    w = vanishing_ridge(x, z, np.ones(1), head)
    scores = x[0] @ w @ z[0]
    p = np.exp(scores - scores.max())
    best = head((p / p.sum()) @ x)[0][0]
    simplex = g.dirichlet(np.ones(3) * 0.5, 20000)
    assert best >= head(simplex @ x[0])[0].max() - 1e-4


def test_an_undecided_softmax_is_set_aside():
    x, z = np.eye(2)[None], np.array([[1.0, 0.0]])
    assert decompose(x, z, np.array([[10.0, 0.0], [0.0, 0.0]])) is None  # the lesser weight is 4.5e-5
    assert decompose(x, z, np.array([[30.0, 0.0], [0.0, 0.0]])) is not None


@pytest.mark.parametrize(("ball", "norm", "last"), [("frobenius", frobenius, 256.0), ("nuclear", nuclear, 64.0)])
def test_the_regularisation_path_turns_to_the_solution_of_its_norm(ball, norm, last):
    """1 - cosine falls like 1/R^2; the other norm's solution stays away."""
    data = Selection(4, 5, 6).sample(3, generator=torch.Generator().manual_seed(1))
    path = regularisation_path(data, (1.0, 4.0, 16.0, last), norm=ball, steps=1500)
    size = path.norm(dim=(2, 3)) if ball == "frobenius" else torch.linalg.svdvals(path).sum(-1)
    assert (size <= torch.tensor([[1.0], [4.0], [16.0], [last]]) * (1 + 1e-9)).all()
    for i in range(3):
        one = max_margin(*data.arrays(i), data.best[i].numpy(), norm)
        other = max_margin(*data.arrays(i), data.best[i].numpy(), nuclear if ball == "frobenius" else frobenius)
        gaps = direction_gap(path[:, i].numpy(), one.weights)
        assert (np.diff(gaps) < 0).all()
        assert gaps[-1] < min(0.02, direction_gap(path[-1, i].numpy(), other.weights))


def test_radii_that_do_not_grow_and_unknown_balls_are_refused():
    data = Selection(2, 3, 4).sample(1, generator=torch.Generator().manual_seed(0))
    for radii, ball, says in (((2.0, 1.0), "frobenius", "radii grow"), ((1.0,), "spectral", "no ball is called")):
        with pytest.raises(ValueError, match=says):
            regularisation_path(data, radii, norm=ball)
