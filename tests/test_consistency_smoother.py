"""Attention as a kernel smoother: the identity, the direct estimate, the certificate, and every length."""

import pytest
import torch

import headcount as hc
from headcount.certificates import load


def drawn(task, batch, seed=0):
    return task.sample(batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)[0]


@pytest.mark.parametrize("dimension", (1, 2, 3))
@pytest.mark.parametrize("beta", (1.0, 40.0, 4096.0))
def test_softmax_of_the_scores_is_the_gaussian_kernel(dimension, beta):
    task = hc.consistency.Smooth("sine", 50, dimension, noise=0.5)
    x = drawn(task, 20)
    net = hc.consistency.smoother(hc.consistency.Smooth("sine", 50, dimension), beta).net
    squares = (x[:, :-1, :-1] - x[:, -1:, :-1]).square().sum(-1)
    kernel = torch.exp(-beta * (squares - squares.amin(-1, keepdim=True)))
    kernel = kernel / kernel.sum(-1, keepdim=True)
    assert (torch.softmax(net.scores(x), -1) - kernel).abs().max() < 1e-12 * max(1, beta / 40)
    assert (net(x) - hc.consistency.kernel_estimate(x, beta)).abs().max() < 1e-12 * max(1, beta / 40)


def test_one_network_serves_every_length():
    net = hc.consistency.smoother(hc.consistency.Smooth("sine", 16, 2), 30.0).net
    for examples in (1, 7, 300):
        x = drawn(hc.consistency.Smooth("sine", examples, 2, noise=0.1), 5)
        assert (net(x) - hc.consistency.kernel_estimate(x, 30.0)).abs().max() < 1e-12


@pytest.mark.parametrize("function", ("sine", "slope"))
@pytest.mark.parametrize("examples, dimension", ((16, 1), (256, 1), (64, 2), (27, 3)))
def test_the_certificate_holds_and_a_corner_meets_that_of_its_context(function, examples, dimension):
    task = hc.consistency.Smooth(function, examples, dimension)
    built = hc.consistency.smoother(task)
    assert built.check().holds
    x = drawn(task, 200)
    errors = hc.consistency.context_bound(x, built.net.shape.beta, task.lipschitz)
    assert ((built.net(x) - task(x)).abs() <= errors + 1e-9).all()
    if function == "slope" and dimension == 1:  # all points lie on one side of the corner: nothing cancels
        x[:, -1, 0] = 0.0
        errors = hc.consistency.context_bound(x, built.net.shape.beta, 1.0)
        assert torch.allclose((built.net(x) - task(x)).abs(), errors, rtol=1e-8)


def test_the_promise_falls_with_the_length_and_is_within_ten_times_the_worst_context():
    promises = [
        hc.consistency.smoother(hc.consistency.Smooth("slope", t, 1)).certificate.error for t in (64, 256, 1024)
    ]
    assert promises[0] > 2 * promises[1] > 4 * promises[2]
    built = hc.consistency.smoother(hc.consistency.Smooth("slope", 64, 1))
    x = torch.linspace(1 / 64, 1, 64, dtype=torch.float64)[None, :, None]  # every point at the far end of its cell
    x = built.task.labelled(torch.cat([x, torch.zeros(1, 1, 1, dtype=torch.float64)], dim=1))
    assert (built.net(x) - built.task(x)).abs() > built.certificate.error / 10


def test_the_smoother_of_the_ball_is_the_flat_one_as_curvature_falls():
    x = drawn(hc.consistency.Smooth("sine", 40, 2), 10)
    flat = hc.consistency.kernel_estimate(x, 20.0)
    assert torch.allclose(hc.consistency.ball_smoother(x, 20.0, hc.consistency.Ball(0.0)), flat, atol=1e-12)
    gaps = [(hc.consistency.ball_smoother(x, 20.0, hc.consistency.Ball(c)) - flat).abs().max() for c in (1e-4, 1.0)]
    assert gaps[0] < 1e-3 < gaps[1]


def test_a_smoother_refuses_noise_and_a_temperature_that_is_none():
    with pytest.raises(ValueError, match=r"labels without noise, got 0\.5"):
        hc.consistency.smoother(hc.consistency.Smooth("sine", 8, 1, noise=0.5))
    with pytest.raises(ValueError, match="beta must be a finite number above 0"):
        hc.consistency.smoother(hc.consistency.Smooth("sine", 8, 1), -1.0)
    with pytest.raises(ValueError, match="did you mean 'sine'"):
        hc.consistency.Smooth("sin", 8, 1)


def test_a_built_smoother_is_the_same_after_a_file(tmp_path):
    built = hc.consistency.smoother(hc.consistency.Smooth("sine", 16, 2))
    again = load(built.save(tmp_path / "smoother.safetensors"))
    x = built.domain.sample(4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(built.net(x), again.net(x))
