"""Shallow to deep keeps the response, and the entries obey the theorem, from both sides."""

import math

import numpy as np
import pytest

from headcount.papers.ssm import DiagonalSSM, by_angle, by_modulus, entry_bounds
from headcount.papers.ssm.chains import merge
from headcount.papers.ssm.coefficients import coefficients
from headcount.papers.ssm.deepen import capacity, gain_stage_depth, least_width
from headcount.papers.ssm.responses import gap

DEPTHS_OF_13 = {1: 13, 2: 7, 3: 5, 4: 4, 6: 3, 12: 2}


def bound(c_from, depth):
    return 2 ** ((depth - 1) / (depth + 1)) * c_from ** (2 / (depth + 1))


def random_system(rng, modes, kind):
    size = rng.uniform(0.05, 0.99, modes)
    if kind == "real":
        poles = size * rng.choice([-1, 1], modes) + 0j
    elif kind == "complex":
        poles = size * np.exp(2j * np.pi * rng.random(modes))
    else:  # nearly equal, in value or in modulus
        centre = 0.9 * np.exp(2j * np.pi * rng.random())
        poles = centre * (1 + 10.0 ** -rng.integers(3, 9) * rng.standard_normal(modes)) * rng.choice([-1, 1], modes)
    phases = np.exp(2j * np.pi * rng.random(modes)) if kind != "real" else rng.choice([-1, 1], modes)
    residues = 10.0 ** rng.uniform(-2, 8) * rng.random(modes) * phases
    return DiagonalSSM(poles, residues)


@pytest.mark.parametrize(
    "kind", ["complex", *(pytest.param(kind, marks=pytest.mark.kernels) for kind in ("real", "near"))]
)
def test_thousands_of_random_systems_keep_their_response_within_the_bound(kind):
    rng = np.random.default_rng(["real", "complex", "near"].index(kind))
    closest = 0.0
    for _ in range(1000):
        depth, width = int(rng.integers(1, 9)), int(rng.integers(2, 6))
        system = random_system(rng, int(rng.integers(1, capacity(depth, width) + 1)), kind)
        deep = system.deepen(depth, width)
        promise = bound(system.merged().largest_entry, depth)
        assert (deep.depth, deep.width) == (depth, width)
        assert deep.largest_entry <= promise * (1 + 1e-12)
        assert gap(deep.impulse(64), system.impulse(64)) < 1e-12
        closest = max(closest, deep.largest_entry / promise)
    assert closest > 0.9


def test_a_pole_before_a_crowd_of_opposite_ones_loses_no_digits():
    crowd = [-0.9 * (1 - 1e-7 * k) for k in range(1, 8)]
    system = DiagonalSSM([0.9, *crowd, 0.1], [1.0, *[-0.7, 0.5, 1.0, 0.3, -0.2, 0.8, 0.4], 0.5])
    assert gap(system.deepen(8, 2).impulse(64), system.impulse(64)) < 1e-13


@pytest.mark.parametrize("depth", range(2, 8))
def test_coefficient_bound_is_attained_by_a_family(depth):
    """Poles +r and then -r, -r, ...: every factor 1 - b/a is 2, so a_1 = 2^(l-1) R_1."""
    poles = np.array([0.9, *(-0.9 * (1 - 1e-9 * k) for k in range(1, depth))], dtype=complex)
    residues = np.zeros(depth, dtype=complex)
    residues[0] = 100.0
    a = coefficients(poles[:, None], residues[:, None])
    assert np.abs(a).max() == pytest.approx(2 ** (depth - 1) * 100, rel=1e-7)
    assert np.abs(a).max() <= 2 ** (depth - 1) * 100 * (1 + 1e-12)


