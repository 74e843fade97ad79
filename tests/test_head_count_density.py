"""Theorem 1 in numbers: subset minima give the tokens back, and the smooth selector is as close as promised."""

from itertools import combinations

import numpy as np
import pytest

from headcount.papers.head_count import selector_error, subset_minima


def candidates(x, t):
    """(1 - Z, w, Y, v) of Lemma 2 by brute force over quarters of the positions, and how many minima were used."""
    m = len(x) // 4
    quarters = list(combinations(range(len(x)), m))
    low = {q: min(x[list(q)]) for q in quarters}
    high = {q: min(1 - x[list(q)]) for q in quarters}
    v, w = max(low.values()), 1 - max(high.values())
    y = max(low[q] for q in quarters if t in q)
    z = max(high[q] for q in quarters if t in q)
    return 1 - z, w, y, v, len(low) + len(high)


def select(above, w, below, v, q):
    weights = np.exp([q * (above - w) ** 2, q * (below - v) ** 2])
    return float(weights @ [above, below] / weights.sum())


def test_subset_minima_give_every_token_back():
    x = np.random.default_rng(0).random(8)
    for t in range(8):
        above, w, below, v, used = candidates(x, t)
        assert used == subset_minima(8, 1).value
        assert above == pytest.approx(max(x[t], w), abs=1e-15)
        assert below == min(x[t], v)
        assert x[t] in (below, pytest.approx(above, abs=1e-15))


def test_the_selector_comes_as_close_as_promised_and_no_closer():
    rng, q = np.random.default_rng(1), 300.0
    bound = selector_error(q).value
    worst = 0.0
    for _ in range(40):
        x = rng.random(8)
        for t in range(8):
            worst = max(worst, abs(select(*candidates(x, t)[:4], q) - x[t]))
    assert worst <= bound
    # Where lower and upper quarter meet (v = w), the loss is attained.
    u = np.linspace(0, 0.5, 20_001)
    attained = max(abs(select(0.5 + d, 0.5, 0.5, 0.5, q) - (0.5 + d)) for d in u)
    assert bound * (1 - 1e-6) <= attained <= bound


def test_misuse_is_refused_by_name():
    with pytest.raises(ValueError, match="multiple of 4"):
        subset_minima(10, 1)
    with pytest.raises(ValueError, match="sharpness"):
        selector_error(0.0)
