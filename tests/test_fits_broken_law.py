"""A break is found where one was planted, and "no break" is said where none was."""

import numpy as np
import pytest

from headcount.fits import transition

SIZES = np.geomspace(1, 1000, 14)


def planted(place, after, seed, noise=0.05):
    kink = np.maximum(np.log(SIZES / place), 0.0)
    rest = noise * np.random.default_rng(seed).standard_normal(len(SIZES))
    return np.exp(-0.3 * np.log(SIZES) + (after + 0.3) * kink + rest)


def test_a_planted_break_lies_in_its_interval_in_ninety_of_a_hundred_studies():
    found = [transition(SIZES, planted(30.0, -1.5, seed), seed=seed) for seed in range(100)]
    assert sum(t.verdict == "break" for t in found) == 100
    held = sum(t.place.low <= 30.0 <= t.place.high for t in found if t.place)
    assert 90 <= held <= 99
    assert np.median([t.slopes for t in found], axis=0) == pytest.approx([-0.3, -1.5], abs=0.05)


def test_a_single_power_law_has_no_break_in_ninety_of_a_hundred_studies():
    found = [transition(SIZES, planted(30.0, -0.3, seed)) for seed in range(100)]
    assert sum(t.verdict == "no break" for t in found) >= 90
    assert all(t.place is None and t.slopes[0] == pytest.approx(-0.3, abs=0.05) for t in found if t.verdict != "break")


def test_a_break_is_not_found_where_the_noise_hides_it():
    assert transition(SIZES, planted(30.0, -0.35, 0, noise=0.3)).verdict == "no break"


def test_the_row_is_machine_readable():
    row = transition(SIZES, planted(30.0, -1.5, 0)).as_row()
    assert row["verdict"] == "break" and row["place_low"] <= row["place"] <= row["place_high"]


@pytest.mark.parametrize(
    "sizes, errors, line",
    (
        (SIZES, SIZES[:3], "one error for each size"),
        (SIZES[:4], SIZES[:4], "7 points at 5 sizes"),
        (SIZES, -SIZES, "finite and above 0"),
    ),
)
def test_what_cannot_be_fitted_is_refused(sizes, errors, line):
    with pytest.raises(ValueError, match=line):
        transition(sizes, errors)
