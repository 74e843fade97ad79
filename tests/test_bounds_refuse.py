"""Every bound refuses what is no size and no number: a law over all of them, one line a bound."""

import math

import jaxtyping
import pytest

from headcount.certificates.excess import gibbs_excess, worst_distance
from headcount.papers.allocation import bounds as allocation
from headcount.papers.allocation.jacobian import row_bound
from headcount.papers.head_count import bounds, density, steepness
from headcount.papers.head_count.networks.gate_mass import mass_outside
from headcount.papers.infoflow.lower import kth_largest_exponent, pair_exponent
from headcount.papers.ssm import deepen, depths
from headcount.results import Bound

SIZES = {"length": 64, "retrievals": 4, "heads": 2, "head_dim": 2}
HEADS = {"heads": 2, "head_dim": 2}


@pytest.fixture(autouse=True)
def unchecked_types():
    """A user's run has no checker of annotations, and it is the function that must refuse."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# (function, its whole-number arguments, its other arguments)
LAWS = [
    (bounds.few_heads_exponent, {**SIZES, "read_out_layers": 2}, {}),
    (bounds.linear_max_exponent, SIZES, {}),
    (bounds.bites_from, {"retrievals": 4, **HEADS}, {}),
    (bounds.enough_heads_rate, {}, {"rate": 0.5}),
    (bounds.memorise_rate, {}, {"rate": 0.5}),
    (bounds.intrinsic_from, {"first": 3, "second": 4}, {}),
    (density.selector_error, {}, {"sharpness": 10.0}),
    (density.subset_minima, {"length": 8, "token_dim": 2}, {}),
    (steepness.steepness_width, {"embed_dim": 4}, {"output_gap": 1.0, "input_distance": 0.1}),
    (pair_exponent, {"length": 64, **HEADS}, {}),
    (kth_largest_exponent, {"length": 64, "rank": 3, **HEADS}, {}),
    (gibbs_excess, {"competitors": 3}, {"beta": 2.0}),
    (worst_distance, {"competitors": 3}, {"beta": 2.0}),
    (mass_outside, {"inside": 3, "outside": 4}, {"beta": 2.0, "gate": 2.0, "spread": 1.0}),
    (allocation.compression, {"head_dim": 3, "token_dim": 4}, {}),
    (allocation.synthesis, {"lag": 1, "heads": 8}, {}),
    (row_bound, {"length": 64}, {"half": 1.0}),
    (depths.entry_bounds, {"depth": 4}, {"c_from": 10.0}),
    (depths.minimal_depth, {"modes": 13, "width": 5}, {"c_from": 10.0, "c_to": 3.0}),
    (deepen.capacity, {"depth": 3, "width": 5}, {}),
    (deepen.least_width, {"modes": 13, "depth": 3}, {}),
]
each_law = pytest.mark.parametrize(("function", "sizes", "numbers"), LAWS, ids=lambda v: getattr(v, "__name__", ""))


@each_law
def test_what_is_no_whole_number_is_refused_by_name(function, sizes, numbers):
    """Before: few_heads_exponent at length nan was nan, and at length 64.5 with heads True 2.03."""
    function(**sizes, **numbers)
    for name, bad in ((n, b) for n in sizes for b in (math.nan, 2.5, 2.0, True, math.inf, "3", -1)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            function(**{**sizes, name: bad}, **numbers)


@each_law
def test_what_is_no_number_is_refused_by_name(function, sizes, numbers):
    for name, bad in ((n, b) for n in numbers for b in (math.nan, True, -1.0)):
        with pytest.raises(ValueError, match=f"({name}|Lambda) must"):
            function(**sizes, **{**numbers, name: bad})


@pytest.mark.parametrize("bad", [math.nan, 2.5, True, -1])
def test_the_allocation_bound_refuses_them_in_every_place(bad):
    good = {"weights": [1.0, 1.0], "heads": [4, 4], "head_dims": [8, 8], "token_dim": 8}
    assert isinstance(allocation.extraction_error(**good), Bound)
    for name in ("heads", "head_dims"):
        with pytest.raises(ValueError, match=r"of lag 2 must be"):
            allocation.extraction_error(**{**good, name: [4, bad]})
    with pytest.raises(ValueError, match="token_dim must be"):
        allocation.extraction_error(**{**good, "token_dim": bad})
    with pytest.raises(ValueError, match="every number of heads must be"):
        allocation.trade_off(128, 16, [1, bad])
    with pytest.raises(ValueError, match="budget must be"):
        allocation.trade_off(bad, 16, [1])


def test_theorem_2_1_is_said_to_apply_only_from_head_dimension_2():
    """Before: at head_dim 1 too."""
    few = {"length": 64, "retrievals": 2, "heads": 2}
    assert "Theorem 2(1) applies" in bounds.few_heads_exponent(**few, head_dim=2).meaning
    assert "Theorem 2(1) applies" not in bounds.few_heads_exponent(**few, head_dim=1).meaning
