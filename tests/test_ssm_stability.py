"""Deepening keeps the response at every depth, says how well, and refuses where it cannot."""

import numpy as np
import pytest

from headcount.papers.ssm import DiagonalSSM, entry_bounds, minimal_depth
from headcount.papers.ssm.coefficients import coefficients
from headcount.papers.ssm.orders import by_low_tails, cancellation
from headcount.papers.ssm.responses import gap
from tests.effort import lines_run


def pairs(rng, count, low=0.5, high=0.99):
    """Conjugate pairs at random angles, with random conjugate residues."""
    upper = rng.uniform(low, high, count) * np.exp(1j * np.pi * rng.uniform(0.01, 0.99, count))
    shares = rng.standard_normal(count) + 1j * rng.standard_normal(count)
    return DiagonalSSM([*upper, *upper.conj()], [*shares, *shares.conj()])


@pytest.mark.parametrize(("low", "high"), [(0.5, 0.99), (0.9, 0.999)])
def test_256_modes_at_depth_128_keep_their_response(low, high):
    """In falling modulus the relative gap was 1e4 here, and more at other draws."""
    system = pairs(np.random.default_rng(0), 128, low, high)
    deep = system.deepen(128, 3)
    assert gap(deep.impulse(2000), system.impulse(2000)) < 1e-13
    assert deep.gap < 1e-13
    assert deep.largest_entry <= deep.entry_bound
    assert np.abs(deep.impulse(200).imag).max() < 1e-13 * np.abs(deep.impulse(200)).max()


@pytest.mark.parametrize("seed", range(3))
def test_64_real_poles_at_depth_32_keep_their_response(seed):
    """In falling modulus 7e-5 to 2.6e-4 of the response was lost."""
    rng = np.random.default_rng(seed)
    system = DiagonalSSM(np.linspace(-0.99, 0.99, 64), rng.standard_normal(64))
    assert system.deepen(32).gap < 1e-13


def test_repeated_poles_obey_the_bound_of_the_merged_system_and_not_the_plain_one():
    """A hundred modes of residue 1 at one pole: entries of 4.64, where c_1 = 1 alone would promise 1.26."""
    system = DiagonalSSM([0.5] * 100, [1.0] * 100)
    deep = system.deepen(2, 51)
    assert deep.largest_entry == pytest.approx(100 ** (1 / 3))
    assert deep.largest_entry > entry_bounds(system.largest_entry, 2).sharper.value == pytest.approx(1.26, abs=1e-3)
    assert deep.entry_bound == pytest.approx(entry_bounds(system.merged().largest_entry, 2).sharper.value)
    assert deep.largest_entry <= deep.entry_bound


def test_every_deepened_system_says_gap_condition_and_bound():
    system = DiagonalSSM([0.9, -0.8, 0.7], [100, -100, 50])
    for deep in (system.deepen(2), system.deepen_to(2), system.gain_stages(2)):
        assert deep.gap <= deep.condition * 2**-50
        assert deep.largest_entry <= deep.entry_bound * (1 + 1e-12)
        assert 1 <= deep.condition < 1e3


def test_what_cannot_be_kept_is_refused_with_the_gap(monkeypatch):
    monkeypatch.setattr("headcount.papers.ssm.chains.settled", lambda poles, residues, chain: chain)  # falling modulus
    with pytest.raises(ValueError, match=r"at depth 128 the response would be lost by .* \(tolerance 1e-06\)"):
        pairs(np.random.default_rng(0), 128).deepen(128, 3)


def test_the_order_of_the_proof_cancels_and_low_tails_do_not():
    system = pairs(np.random.default_rng(2), 128)
    poles, residues = system.poles[:128], system.residues[:128]
    falling = np.argsort(-np.abs(poles), kind="stable")
    sizes = []
    for order in (falling, by_low_tails(poles)):
        a = coefficients(poles[order, None], residues[order, None])[:, 0]
        sizes.append(cancellation(poles[order], a))
    assert sizes[1] < 1e6 < 1e15 < sizes[0]


def test_the_least_depth_near_one_is_found_at_once():
    assert lines_run(lambda: minimal_depth(10, 1 + 1e-7), most=250_000) < 250_000  # depths below it: 240 million
    depth = minimal_depth(10, 1 + 1e-7).positive_real.value
    assert depth == pytest.approx(2.40e8, rel=1e-2)
    ln = np.log1p(1e-7)
    assert np.log(depth) + 2 * np.log(10) <= (depth + 1) * ln + 1e-6
    assert np.log(depth - 10) + 2 * np.log(10) > (depth - 9) * ln


def test_the_closed_form_of_the_least_depth_equals_a_search():
    for c_from, c_to in [(10, 3), (100, 1.5), (7, 1.01), (3, 2.99), (1000, 8)]:
        search = next(l for l in range(1, 10**5) if l * c_from**2 <= c_to ** (l + 1))
        assert minimal_depth(c_from, c_to).positive_real.value == search


def test_a_depth_that_would_fill_the_memory_is_refused_by_its_size():
    with pytest.raises(ValueError, match=r"need depth [0-9,]+ at width 2, more than the 1,000,000 places"):
        DiagonalSSM([0.5, 0.2], [100, 100]).deepen_to(1 + 1e-7)
