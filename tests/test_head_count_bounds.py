"""Theorem 2 as arithmetic: the published formula, where it is silent, and what follows from it."""

import subprocess
import sys
from itertools import product

import pytest

from headcount.papers.head_count import bounds

LENGTHS = (32, 64, 128, 256, 512, 1024)
# (head_dim, heads): exponent at LENGTHS for four retrievals, and the length where it is zero; worked by hand.
TABLE = {
    (2, 1): ((0, 2, 6, 14, 30, 62), 32),
    (2, 2): ((-0.57, 0.57, 2.86, 7.43, 16.6, 34.9), 48),
    (2, 3): ((-0.8, 0, 1.6, 4.8, 11.2, 24), 64),
    (8, 1): ((-0.6, 0.2, 1.8, 5, 11.4, 24.2), 56),
    (8, 2): ((-0.84, -0.42, 0.42, 2.11, 5.5, 12.2), 96),
    (8, 3): ((-0.93, -0.64, -0.07, 1.07, 3.4, 7.9), 136),
}


def exponent(length, heads, head_dim, retrievals=4, **more):
    return bounds.few_heads_exponent(length=length, retrievals=retrievals, heads=heads, head_dim=head_dim, **more)


@pytest.mark.parametrize("sizes", TABLE)
def test_exponents_equal_the_published_formula_by_hand(sizes):
    head_dim, heads = sizes
    expected, _ = TABLE[sizes]
    for length, k in zip(LENGTHS, expected, strict=True):
        bound = exponent(length, heads, head_dim)
        assert bound.value == pytest.approx(k, abs=0.05 if abs(k) > 3 else 0.006)
        assert bound.vacuous == (bound.value <= 0)
        assert bound.side == "lower"


@pytest.mark.parametrize("sizes", TABLE)
def test_the_bound_bites_right_after_the_length_where_it_is_zero(sizes):
    head_dim, heads = sizes
    zero = TABLE[sizes][1]
    assert exponent(zero, heads, head_dim).value == pytest.approx(0, abs=1e-12)
    assert bounds.bites_from(retrievals=4, heads=heads, head_dim=head_dim) == zero + 1
    assert exponent(zero, heads, head_dim).vacuous
    assert not exponent(zero + 1, heads, head_dim).vacuous


def test_more_heads_or_wider_heads_never_cost_more_while_the_bound_speaks():
    for length, heads, head_dim in product((200, 1000), (1, 2, 3), (2, 5)):
        here = exponent(length, heads, head_dim, retrievals=5).value
        assert here > exponent(length, heads + 1, head_dim, retrievals=5).value
        assert here > exponent(length, heads, head_dim + 1, retrievals=5).value


def test_enough_heads_leave_nothing_to_say():
    bound = exponent(1024, 4, 2)
    assert bound.vacuous
    assert bound.value == 0
    assert "Theorem 2(1)" in bound.meaning


def test_a_read_out_of_five_layers_quarters_the_exponent():
    assert exponent(128, 1, 2, read_out_layers=5).value == exponent(128, 1, 2).value / 4
    with pytest.raises(ValueError, match=r"2\.\.5"):
        exponent(128, 1, 2, read_out_layers=6)


def test_a_table_repeats_the_single_answers():
    rows = bounds.few_heads_table(LENGTHS, (1, 2, 3), retrievals=4, head_dim=8)
    for row in rows:
        assert [row[f"T={t}"] for t in LENGTHS] == [exponent(t, row["heads"], 8).value for t in LENGTHS]


def test_rates_of_the_two_upper_bounds():
    assert bounds.enough_heads_rate(0.5).value == 0.5
    assert bounds.memorise_rate(0.5).value == 1.5
    assert bounds.memorise_rate(3.0).sizes["width_exponent"] == 3.0
    with pytest.raises(ValueError, match="rate must be"):
        bounds.enough_heads_rate(0.0)


def test_the_count_of_retrievals_is_intrinsic_in_the_regime():
    # The corollary's proof needs k > D_2 at heads = D_1 of dimension 2; it holds at the stated length.
    for first in range(1, 40):
        for second in range(first + 1, 40):
            length = int(bounds.intrinsic_from(first, second).value)
            k = exponent(length, first, 2, retrievals=second).value
            assert k > second
    # The 50 is generous, not free: with 6 in its place the proof would fail.
    assert exponent(6 * (30**2 + 31**2), 30, 2, retrievals=31).value < 31
    assert bounds.intrinsic_from(3, 4).value == 50 * 25


@pytest.mark.parametrize("name", ["length", "retrievals", "heads", "head_dim"])
def test_sizes_below_one_are_refused_by_name(name):
    sizes = {"length": 64, "retrievals": 4, "heads": 1, "head_dim": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        bounds.few_heads_exponent(**sizes)


def test_bounds_need_no_torch():
    code = "import sys, headcount.papers.head_count; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
