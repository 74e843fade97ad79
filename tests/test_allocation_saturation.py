"""The Jacobian of a softmax row, exactly and by the bound, from both sides."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.papers.allocation.jacobian import half_range, jacobian_norm, row_bound


def by_eigenvalues(p):
    return torch.linalg.eigvalsh(torch.diag(p) - p[:, None] * p[None, :])[-1]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.floats(0.0, 30.0), st.integers(0, 10_000))
def test_the_secular_equation_gives_the_largest_eigenvalue(length, spread, seed):
    z = spread * torch.randn(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    p = z.softmax(0)
    assert float(jacobian_norm(p)) == pytest.approx(float(by_eigenvalues(p)), abs=1e-12)


def test_ties_and_certainty():
    assert float(jacobian_norm(torch.full((5,), 0.2, dtype=torch.float64))) == pytest.approx(0.2)
    assert float(jacobian_norm(torch.tensor([1.0, 0.0]))) == 0.0
    assert float(jacobian_norm(torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64))) == pytest.approx(0.4)
    assert jacobian_norm(torch.ones(3, 1)).tolist() == [0.0] * 3


@pytest.mark.parametrize("half", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("length", [16, 64, 256, 1024])
def test_the_jacobian_is_below_the_largest_weight_and_the_published_bound(half, length):
    g = torch.Generator().manual_seed(length)
    z = half * (2 * torch.rand(50, length, generator=g, dtype=torch.float64) - 1)
    p = z.softmax(-1)
    norm = jacobian_norm(p)
    promised = row_bound(half, length).value
    assert bool((norm <= p.amax(-1) + 1e-15).all())
    assert bool((p.amax(-1) <= promised).all())
    # near: one logit at the top and all others at the bottom comes within the tail of the bound
    worst = torch.full((length,), -half, dtype=torch.float64)
    worst[:2] = half  # two equal tops, so that the Jacobian's norm is the largest weight itself
    reached = float(jacobian_norm(worst.softmax(0)))
    assert reached > promised / 10
    if length >= 256:
        assert reached > promised * (1 - 2 * math.exp(2 * half) / length)


def test_the_norm_falls_as_one_over_length_for_bounded_logits_and_hardly_for_peaked_ones():
    g = torch.Generator().manual_seed(0)
    lengths = (16, 64, 256, 1024)
    bounded = [float(jacobian_norm((2 * torch.rand(64, n, generator=g) - 1).softmax(-1)).mean()) for n in lengths]
    peaked = [float(jacobian_norm((3 * torch.randn(64, n, generator=g)).softmax(-1)).mean()) for n in lengths]
    scaled = [n * v for n, v in zip(lengths, bounded, strict=True)]
    assert max(scaled) / min(scaled) < 1.6
    assert peaked[-1] > 0.4 * peaked[0]


def test_unbounded_logits_are_reported_not_passed():
    assert row_bound(1.0, 1024).vacuous is False
    assert row_bound(6.0, 1024).vacuous is True
    assert row_bound(1e6, 4).value > 1e100
    with pytest.raises(ValueError, match="Lambda must not be negative"):
        row_bound(-1.0, 4)


def test_the_half_range_ignores_constants_and_masked_keys():
    z = torch.tensor([[101.0, 103.0, -math.inf], [0.0, 0.0, 5.0]])
    assert half_range(z).tolist() == [1.0, 2.5]
