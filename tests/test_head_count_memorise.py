"""Theorem 2(3) as a program: one head keeps the sequence exactly, and the read-out's promise is kept and nearly met."""

import math

import numpy as np
import pytest
import torch

from headcount.papers.head_count import memorise
from headcount.papers.head_count.networks.memorise import steps_of_maximum
from headcount.papers.infoflow import build
from headcount.tasks import Exponential, LinearMax, Ridges, Sine, Wells

CURVED = Ridges([[1.0, 1.0], [1.0, -0.5]], (Exponential(rate=0.7), Sine(scale=0.5, frequency=3.0, phase=0.3)))
TASKS = [
    Wells.random(2, 1, 8),
    Wells.random(3, 2, 12, windows=True),
    LinearMax.random(2, 2, 8),
    Wells(centres=[[0.2, 0.9], [0.7, 0.1]], length=6, combine=CURVED),
    Wells(centres=[[0.5]], length=1),
]


@pytest.mark.parametrize("levels", [1, 4, 16, 64])
def test_the_maximum_network_keeps_and_attains_half_a_step(levels):
    v = torch.rand(500, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v[:100] = v[:100, :1]
    ends = torch.tensor([[0.0] * 9, [1.0] * 9, [1.0] + [0.0] * 8], dtype=torch.float64)
    v = torch.cat([v, ends])
    gap = (steps_of_maximum(levels)(v) - v.amax(dim=1)).abs()
    assert gap.max() <= 0.5 / levels + 1e-15
    assert gap.max() >= 0.49 / levels


@pytest.mark.parametrize("task", TASKS, ids=lambda t: f"{type(t).__name__}-{t.structure.count}x{t.length}")
@pytest.mark.parametrize("eps", [0.2, 0.05])
def test_the_worst_gap_is_below_and_near_the_certificate(task, eps):
    built = memorise(task, eps)
    check = built.check()
    assert check.holds, str(check)
    assert 0.4 * eps <= built.certificate.error <= eps
    assert check.gap >= built.certificate["maximum"].value / 4


def test_the_average_is_the_whole_sequence():
    task = LinearMax.random(2, 3, 7)
    built = memorise(task, 0.5, radius=2.0)
    x = built.domain.sample(4, generator=torch.Generator().manual_seed(0))
    kept = built.net.attended(x).reshape(4, 7, 3) * 7
    assert torch.allclose(kept * 4 - 2, x, atol=1e-13)
    assert built.net.shape.layers == ((1, 21),)


def test_the_read_out_has_five_layers():
    assert len(memorise(Wells.random(2, 1, 8), 0.1).net.read_out.maps) == 5


def test_parameters_grow_like_one_plus_gamma_and_widths_like_one():
    task = Wells.random(1, 1, 4)
    eps = np.geomspace(1e-2, 1e-3, 5)
    nets = [memorise(task, float(e)).net for e in eps]

    def rate(sizes):
        return -np.polyfit(np.log(eps), np.log(sizes), 1)[0]

    assert rate([max(n.shape.read_out) for n in nets]) == pytest.approx(1.0, abs=0.05)
    # Merged layers join the features' units with those of the maximum: (T/eps) x eps^(-1/2) weights, none zero.
    joined = [int(torch.count_nonzero(n.read_out.weights[1][0])) for n in nets]
    assert rate(joined) == pytest.approx(1.5, abs=0.05)
    forwards = [[p for part in (n.encoder, *n.between, n.read_out) for p in part.parameters()] for n in nets]
    assert 1.2 <= rate([sum(int(torch.count_nonzero(p)) for p in parts) for parts in forwards]) <= 1.5
    # Counting the zeros between the 1/eps sums and the T/eps units below them gives 2 instead.
    assert rate([n.feedforward_parameters for n in nets]) == pytest.approx(2.0, abs=0.1)


def test_both_constructions_agree_on_the_same_input():
    task = Wells.random(2, 2, 8, windows=True)
    x = task.sample(64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)[0]
    one, many = build(task, 0.05, by=memorise), build(task, 1e-4)
    assert (one.net(x) - many.net(x)).abs().max() <= one.certificate.error + many.certificate.error


def test_what_would_not_fit_in_memory_is_refused_before_it_is_built():
    with pytest.raises(ValueError, match=r"memorises within 0\.001 would take .* parameters"):
        memorise(Wells.random(4, 4, 512), 1e-3)
    with pytest.raises(ValueError, match="eps must be"):
        memorise(Wells.random(2, 1, 8), math.nan)
