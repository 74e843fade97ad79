"""The Poincare ball's laws, for random points at a distance g from the rim, to what float64 can keep."""

import pytest
import torch
from torch import nn

from headcount.papers.consistency.ball import Ball, BallResidual

CURVATURES = (1e-4, 1.0, 10.0)


def points(c, gap, seed, count=200):
    """Random directions with radii up to `gap` radii from the rim."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    radius = (1 - gap) * torch.rand(count, 1, generator=generator, dtype=torch.float64).sqrt()
    return radius * v / v.norm(dim=-1, keepdim=True) / c**0.5


@pytest.mark.parametrize("c", CURVATURES)
@pytest.mark.parametrize("gap", (0.5, 1e-1, 1e-2, 1e-3))
def test_the_laws_hold_to_what_the_rim_allows(c, gap):
    ball, near = Ball(c), 1e-14 / gap**2
    x, y, z = (points(c, gap, seed) for seed in (0, 1, 2))
    unit = c**-0.5
    assert (ball.add(-x, ball.add(x, y)) - y).abs().max() < near * unit  # left cancellation
    assert (ball.distance(x, y) - ball.distance(y, x)).abs().max() < near * unit
    moved = ball.distance(ball.add(z, x), ball.add(z, y))
    apart = ball.distance(x, y)
    assert (moved - apart).abs().max() < near * unit
    assert (ball.exp0(ball.log0(x)) - x).abs().max() < near * unit


@pytest.mark.parametrize("c", (0.0, *CURVATURES))
def test_the_maps_at_the_origin_are_inverse_and_distances_from_it_are_twice_the_tangent(c):
    v = torch.randn(100, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    v = 0.8 * v / v.norm(dim=-1, keepdim=True) / max(1.0, c**0.5)
    ball = Ball(c)
    assert (ball.log0(ball.exp0(v)) - v).abs().max() < 1e-14
    origin = torch.zeros_like(v)
    assert torch.allclose(ball.distance(origin, ball.exp0(v)), 2 * v.norm(dim=-1), rtol=1e-12)
    assert torch.equal(ball.exp0(origin), origin) and torch.equal(ball.log0(origin), origin)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_the_origin_stays_where_it_is_in_either_precision(dtype):
    ball, origin = Ball(1.0), torch.zeros(2, 3, dtype=dtype, requires_grad=True)
    assert torch.equal(ball.exp0(origin), origin) and torch.equal(ball.log0(origin), origin)
    ball.log0(ball.add(ball.exp0(origin), ball.exp0(origin))).sum().backward()
    assert origin.grad is not None and torch.allclose(origin.grad, torch.full_like(origin, 2.0))


def test_the_sum_does_not_commute_but_in_flat_space():
    x, y = points(1.0, 0.3, 0), points(1.0, 0.3, 1)
    assert (Ball(1.0).add(x, y) - Ball(1.0).add(y, x)).abs().max() > 0.1
    assert torch.equal(Ball(0.0).add(x, y), Ball(0.0).add(y, x))


def test_flat_space_is_the_limit_and_an_exact_special_case():
    v, w = points(1.0, 0.3, 0), points(1.0, 0.3, 1)
    gaps = []
    for c in (1.0, 1e-2, 1e-4, 1e-6):
        ball = Ball(c)
        gaps.append((ball.log0(ball.add(ball.exp0(v), ball.exp0(w))) - (v + w)).abs().max().item())
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2] and gaps[2] < 1e-3
    flat = Ball(0.0)
    assert torch.equal(flat.log0(flat.add(flat.exp0(v), flat.exp0(w))), v + w)
    assert torch.allclose(flat.distance(v, w), Ball(1e-10).distance(v, w), rtol=1e-7)


def test_a_matrix_acts_in_the_tangent_space():
    ball, x = Ball(1.0), points(1.0, 0.3, 0)
    a, b = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 3
    assert torch.allclose(ball.times(a @ b, x), ball.times(a, ball.times(b, x)), atol=1e-12)
    assert torch.allclose(ball.times(torch.eye(3, dtype=torch.float64), x), x, atol=1e-12)


@pytest.mark.parametrize("c", (0.0, 1.0))
def test_a_residual_of_a_silent_part_changes_nothing_and_gradients_pass_the_origin(c):
    part = nn.Linear(3, 3, dtype=torch.float64)
    with torch.no_grad():
        for p in part.parameters():
            p.zero_()
    z = torch.cat([torch.zeros(1, 3).double(), 0.5 * points(1.0, 0.3, 0, 5)]).requires_grad_()
    out = BallResidual(part, Ball(c))(z)
    assert torch.allclose(out, z, atol=1e-12)
    out.sum().backward()
    assert z.grad is not None and torch.isfinite(z.grad).all()


def test_a_negative_curvature_is_refused():
    with pytest.raises(ValueError, match="curvature must be a finite number >= 0"):
        Ball(-1.0)
