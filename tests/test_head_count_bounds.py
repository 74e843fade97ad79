"""Theorem 2 as arithmetic: the published formula, where it is silent, and what follows from it."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from headcount.papers.head_count import bounds
from headcount.structure import Retrieval, Structure

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


@pytest.mark.parametrize("seed", range(20))
def test_the_first_difference_decides_a_sum_of_linear_maxima(seed):
    """The step of the proof that linear scores change: segments in a ball, and any favourites outside one of them."""
    rng = np.random.default_rng(seed)
    retrievals, d = int(rng.integers(2, 6)), int(rng.integers(2, 5))
    heads, free = retrievals - 1, 6
    a = rng.normal(size=(retrievals, d))
    rays = a / np.linalg.norm(a, axis=1, keepdims=True)
    centre = rng.normal(size=d)
    nearest = (rays @ rays.T - 2 * np.eye(retrievals)).max()  # the largest cosine of two different rays
    r = 1 - nearest  # then (1 - r/2) exceeds every cosine, so a segment stays above all other segments and points

    def on_segment(i, u):
        return centre + (1 - u) * rays[i]

    def target(x):
        return (x @ a.T).max(axis=0).sum()

    mine = int(rng.integers(retrievals))
    others = [i for i in range(retrievals) if i != mine]
    favourites = [
        on_segment(i, u) for i, u in zip(rng.choice(others, heads), rng.uniform(r / 4, r / 2, heads), strict=True)
    ]
    reserved = [on_segment(i, 0.0) for i in others]
    dummy = reserved[-1]
    levels = np.linspace(r / 4, r / 2, 3 * free).reshape(free, 3)  # ordered, disjoint grids
    for _ in range(20):
        one, two = rng.integers(3, size=(2, free))
        differ = np.flatnonzero(one != two)
        if not len(differ):
            continue
        sequences = [
            np.array(
                [on_segment(mine, levels[t, z[t]]) if t in differ else dummy for t in range(free)]
                + favourites
                + reserved
            )
            for z in (one, two)
        ]
        first = differ[0]
        step = levels[first, one[first]] - levels[first, two[first]]
        gap = target(sequences[1]) - target(sequences[0])
        assert gap == pytest.approx(np.linalg.norm(a[mine]) * step, rel=1e-9)


def test_linear_maxima_have_their_own_bound_and_it_is_the_larger():
    """Before: Theorem 2(2) was printed for linear scores, whose Hessian is zero (Assumption 2.3)."""
    linear = Structure(128, 4, (Retrieval("maxima", count=4, score="linear"),))
    sizes = {"length": 128, "retrievals": 4, "head_dim": 8}
    printed = bounds.few_heads_exponent(**sizes, heads=3, target=linear)
    assert not printed.holds
    assert printed.vacuous
    assert printed.failed == ("Assumption 2",)
    assert "nothing follows" in str(printed)
    ours = bounds.linear_max_exponent(**sizes, heads=3, target=linear)
    assert ours.holds
    assert ours.value == pytest.approx((128 - 3 - 4 + 1) / (9 * 3 + 1) - 1)
    assert exponent(128, 3, 8).vacuous  # the quarter leaves nothing at this length
    assert not bounds.linear_max_exponent(**sizes, heads=4, target=linear).holds
    bites = bounds.linear_max_exponent(**sizes, heads=3).sizes["bites_from"]
    at = [bounds.linear_max_exponent(length=n, retrievals=4, heads=3, head_dim=8).value for n in (bites - 1, bites)]
    assert at[0] == pytest.approx(0, abs=1e-12)
    assert at[1] > 0


@pytest.mark.parametrize(
    ("part", "fails"),
    [
        (Retrieval("wells", count=4, score="wells"), ()),
        (Retrieval("wells", count=4), ()),
        (Retrieval("maxima", count=4, score="other"), ("Assumption 2",)),
        (
            Retrieval("wells", count=4, score="wells", window=31),
            ("every retrieval wants one largest score of a quarter",),
        ),
        (Retrieval("wells", count=4, score="wells", rank=2), ("every retrieval wants one largest score of a quarter",)),
    ],
)
def test_each_hypothesis_is_checked_against_the_target_and_named(part, fails):
    bound = bounds.few_heads_exponent(length=128, retrievals=4, heads=1, head_dim=2, target=Structure(128, 2, (part,)))
    assert [f.split(" of the positions")[0] for f in bound.failed] == list(fails)
    assert bound.holds == (not fails)
    assert bound.value == (0.0 if fails else 6.0)
    assert any("Assumption 1" in h for h in bound.assumed)
    assert ("Assumption 2" in bound.assumed) == (part.score == "")
    assert bound.as_row()["failed"] == list(bound.failed)


@pytest.mark.parametrize("name", ["length", "retrievals", "heads", "head_dim"])
def test_sizes_below_one_are_refused_by_name(name):
    sizes = {"length": 64, "retrievals": 4, "heads": 1, "head_dim": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        bounds.few_heads_exponent(**sizes)


def test_bounds_need_no_torch():
    code = "import sys, headcount.papers.head_count; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