@pytest.mark.parametrize("depth", range(2, 5))  # from five on such a chain is put in a better order
def test_entry_bound_is_nearly_attained_by_a_family(depth):
    poles = [0.9, *(-0.9 * (1 - 0.011 * k) for k in range(1, depth)), 1e-3]
    system = DiagonalSSM(poles, [100.0, *[1e-6] * depth])
    assert 0.98 * bound(10, depth) < system.deepen(depth, 2).largest_entry <= bound(10, depth)


@pytest.mark.parametrize("depth", range(2, 8))
def test_positive_poles_stay_below_l_times_the_residue_and_come_near_it(depth):
    poles = np.array([0.9 * (1 - 1e-9 * k) for k in range(depth)], dtype=complex)
    a = coefficients(poles[:, None], np.full((depth, 1), 100.0 + 0j))
    assert 0.999 * depth * 100 < np.abs(a).max() <= depth * 100 * (1 + 1e-12)


@pytest.mark.parametrize("depth", range(2, 8))
def test_entry_bound_of_positive_poles_is_nearly_attained(depth):
    poles = [0.9 * (1 - 1e-4 * k) for k in range(depth)] + [1e-3]
    system = DiagonalSSM(poles, [100.0] * depth + [1.0])
    promise = entry_bounds(10, depth).positive_real.value
    assert 0.999 * promise < system.deepen(depth, 2).largest_entry <= promise


def test_a_thousand_modes_at_depth_fifty():
    rng = np.random.default_rng(0)
    poles = rng.uniform(0.1, 0.99, 1000) * np.exp(2j * np.pi * rng.random(1000))
    system = DiagonalSSM(poles, 100 * np.exp(2j * np.pi * rng.random(1000)))
    deep = system.deepen(depth=50)
    assert deep.width == 21
    assert gap(deep.impulse(500), system.impulse(500)) < 1e-9
    assert deep.largest_entry <= bound(10, 50)


def test_close_poles_cost_nothing():
    """1/((1 - .9w)(1 - (.9-g)w)) has residues .9/g, and the construction finds its unit cascade for every gap."""
    for g in (1e-1, 1e-2, 1e-4, 1e-6):
        system = DiagonalSSM([0.9, 0.9 - g], [0.9 / g, -(0.9 - g) / g])
        deep = system.deepen(depth=2, deal=by_angle)
        assert system.largest_entry == pytest.approx(math.sqrt(0.9 / g))
        assert deep.width == 2 and deep.largest_entry == pytest.approx(1, rel=1e-9)


def test_what_a_pure_product_cannot_do():
    """Poles (.9, 2e, e), R = (1, -1, 1): a product of layers needs entries that grow as e falls, the chains need 1."""
    for e in (1e-1, 1e-2, 1e-3, 1e-4):
        assert DiagonalSSM([0.9, 2 * e, e], [1, -1, 1]).deepen(2, 2).largest_entry == pytest.approx(1.0, abs=2e-2 + e)


def test_one_mode_too_many_is_refused():
    rng = np.random.default_rng(1)
    system = random_system(rng, 8, "complex")
    with pytest.raises(ValueError, match=r"3 and width 3 hold at most 7 modes.*falls like 1/w at infinity.*1/w\^2"):
        system.deepen(3, 3)
    with_constant = DiagonalSSM([*system.poles[:7], 0], [*system.residues[:7], 1])
    with pytest.raises(ValueError, match="tends to a constant"):
        with_constant.deepen(3, 3)
    balanced = DiagonalSSM([0.5, -0.5, 0.25], [1, 2, 0.5])  # sum R/lambda = 2 - 4 + 2
    with pytest.raises(ValueError, match="leaves this one open"):
        balanced.deepen(1, 2)


