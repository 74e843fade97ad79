"""Theorem 2(1) as a program: the promise is kept, nearly attained, cheap in eps and free of the length."""

import math
from itertools import product

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.certificates.excess import gibbs_excess
from headcount.papers.head_count import enough_heads
from headcount.papers.head_count.networks.minima import minima_of
from headcount.papers.infoflow import build
from headcount.tasks import Affine, Exponential, KthLargest, LinearMax, Ridges, Sine, Square, TriangleCentre, Wells

CURVED = Ridges([[1.0, 1.0], [1.0, -0.5]], (Exponential(rate=0.7), Sine(scale=0.5, frequency=3.0, phase=0.3)))


def tasks():
    for D, T in ((1, 16), (2, 64), (4, 128), (8, 16), (3, 256)):
        yield Wells.random(D, D, T, seed=D, windows=D % 2 == 0)
        yield LinearMax.random(D, D, T, seed=D)
    yield Wells.random(8, 2, 128, windows=True)
    yield LinearMax.random(6, 3, 64)
    yield Wells(centres=[[0.2, 0.9], [0.7, 0.1]], length=32, combine=CURVED)


@pytest.mark.parametrize("task", list(tasks()), ids=lambda t: f"{type(t).__name__}-{t.structure.count}x{t.length}")
@pytest.mark.parametrize("eps", [1e-1, 1e-2, 1e-3, 1e-4])
def test_the_worst_gap_is_below_and_near_the_certificate(task, eps):
    built = enough_heads(task, eps)
    certificate = built.certificate
    check = certificate.check()
    assert check.holds, str(check)
    assert certificate.error <= eps
    assert certificate.error >= 0.5 * eps  # beta and pieces are not larger than they must be
    assert check.gap >= certificate["softmax excess"].value / 4


@pytest.mark.slow
@pytest.mark.parametrize("eps", [1e-1, 1e-4])
@pytest.mark.parametrize("D", [4, 8])
def test_the_longest_and_widest_keep_their_promise_too(eps, D):
    for task in (Wells.random(D, 4, 1024, windows=True), LinearMax.random(D, 8, 1024)):
        built = enough_heads(task, eps)
        check = built.check()
        assert check.holds
        assert check.gap >= built.certificate["softmax excess"].value / 4


def test_one_token_needs_no_softmax():
    built = enough_heads(Wells(centres=[[0.5]], length=1), 1e-3)
    assert built.certificate["softmax excess"].value == 0
    assert built.check().holds


