"""Lower bounds for one layer: the formula by hand, and where they are silent."""

import pytest

from headcount.nets import Architecture
from headcount.papers.infoflow.lower import kth_largest_exponent, one_layer_bound, pair_exponent
from headcount.structure import Retrieval, Structure
from headcount.tasks import LinearMax, OppositePair, PairMax, Wells


def test_pair_exponent_grows_linearly_with_length():
    """T_0 = floor((T - h)/2) - h over (n + 1) h + 1, less one."""
    assert pair_exponent(length=64, heads=1, head_dim=2).value == pytest.approx((31 - 1) / 4 - 1)
    assert pair_exponent(length=64, heads=2, head_dim=4).value == pytest.approx((31 - 2) / 11 - 1)
    slopes = [pair_exponent(length=n, heads=3, head_dim=8).value for n in (1000, 2000, 3000)]
    assert slopes[2] - slopes[1] == pytest.approx(slopes[1] - slopes[0]) == pytest.approx(500 / 28)


def test_kth_largest_exponent_needs_fewer_heads_than_the_rank():
    assert kth_largest_exponent(length=32, rank=2, heads=1, head_dim=2).value == pytest.approx(30 / 4 - 1)
    assert kth_largest_exponent(length=32, rank=2, heads=2, head_dim=2).vacuous


def test_the_bound_that_speaks_is_named_and_silence_is_none():
    one, two = Architecture(layers=((1, 4),)), Architecture(layers=((1, 4), (1, 4)))
    pair, wells = OppositePair(256), Wells.random(4, 2, 256)
    assert one_layer_bound(pair, pair.structure, one).source.paper == "yu2026infoflow"
    assert one_layer_bound(pair, pair.structure, two) is None
    assert one_layer_bound(wells, wells.structure, one).source.name == "Theorem 2(2)"
    assert one_layer_bound(wells, wells.structure, Architecture(layers=((4, 4),))) is None


def test_no_bound_speaks_where_its_hypotheses_are_not_known_to_hold():
    """Pairs under another form than -I, linear maxima (Assumption 2.3), numbers on a line, bare structures."""
    one = Architecture(layers=((1, 4),))
    for task in (PairMax.random(1, 2, 256), LinearMax.random(4, 2, 256), OppositePair(256, token_dim=1)):
        assert one_layer_bound(task, task.structure, one) is None
    for retrieval in (Retrieval("pair", order=2), Retrieval("maxima", count=4), Retrieval("second", rank=2)):
        structure = Structure(256, 2, (retrieval,))
        assert one_layer_bound(structure, structure, one) is None