def test_theorem_41_exponents_at_infinity():
    """The reason of the refusal: 7 modes fall like 1/w, and any 3 x 3 network with 8 nonzero poles like 1/w^2."""
    rng = np.random.default_rng(2)
    far = np.array([1e4, 1e5])

    def exponent(poles, weights, readout):
        values = []
        for w in far:
            v = np.ones(1, complex)
            for p, b in zip(poles, weights, strict=True):
                v = (b @ v) / (1 - p * w)
            values.append(abs(readout @ v))
        return math.log10(values[1] / values[0])

    weights = [rng.standard_normal((3, 1)), rng.standard_normal((3, 3)), rng.standard_normal((3, 3))]
    poles = [rng.uniform(0.2, 0.9, 3) for _ in range(3)]
    seven = [p.copy() for p in poles]
    seven[0][0] = seven[1][0] = 0.0
    eight = [p.copy() for p in poles]
    eight[0][0] = 0.0
    assert exponent(seven, weights, np.ones(3)) == pytest.approx(-1, abs=1e-3)
    assert exponent(eight, weights, np.ones(3)) == pytest.approx(-2, abs=1e-3)


def test_equal_poles_zero_poles_and_missing_modes_are_laid_out():
    doubled = DiagonalSSM([0.5, 0.5, 0, 0, 0.2], [1, 2, 3, 4, 0])
    assert doubled.merged() == DiagonalSSM([0.5, 0], [3, 7])
    for depth, width in ((1, 2), (2, 2), (3, 4), (5, 1 + 1)):
        assert gap(doubled.deepen(depth, width).impulse(16), doubled.impulse(16)) < 1e-14
    nothing = DiagonalSSM([0.5, 0.5], [1, -1])
    assert np.abs(nothing.deepen(3, 2).impulse(8)).max() == 0
    only_zero = DiagonalSSM([0.0], [5.0])
    assert gap(only_zero.deepen(4, 1).impulse(4), only_zero.impulse(4)) < 1e-14


def test_merging_keeps_the_response_and_drops_nothing_else():
    rng = np.random.default_rng(3)
    poles = rng.choice([0.9, 0.5j, -0.5j, 0.1], 20) + 0j
    residues = rng.standard_normal(20) + 0j
    merged = merge(poles, residues)
    assert len(merged[0]) == 4
    assert gap(DiagonalSSM(*merged).impulse(30), DiagonalSSM(poles, residues).impulse(30)) < 1e-14


@pytest.mark.parametrize("deal", [by_modulus, by_angle])
def test_a_real_kernel_keeps_conjugate_modes_in_conjugate_chains(deal):
    rng = np.random.default_rng(4)
    upper = rng.uniform(0.3, 0.95, 8) * np.exp(1j * np.pi * rng.uniform(0.05, 0.95, 8))
    shares = rng.standard_normal(8) + 1j * rng.standard_normal(8)
    system = DiagonalSSM([*upper, *upper.conj(), 0.5, -0.2, 0], [*shares, *shares.conj(), 2, 3, 4])
    assert system.is_real
    for depth in (1, 2, 3, 4, 8):
        deep = system.deepen(depth, deal=deal)
        assert gap(deep.impulse(64), system.impulse(64)) < 1e-13
        for layer in deep.layers:
            assert sorted(layer.poles.tolist(), key=str) == sorted(layer.poles.conj().tolist(), key=str)
        assert np.abs(deep.impulse(64).imag).max() < 1e-15 * np.abs(deep.impulse(64)).max()


def test_chains_of_neighbours_beat_chains_by_modulus_on_close_poles():
    angles = np.array([0.3, 1.1, 2.0])
    poles = np.concatenate([0.9 * np.exp(1j * angles) * (1 - 1e-3 * k) for k in range(3)])
    residues = np.concatenate([(-2) ** (k == 1) * 1e6 * np.ones(3) for k in range(3)])  # a second difference
    system = DiagonalSSM([*poles, 0], [*residues, 1])
    assert system.deepen(3, deal=by_angle).largest_entry < 0.2 * system.deepen(3, deal=by_modulus).largest_entry


