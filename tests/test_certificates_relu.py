"""Piecewise linear interpolation: the promised error is kept, attained by a square, and costs error^(-1/2) pieces."""

import math

import pytest
import torch

from headcount.certificates.relu import interpolant, interpolation_error, pieces_for


@pytest.mark.parametrize("pieces", [1, 2, 7, 64])
def test_interpolation_error_is_attained_by_a_square(pieces):
    low, high = -1.0, 2.0
    s = torch.linspace(low, high, 6 * 64 * 7 * 5 + 1, dtype=torch.float64)
    gap = interpolant(torch.square, low, high, pieces)(s) - s**2
    error = interpolation_error(2.0, low, high, pieces)
    assert gap.min() >= -1e-13
    assert float(gap.max()) == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize(("g", "curvature"), [(torch.sin, 1.0), (torch.exp, math.e)])
def test_the_error_is_kept_within_a_factor_two_of_the_truth(g, curvature):
    s = torch.linspace(0, 1, 20_001, dtype=torch.float64)
    gap = (interpolant(g, 0.0, 1.0, 16)(s) - g(s)).abs().max()
    error = interpolation_error(curvature, 0.0, 1.0, 16)
    assert error / 2 <= gap <= error


@pytest.mark.parametrize("error", [1e-1, 1e-3, 1e-5])
def test_one_piece_fewer_would_break_the_promise(error):
    pieces = pieces_for(error, 2.0, 0.0, 1.0)
    assert (
        interpolation_error(2.0, 0.0, 1.0, pieces)
        <= error
        < interpolation_error(2.0, 0.0, 1.0, max(1, pieces - 1)) * (2 if pieces == 1 else 1)
    )
