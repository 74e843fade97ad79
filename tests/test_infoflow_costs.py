"""The price list against arithmetic by hand, and the gates against brute force."""

import itertools
import math
from fractions import Fraction

import pytest

from headcount.papers.infoflow.costs import comparisons_made, comparisons_needed, decoding_exponent, gate_heads


def test_decoding_law_of_the_notes():
    """|I| = 6 tokens of one number in 3 dimensions: two digits a coordinate; enough room: one piece each."""
    assert decoding_exponent(6, 3) == 2
    assert decoding_exponent(3, 1) == 3
    assert decoding_exponent(16 * 2, 24) == Fraction(4, 3)
    assert decoding_exponent(16 * 2, 48) == 1


def test_no_dimensions_are_refused():
    with pytest.raises(ValueError, match="at least 1 dimension"):
        decoding_exponent(3, 0)


def test_gated_heads_suffice_for_the_kth_largest():
    """Two colours by the bits of t: any two positions differ in some bit; one bit fewer and two do not."""
    for length in range(2, 40):
        bits = (length - 1).bit_length()
        assert gate_heads(length, 2) == min(2 * bits, length)
        pairs = list(itertools.combinations(range(length), 2))
        assert all(any((a ^ b) >> k & 1 for k in range(bits)) for a, b in pairs)
        assert not all(any((a ^ b) >> k & 1 for k in range(bits - 1)) for a, b in pairs)


def test_random_paintings_meet_the_union_bound_and_one_fewer_does_not():
    length, rank = 4096, 3
    paintings = gate_heads(length, rank) // rank
    missed = 1 - math.factorial(rank) / rank**rank
    assert math.comb(length, rank) * missed**paintings < 1
    assert math.comb(length, rank) * missed ** (paintings - 1) >= 1


def test_triples_outgrow_any_fixed_number_of_heads():
    made = [comparisons_made(((4, 6), (4, 6)), length) - comparisons_needed(length, 3) for length in (3, 8, 64)]
    assert made[0] > 0 > made[1] > made[2]
