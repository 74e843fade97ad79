"""Lower bounds for one layer: the formula by hand, and where they are silent."""

import pytest

from headcount.nets import Architecture
from headcount.papers.infoflow.lower import kth_largest_exponent, one_layer_bound, pair_exponent
from headcount.structure import Retrieval, Structure


def test_pair_exponent_grows_linearly_with_length():
    """T_0 = floor((T - h)/2) - h over (n + 1) h + 1, less one."""
    assert pair_exponent(length=64, heads=1, head_dim=2).value == pytest.approx((31 - 1) / 4 - 1)
    assert pair_exponent(length=64, heads=2, head_dim=4).value == pytest.approx((31 - 2) / 11 - 1)
    slopes = [pair_exponent(length=n, heads=3, head_dim=8).value for n in (1000, 2000, 3000)]
    assert slopes[2] - slopes[1] == pytest.approx(slopes[1] - slopes[0]) == pytest.approx(500 / 28)


def test_kth_largest_exponent_needs_fewer_heads_than_the_rank():
    assert kth_largest_exponent(length=32, rank=2, heads=1, head_dim=2).value == pytest.approx(30 / 4 - 1)
    assert kth_largest_exponent(length=32, rank=2, heads=2, head_dim=2).vacuous


def test_the_bound_that_speaks_is_found_and_silence_is_none():
    pair = Structure(256, 2, (Retrieval("pair", order=2),))
    one, two = Architecture(layers=((1, 4),)), Architecture(layers=((1, 4), (1, 4)))
    assert one_layer_bound(pair, one).source.paper == "yu2026infoflow"
    assert one_layer_bound(pair, two) is None
    maxima = Structure(256, 2, (Retrieval("maxima", count=4),))
    assert one_layer_bound(maxima, one).source.name == "Theorem 2(2)"
    assert one_layer_bound(maxima, Architecture(layers=((4, 4),))) is None
