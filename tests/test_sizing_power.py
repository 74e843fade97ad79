"""The seeds that an experiment asks for are enough, and no more: checked by drawing experiments."""

import math

import numpy as np
import pytest

from headcount.fits.student import half_width
from headcount.sizing.power import promised_width, seeds_for


def found(differences):
    half = half_width(differences.std(ddof=1), len(differences))
    return abs(differences.mean()) > half


@pytest.mark.parametrize("ratio", [0.5, 1.0, 2.0])
def test_the_promised_power_is_reached_and_one_seed_less_falls_short(ratio):
    rng, draws = np.random.default_rng(0), 6000
    seeds = seeds_for(1.0, ratio)

    def power(n):
        return np.mean([found(ratio + rng.standard_normal(n)) for _ in range(draws)])

    assert power(seeds) > 0.8 - 0.02
    assert seeds == 2 or power(seeds - 1) < 0.8 + 0.02


def test_nine_of_ten_experiments_end_inside_the_promise():
    rng, inside, middle = np.random.default_rng(1), 0, 0
    for _ in range(2000):
        known = math.sqrt((rng.standard_normal(44) ** 2).mean())
        promise, low, high = promised_width(known, 44, 8)
        reached = half_width(rng.standard_normal(8).std(ddof=1), 8)
        inside += low <= reached <= high
        middle += reached <= promise
    assert inside / 2000 == pytest.approx(0.9, abs=0.025)
    assert middle / 2000 == pytest.approx(0.5, abs=0.04)


def test_what_shows_no_noise_has_no_interval():
    assert half_width(0.1, 1) == math.inf and half_width(math.nan, 5) == math.inf
    with pytest.raises(ValueError, match="takes more than 10,000 seeds"):
        seeds_for(1.0, 1e-3)
