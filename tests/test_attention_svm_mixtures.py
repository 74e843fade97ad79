"""Nonlinear heads: the published ReLU head, the two parts of W, and which of the statements can fail."""

import numpy as np
import pytest
import torch

from headcount.papers.attention_svm.nonlinear import decompose
from headcount.papers.attention_svm.relu_heads import (
    attention,
    descend,
    mixing_rows,
    mixing_runs,
    relu_gradient,
    relu_instances,
)


def drawn(instances, seed=0, token_dim=5):
    return relu_instances(3, 4, token_dim, instances, torch.Generator().manual_seed(seed))


def test_draws_are_as_published():
    data, values, start = drawn(40)
    assert (data.labels < 0).any(dim=1).all()
    assert torch.allclose(values.flatten(1).norm(dim=1), torch.ones(40).double())
    assert float(start.abs().max()) <= 5**-0.5 < 1.01 * float(start.abs().max())


def test_the_gradient_by_hand_is_the_gradient():
    data, values, start = drawn(3)
    w = (10 * start).requires_grad_()
    mixed = torch.einsum("ist,istd->isd", attention(data, w), data.tokens)
    loss = torch.nn.functional.softplus(-data.labels * (mixed @ values).relu().sum(dim=-1)).mean(dim=-1)
    (wanted,) = torch.autograd.grad(loss.sum(), w)
    assert torch.allclose(relu_gradient(data, values, w.detach()), wanted, atol=1e-15, rtol=1e-10)


def test_the_published_relu_head_mixes_tokens_and_goes_like_both_parts():
    (row,) = mixing_rows((4,), 60, steps=1500)
    counted = ("undecided", "all attended", "infeasible", "one token each", "mixing tokens")
    assert sum(row[name] for name in counted) == row["drawn"] == 60
    assert row["mixing tokens"] >= 5
    assert row["cosine of the rest"] > 0.9
    assert row["cosine of the rest"] > row["cosine to one token each"] + 0.05


@pytest.mark.slow
def test_the_published_study_in_every_dimension():
    rows = mixing_rows(instances=300)
    for row in rows:
        assert row["cosine of the rest"] > max(0.93, row["cosine to one token each"] + 0.05)
        assert row["W_dir nearer than one token each"] >= 0.9 * row["mixing tokens"]
    assert sum(row["mixing tokens"] for row in rows) > 60


def test_only_sequences_labelled_minus_one_mix():
    data, values, start = drawn(80, 1, 4)
    w = descend(data, values, start, 1500)
    runs, _ = mixing_runs(data, w)
    many = (attention(data, w) >= 1e-3).sum(dim=-1) > 1
    mixed = [run.instance for run in runs if run.mixes]
    assert len(mixed) > 5
    assert not many[mixed][data.labels[mixed] > 0].any()


def attends_to_two(g):
    """A matrix that attends to two tokens of one sequence and is else arbitrary."""
    x, z = g.standard_normal((1, 4, 6)), g.standard_normal((1, 6))
    rows = np.array([np.outer(x[0, t] - x[0, 0], z[0]).ravel() for t in (1, 2, 3)])
    sides = np.array([0.7, -30.0 - 20 * g.random(), -30.0 - 20 * g.random()])
    w = np.linalg.lstsq(rows, sides, rcond=None)[0]
    other = g.standard_normal(36)
    other -= np.linalg.lstsq(rows, rows @ other, rcond=None)[0]
    return x, z, (w + np.linalg.norm(w) * other / np.linalg.norm(other)).reshape(6, 6)


def test_both_parts_are_nearer_than_one_for_every_matrix_so_that_is_no_evidence():
    g = np.random.default_rng(0)
    for _ in range(20):
        x, z, w = attends_to_two(g)
        found = decompose(x, z, w)
        share = (found.finite**2).sum() / (w**2).sum()
        assert share > 0
        assert (1 - found.gap_both) ** 2 == pytest.approx((1 - found.gap_direction) ** 2 + share, abs=1e-12)
        assert found.gap_rest > 0.1  # an arbitrary matrix does not grow like W_dir, and this says so
        grown = decompose(x, z, found.finite + 40 * found.direction)
        assert grown.gap_rest < 1e-12
