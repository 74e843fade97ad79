"""The training claim in small: what weight decay leaves of the loss."""

import math

import numpy as np
import pytest
import torch

from headcount.papers.hardmax.experiments import DecayedLoss, _losses, _slope, decay_study, exact_block_norm


def test_the_loss_at_the_optimum_is_below_the_decay_times_the_exact_norm():
    study = decay_study(decays=(0.1, 0.01), seeds=(0,), starts=2, steps=200)
    assert len(study.rows) == 2 and all(row.holds for row in study.rows)
    assert all(row.norm <= 2 * row.allowed / row.decay for row in study.rows)  # the other half of the same comparison


@pytest.mark.slow
def test_the_loss_falls_at_least_linearly():
    study = decay_study()
    assert all(row.holds for row in study.rows) and study.at_least_linear


def test_the_exact_block_is_exact():
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.standard_normal((4, 3, 2))), torch.from_numpy(rng.standard_normal((4, 2)))
    a = np.array([1.0, 0.0])
    keys = x.mean(1).numpy() @ a
    order = np.argsort(keys)
    steps = np.append(keys[order][0] - 1.0, keys[order][:-1])
    w = np.linalg.solve(np.maximum(keys[order][:, None] - steps, 0.0), y.numpy()[order])
    weights = [torch.zeros(1, 2, 2), torch.eye(2)[None], torch.zeros(1, 1), torch.from_numpy(np.tile(a, (1, 4, 1)))]
    weights += [torch.from_numpy(-steps[None]), torch.from_numpy(w.T[None].copy()), torch.zeros(1, 1)]
    assert float(_losses([p.double() for p in weights], x, y)) < 1e-20
    norm = sum(float(p.double().square().sum()) for p in weights)
    assert exact_block_norm(x.mean(1).numpy(), y.numpy(), 0) <= norm


def test_the_slope_of_a_power_law_is_its_exponent():
    rows = [DecayedLoss(s, wd, (s + 1) * wd**1.5, 1.0, 1.0, 1.0) for s in (0, 1) for wd in (0.1, 0.01, 0.001)]
    slope, low, high = _slope(rows)
    assert math.isclose(slope, 1.5) and low <= slope <= high and high - low < 1e-6
