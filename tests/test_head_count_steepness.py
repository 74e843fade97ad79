"""Lemma 4: no bounded feed-forward is steeper than its width allows, and one is exactly that steep."""

import numpy as np
import pytest

from headcount.papers.head_count import steepness_width


def relu_net(U, b, V, x):
    return V @ np.maximum(U @ x + b, 0)


def test_no_network_with_weights_at_most_one_beats_the_width():
    rng = np.random.default_rng(0)
    for _ in range(300):
        width, dim = rng.integers(1, 20), rng.integers(1, 8)
        U, b, V = rng.uniform(-1, 1, (width, dim)), rng.uniform(-1, 1, width), rng.uniform(-1, 1, width)
        x, y = rng.normal(size=(2, dim))
        gap = float(abs(relu_net(U, b, V, x) - relu_net(U, b, V, y)))
        assert steepness_width(gap, float(np.linalg.norm(x - y)), int(dim)).value <= width


def test_a_network_that_attains_the_width_exists():
    width, dim = 7, 4
    ones = np.ones((width, dim)), np.zeros(width), np.ones(width)
    x, y = np.full(dim, 0.5), np.full(dim, 0.25)
    gap = float(relu_net(*ones, x) - relu_net(*ones, y))
    assert steepness_width(gap, float(np.linalg.norm(x - y)), dim).value == pytest.approx(width, rel=1e-12)


def test_misuse_is_refused_by_name():
    with pytest.raises(ValueError, match="input_distance"):
        steepness_width(1.0, 0.0, 4)
    with pytest.raises(ValueError, match="output_gap"):
        steepness_width(-1.0, 1.0, 4)
    with pytest.raises(ValueError, match="embed_dim"):
        steepness_width(1.0, 1.0, 0)