def test_deepen_to_takes_the_least_depth():
    system = random_system(np.random.default_rng(5), 13, "real")
    for goal in (1.05, 1.5, 2, 5, 1000):
        deep = system.deepen_to(goal)
        assert deep.largest_entry <= goal
        assert gap(deep.impulse(64), system.impulse(64)) < 1e-11
        if deep.depth > 1:
            assert system.deepen(deep.depth - 1).largest_entry > goal
    fixed = system.deepen_to(3, width=4)
    assert fixed.width == 4 and fixed.largest_entry <= 3 and fixed.depth >= 4


@pytest.mark.parametrize("goal", [0.0, -1.0, math.nan, math.inf])
def test_nonsense_goals_are_refused(goal):
    system = DiagonalSSM([0.5, 0.2], [100, 100])
    with pytest.raises(ValueError, match="finite number above 0"):
        system.deepen_to(goal)
    with pytest.raises(ValueError, match="finite number above 0"):
        system.gain_stages(goal)


def test_goals_of_one_or_less_are_refused_with_the_way_out():
    with pytest.raises(ValueError, match="ask for more than 1, or take gain stages"):
        DiagonalSSM([0.5, 0.2], [100, 100]).deepen_to(0.8)
    small = DiagonalSSM([0.5, 0.2], [0.01, 0.01])
    assert small.deepen_to(0.2).depth == 1


@pytest.mark.parametrize("kind", ["real", "complex", "near"])
def test_gain_stages_keep_the_response_and_the_bound(kind):
    rng = np.random.default_rng(6)
    for _ in range(100):
        n = int(rng.integers(1, 14))
        system, goal = random_system(rng, n, kind), float(rng.uniform(1.1 / n, 3) + 0.2)
        deep = system.gain_stages(goal, width=n + 2)
        scale = np.abs(system.residues).max()
        assert np.abs(deep.impulse(40) - system.impulse(40)).max() <= 1e-12 * scale
        assert deep.largest_entry <= goal * (1 + 1e-12)


def test_gain_stages_need_exactly_the_depth_of_the_lower_bound():
    for c_from, c_to, depth in ((10, 1, 3), (100, 1, 5), (1000, 1, 7), (1000, 0.5, 10)):
        assert gain_stage_depth(c_from, c_to, 13) == depth
        system = DiagonalSSM(np.linspace(-0.9, 0.9, 13), np.full(13, c_from**2))
        deep = system.gain_stages(c_to)
        assert deep.depth == depth and deep.largest_entry <= c_to * (1 + 1e-12)
        # One layer fewer cannot reach the first sample: m^l c_2^(l+1) < n c_1^2.
        assert 13 ** (depth - 1) * c_to**depth < 13 * c_from**2 <= 13**depth * c_to ** (depth + 1) * (1 + 1e-9)


def test_gain_stages_refuse_what_gains_nothing():
    with pytest.raises(ValueError, match="must exceed 1"):
        DiagonalSSM([0.5, 0.2], [100, 100]).gain_stages(0.5)
    with pytest.raises(ValueError, match="width must be at least that"):
        DiagonalSSM([0.5, 0.2], [100, 100]).gain_stages(3, width=1)


def test_bad_sizes_are_refused():
    system = DiagonalSSM([0.5, 0.2], [1, 1])
    for depth, width in ((0, 2), (2, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            system.deepen(depth, width)


def test_width_one_holds_one_mode_and_says_so():
    with pytest.raises(ValueError, match=r"depth 4 and width 1 hold at most 1 modes.*use width 2"):
        DiagonalSSM([0.5, 0.2], [1, 1]).deepen(4, 1)
    with pytest.raises(ValueError, match="hold at most 1"):
        DiagonalSSM([0.5, 0.2], [1, 1]).deepen_to(3, width=1)


def test_least_width_fills_thirteen_modes():
    assert {depth: least_width(13, depth) for depth in DEPTHS_OF_13} == DEPTHS_OF_13
    assert all(capacity(depth, width) == 13 for depth, width in DEPTHS_OF_13.items())