def test_parameters_grow_like_eps_to_the_minus_one_half():
    eps = np.geomspace(1e-1, 1e-7, 13)
    task = Wells.random(3, 2, 64)
    counts = [enough_heads(task, float(e)).feedforward_parameters for e in eps]
    # Far from the constant part the exponent is 1/2; a rate of 0.45 or 0.55 would fail.
    slope = np.polyfit(np.log(eps[6:]), np.log(counts[6:]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.03)


def test_parameters_grow_like_eps_to_the_minus_one_half_for_a_curved_outer_function():
    task = Wells(centres=[[0.2, 0.9], [0.7, 0.1]], length=32, combine=CURVED)
    eps = np.geomspace(1e-3, 1e-7, 6)
    counts = [enough_heads(task, float(e)).feedforward_parameters for e in eps]
    assert np.polyfit(np.log(eps), np.log(counts), 1)[0] == pytest.approx(-0.5, abs=0.03)


@pytest.mark.parametrize("windows", [False, True])
def test_parameters_do_not_grow_with_the_length(windows):
    counts = {
        enough_heads(Wells.random(4, 2, T, windows=windows), 1e-3).feedforward_parameters for T in (16, 128, 1024)
    }
    assert len(counts) == 1


def test_beta_grows_like_the_logarithm_of_the_length_over_eps():
    for T, eps in product((64, 1024), (1e-2, 1e-4)):
        beta = enough_heads(LinearMax([[1.0]], T), eps, radius=1.0).net.shape.betas[0]
        # |dF_0/dz| = 2 on [-1, 1]; a thousandth of eps is kept for rounding.
        w = gibbs_excess(T - 1, 1.0).value
        assert beta == pytest.approx(2 * w / eps, rel=2e-3)


def test_the_network_has_as_many_heads_of_dimension_two_as_retrievals():
    net = enough_heads(Wells.random(5, 2, 32), 1e-2).net
    assert net.shape.layers == ((5, 2),)
    assert len(net.shape.encoder) == len(net.shape.read_out) == 3  # two-layer feed-forwards


def test_scattered_windows_are_met_exactly_and_their_pieces_counted():
    window = tuple(range(0, 40, 3))
    task = Wells(centres=[[0.3], [0.8]], length=40, windows=(window, tuple(range(40))))
    built = enough_heads(task, 1e-2)
    x = built.domain.sample(3, generator=torch.Generator().manual_seed(0))
    gate = built.net.encode(x)[0, :, 1]
    assert gate.tolist() == [0.0 if t in window else -2.0 for t in range(40)]
    plain = enough_heads(Wells(centres=[[0.3], [0.8]], length=40), 1e-2)
    assert built.feedforward_parameters > plain.feedforward_parameters
    assert built.check().holds


def test_the_features_of_minima_are_the_tasks_own():
    task = Wells.random(3, 2, 8, windows=True)
    x = task.sample(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[0]
    minima = minima_of(task)
    z = torch.stack([minima.features(x)[:, list(w), i].amin(1) for i, w in enumerate(minima.windows)], 1)
    assert torch.allclose(z, task.depths(x), atol=1e-14)
    linear = LinearMax.random(3, 4, 8)
    x = x.new_tensor(np.random.default_rng(0).uniform(-2, 2, (5, 8, 4)))
    minima = minima_of(linear, 2.0)
    y = minima.constant + minima.outer(minima.features(x).amin(1))
    assert torch.allclose(y, linear(x), atol=1e-13)
    assert all((0 <= f <= 1) for f in minima.features(x).flatten().tolist())


def test_the_public_verb_builds_and_states_its_box():
    built = hc.build(hc.tasks.LinearMax.random(2, 2, 16), eps=1e-2)
    assert isinstance(built, hc.Built)
    assert built.certificate.error <= 1e-2
    assert built.certificate.hypotheses[0] == "tokens in [-6, 6]^2"
    assert build(hc.tasks.LinearMax.random(2, 2, 16), radius=2.0).domain.high == 2.0


@pytest.mark.parametrize("eps", [0.0, -1e-3, math.nan, math.inf])
def test_an_eps_that_is_not_positive_is_refused(eps):
    with pytest.raises(ValueError, match="eps must be a finite number above 0"):
        build(Wells.random(2, 2, 8), eps)


def test_what_breaks_a_hypothesis_is_refused_by_name():
    with pytest.raises(ValueError, match="at least a quarter"):
        build(Wells(centres=[[0.1], [0.5]], length=16, windows=((0, 1, 2), tuple(range(16)))))
    with pytest.raises(ValueError, match="centres 0 and 1 coincide"):
        build(Wells(centres=[[0.1], [0.1]], length=16))
    with pytest.raises(ValueError, match="gradient of combine is zero in well 1"):
        build(Wells(centres=[[0.1], [0.9]], length=16, combine=Ridges([[1.0, 0.0]], (Affine(),))))
    with pytest.raises(ValueError, match="gradient of combine is zero in well 0"):
        build(Wells(centres=[[0.1], [0.9]], length=16, combine=Ridges([[1.0, 1.0]], (Square(),))))
    with pytest.raises(ValueError, match="no construction is known for TriangleCentre"):
        build(TriangleCentre(16))
    with pytest.raises(ValueError, match="radius belongs to"):
        build(Wells.random(2, 2, 8), radius=3.0)
    with pytest.raises(ValueError, match="radius must be"):
        build(LinearMax.random(2, 2, 8), radius=-1.0)
    with pytest.raises(ValueError, match="direction 1 is zero"):
        build(LinearMax([[1.0], [0.0]], 8))
    with pytest.raises(ValueError, match="is not a combination of minima"):
        enough_heads(KthLargest(2, 16))
    with pytest.raises(ValueError, match="below what float64 can certify"):
        build(Wells.random(2, 2, 64, windows=True), 1e-12)
