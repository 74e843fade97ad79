"""Schedules for training from scratch: the same budget, divided differently."""

import pytest

from headcount.papers.allocation.schedules import by_bound, ramp, uniform


@pytest.mark.parametrize(("layers", "heads", "head_dim"), [(6, 8, 16), (6, 6, 32), (4, 4, 8), (2, 8, 16)])
def test_every_schedule_spends_the_same(layers, heads, head_dim):
    early = 1 if layers == 2 else 2
    three = (
        uniform(layers, heads, head_dim),
        ramp(layers, heads, head_dim),
        by_bound(layers, heads, head_dim, early=early, lags=2),
    )
    assert {sum(s.dims) for s in three} == {layers * heads * head_dim}
    assert all(len(s.layers) == layers for s in three)


def test_the_ramp_rises_and_the_bound_falls():
    up, down = ramp(6, 8, 16), by_bound(6, 8, 16)
    assert list(up.dims) == sorted(up.dims) and up.dims[0] < up.dims[-1]
    assert list(down.dims) == sorted(down.dims, reverse=True) and down.dims[0] > down.dims[-1]


def test_impossible_schedules_say_why():
    with pytest.raises(ValueError, match="early must lie between 1 and 5"):
        by_bound(6, 8, 16, early=6)
    with pytest.raises(ValueError, match="too few to read 12 lags"):
        by_bound(6, 2, 16, lags=12)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        uniform(0, 1, 1)
    with pytest.raises(ValueError, match="low must be above 0"):
        ramp(3, 4, 8, low=0)
