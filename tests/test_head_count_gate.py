"""The gate as printed breaks the promise for every beta; the repaired one keeps it."""

import math
from dataclasses import replace

import pytest
import torch

from headcount.papers.head_count.networks.choices import Choices
from headcount.papers.head_count.networks.enough_heads import assemble, enough_heads
from headcount.papers.head_count.networks.gate_mass import mass_outside
from headcount.papers.head_count.networks.minima import minima_of
from headcount.tasks import Wells

LENGTH = 64
QUARTER = tuple(range(LENGTH // 4))
TASK = Wells(centres=[[0.0]], length=LENGTH, windows=(QUARTER,))


def counterexample():
    """Feature 1 on the whole window, feature 0 everywhere else: with gate 1 all scores tie."""
    x = torch.zeros(1, LENGTH, 1, dtype=torch.float64)
    x[:, list(QUARTER)] = 1.0
    return x


def printed_promise(beta):
    """Equation 15: (|S| - 1)/(e beta) + T exp(-beta)."""
    return (len(QUARTER) - 1) / (math.e * beta) + LENGTH * math.exp(-beta)


@pytest.mark.parametrize("beta", [10.0, 100.0, 1e4, 1e5])
def test_the_printed_gate_breaks_its_promise_at_every_beta(beta):
    net = assemble(Choices(minima_of(TASK), pieces=4096, ridge_pieces=(1,), beta=beta, gate=1.0))
    x = counterexample()
    assert float(TASK(x)) == 1.0
    # The average is |S|/T = 1/4 up to the interpolation error, instead of 1.
    assert float(net(x)) == pytest.approx(0.25, abs=beta * 2e-8 + 1e-6)
    assert abs(float(net(x)) - 1.0) > printed_promise(beta)


@pytest.mark.parametrize("beta", [20.0, 100.0, 1e4, 1e6])
def test_the_repaired_gate_keeps_its_promise(beta):
    plan = Choices(minima_of(TASK), pieces=4096, ridge_pieces=(1,), beta=beta, gate=2.0)
    gap = abs(float(assemble(plan)(counterexample())) - 1.0)
    outside = mass_outside(len(QUARTER), 3 * len(QUARTER), beta=beta, gate=2.0, spread=plan.spreads[0]).value
    assert gap <= outside * 1.001 + 1e-7
    assert gap <= printed_promise(beta) + 1e-7


def test_at_small_beta_the_outside_mass_comes_near_its_bound():
    plan = Choices(minima_of(TASK), pieces=4096, ridge_pieces=(1,), beta=8.0, gate=2.0)
    gap = abs(float(assemble(plan)(counterexample())) - 1.0)
    assert gap <= plan.outside_term() <= 1.01 * gap


def test_a_gate_that_keeps_nothing_out_is_refused():
    with pytest.raises(ValueError, match="gate 1 is no stronger"):
        enough_heads(TASK, 1e-2, gate=1.0)


def test_a_certificate_does_not_survive_the_printed_gate():
    built = enough_heads(TASK, 1e-2)
    beta = built.net.shape.betas[0]
    weak = replace(built, net=assemble(Choices(minima_of(TASK), 64, (1,), beta, gate=1.0)))
    assert built.check().holds
    assert not weak.check().holds
