"""Descent in the forward pass: equal to plain descent, certified, tight; and its exact curves by depth."""

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.certificates import load
from headcount.papers.icl.contexts import best_linear
from headcount.papers.icl.descent_curves import DEPTHS, claimed_step
from headcount.papers.icl.networks import DescentNet, DescentShape, sample_edges

# The means and medians of the note, dimension 16, 64 examples, 2000 contexts.
ISOTROPIC = (3.3e-1, 1.6e-1, 5.5e-2, 1.0e-2, 7.6e-4)
FALLING = (3.8e-1, 2.9e-1, 2.0e-1, 1.3e-1, 7.5e-2)


def drawn(task, batch, seed=0):
    return task.sample(batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("noise", (0.0, 0.5))
def test_the_network_is_plain_gradient_descent_at_every_depth(noise):
    task = hc.icl.InContext(examples=24, dimension=6, noise=noise)
    x, _ = drawn(task, 32)
    inputs, labels, query = x[:, :-1, :6], x[:, :-1, 6], x[:, -1, :6]
    w = torch.zeros_like(query)
    for layers in range(1, 33):
        rest = labels - (inputs @ w[..., None])[..., 0]
        w = w + 0.4 * (inputs.mT @ rest[..., None])[..., 0] / task.examples
        answers = DescentNet(DescentShape(6, layers, 0.4))(x)
        assert (answers - (w * query).sum(-1)).abs().max() < 1e-12


def test_the_certificate_of_each_context_holds_on_a_thousand_and_is_not_far_above_the_worst():
    task = hc.icl.InContext(examples=16, dimension=4)
    x, truth = drawn(task, 1000)
    gaps = (DescentNet(DescentShape(4, 5, 0.5))(x) - truth).abs()
    errors, _ = hc.icl.context_error(x, 5, 0.5)
    assert (gaps <= errors * (1 + 1e-9) + 1e-12).all()
    assert (gaps / errors).max() > 0.9


def test_with_noise_the_certificate_is_about_the_least_squares_solution():
    task = hc.icl.InContext(examples=32, dimension=4, noise=1.0)
    x, truth = drawn(task, 200)
    answers = DescentNet(DescentShape(4, 6, 0.4))(x)
    best = (best_linear(x[:, :-1, :4], x[:, :-1, 4], 0.0) * x[:, -1, :4]).sum(-1)
    errors, _ = hc.icl.context_error(x, 6, 0.4)
    assert ((answers - best).abs() <= errors * (1 + 1e-9) + 1e-12).all()
    assert not ((answers - truth).abs() <= errors).all()


@pytest.mark.parametrize("layers, rate", ((1, None), (8, None), (8, 0.85), (3, 0.5)))
def test_a_planted_query_meets_the_certificate(layers, rate):
    built = hc.icl.descent(hc.icl.InContext(64, 16), layers, rate)
    check = built.check()
    assert check.holds
    assert check.gap == pytest.approx(built.certificate["descent"].value, rel=1e-9)
    assert built.certificate["rounding"].value < 1e-9


def test_a_certificate_half_as_large_would_be_broken():
    built = hc.icl.descent(hc.icl.InContext(64, 16), 4)
    assert built.check().gap > built.certificate.error / 2


def test_a_built_descent_is_the_same_after_a_file(tmp_path):
    built = hc.icl.descent(hc.icl.InContext(16, 4), 3)
    again = load(built.save(tmp_path / "descent.safetensors"))
    x = built.domain.sample(8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(built.net(x), again.net(x)) and again.certificate.error == built.certificate.error


def test_the_step_of_the_population_diverges_on_most_contexts_and_that_of_the_edges_on_one_in_a_hundred():
    x, _ = drawn(hc.icl.InContext(64, 16), 2000)
    shares = {rate: hc.icl.context_error(x, 8, rate)[1].double().mean().item() for rate in (1.0, 0.9, 0.8)}
    assert 0.55 < shares[1.0] < 0.68 and 0.08 < shares[0.9] < 0.22 and shares[0.8] < 0.02
    assert hc.icl.safe_rate(16, 64) == 0.8 and sample_edges(16, 64) == (0.25, 2.25)


def test_isotropic_descent_is_geometric_and_no_power_law():
    curve = hc.icl.descent_curve(hc.icl.Spectrum())
    np.testing.assert_allclose(curve.means[:5], ISOTROPIC, rtol=0.1)
    assert curve.medians[5] == pytest.approx(3.0e-6, rel=0.3) and curve.medians[6] == pytest.approx(1.2e-10, rel=0.5)
    assert curve.slopes[0] == pytest.approx(-1.0, abs=0.1) and curve.slopes[-1] < -6
    halves = np.diff(np.log(curve.medians)) / np.diff(DEPTHS)  # geometric: each layer takes the same part, in the end
    assert halves[-1] == pytest.approx(halves[-2], rel=0.2)


def test_a_falling_spectrum_gives_a_power_that_drifts():
    curve = hc.icl.descent_curve(hc.icl.Spectrum(1.5))
    np.testing.assert_allclose(curve.means[:5], FALLING, rtol=0.1)
    assert curve.medians[5] == pytest.approx(3.7e-2, rel=0.1) and curve.medians[6] == pytest.approx(1.3e-2, rel=0.15)
    assert all(a > b for a, b in zip(curve.slopes, curve.slopes[1:], strict=False))
    np.testing.assert_allclose(curve.slopes, (-0.37, -0.51, -0.64, -0.80, -1.05, -1.44), atol=0.1)


def test_the_claimed_step_is_far_worse_than_a_constant_one():
    claimed = hc.icl.descent_curve(hc.icl.Spectrum(), rates=claimed_step)
    np.testing.assert_allclose(claimed.means, (0.58, 0.49, 0.39, 0.29, 0.20, 0.12, 0.068), rtol=0.035)
    assert claimed.means[0] == pytest.approx(1 - 1 / 2 + (1 + 17 / 64) / 16, rel=0.01)  # one layer by hand
    constant = hc.icl.descent_curve(hc.icl.Spectrum())
    assert 1e8 < claimed.medians[-1] / constant.medians[-1] < 1e10


def test_the_curve_is_what_the_network_leaves():
    """One answer, two roads: the trace formula, and the network on drawn teachers and queries."""
    task = hc.icl.InContext(examples=32, dimension=4)
    x, truth = drawn(task, 4000)
    measured = (DescentNet(DescentShape(4, 3, 0.5))(x) - truth).square().mean().item()
    exact = hc.icl.descent_curve(
        hc.icl.Spectrum(),
        dimension=4,
        examples=32,
        rates=lambda values, layers: np.full(len(values), 0.5),
        depths=(3,),
        contexts=4000,
    )
    assert measured == pytest.approx(exact.means[0], rel=0.15)


def test_the_best_answer_with_noise_falls_like_one_over_the_context():
    errors = hc.icl.ridge_curve((8, 16, 32, 64, 128, 256))
    np.testing.assert_allclose(errors, (0.63, 0.40, 0.18, 0.077, 0.035, 0.016), rtol=0.08)
    assert np.log2(errors[-1] / errors[-2]) == pytest.approx(-1.12, abs=0.1)


def test_only_rotated_covariances_leave_an_error_that_depth_lowers_at_an_infinite_context():
    rotated = [hc.icl.plateau(hc.icl.Spectrum(2.0, rotated=True), depth) for depth in (1, 2, 3, 4)]
    assert rotated[0] > 5 * rotated[1] > 25 * rotated[2] > 0 and rotated[3] == 0
    assert hc.icl.plateau(hc.icl.Spectrum(), 1) == hc.icl.plateau(hc.icl.Spectrum(2.0), 1) == 0
    etas = torch.linspace(0.2, 6, 2000)[:, None]
    sigma = torch.tensor(hc.icl.Spectrum(2.0).values(4))
    brute = (sigma * (1 - etas * sigma) ** 2).sum(1).min() / sigma.sum()
    assert rotated[0] == pytest.approx(brute.item(), rel=1e-3)


def test_descent_refuses_what_it_does_not_certify():
    for task in (hc.icl.InContext(8, 2, noise=0.1), hc.icl.InContext(8, 2, levels=1)):
        with pytest.raises(ValueError, match="linear teacher without noise"):
            hc.icl.descent(task, 2)
    with pytest.raises(ValueError, match="a rate between 0 and"):
        hc.icl.descent(hc.icl.InContext(64, 16), 2, rate=1.0)
    with pytest.raises(ValueError, match="edges 0 < low <= high"):
        hc.icl.descent(hc.icl.InContext(16, 16), 2)
