"""Theorem 1 in numbers: minima over quarters of the positions give the tokens back, how well and at what cost."""

from __future__ import annotations

import math

from headcount.refusals import at_least_one, positive
from headcount.results import Bound
from headcount.sources import Checked, Source, implements

SELECTOR = Source("yu2025heads", "Lemma 3")
SUBSETS = Source("yu2025heads", "Lemma 2")
# s/(1 + e^{s^2}) is largest where e^{-s^2} = 2 s^2 - 1; the value there, rounded up in the last digit.
LARGEST = 0.2778588845


@implements(
    SELECTOR,
    test="tests/test_head_count_density.py::test_the_selector_comes_as_close_as_promised_and_no_closer",
    status="proved here",
    hypotheses=(
        Checked("sharpness > 0"),
        "4 divides the length",
        "tokens in [0,1]^d",
    ),
)
def selector_error(sharpness: float) -> Bound:
    """The smooth selector of sharpness q misses a token's coordinate by at most 0.2778.../sqrt(q).

    Off the middle, one of its two candidates is x and the other is u away from it, with weights at least
    e^{q u^2} : 1, so it misses by at most u/(1 + e^{q u^2}); in the middle both candidates are x.
    Source: Yu et al. 2025 (heads), Lemma 3.
    Departs: the paper proves convergence; the constant is derived here.

    >>> selector_error(10_000.0).value
    0.00277...
    """
    positive(sharpness=sharpness)
    value = LARGEST / math.sqrt(sharpness)
    hypotheses = ("4 divides the length", "tokens in [0,1]^d")
    return Bound("selector error", value, "upper", SELECTOR, hypotheses, sizes={"sharpness": sharpness})


@implements(
    SUBSETS,
    test="tests/test_head_count_density.py::test_subset_minima_give_every_token_back",
    status="proved in the paper",
    hypotheses=(Checked("4 divides the length"),),
)
def subset_minima(length: int, token_dim: int) -> Bound:
    """All tokens can be read from 2 d C(T, T/4) minima over quarters of the positions.

    Source: Yu et al. 2025 (heads), Lemma 2 (the count is derived here).

    >>> subset_minima(8, 1).value
    56.0
    """
    at_least_one(length=length, token_dim=token_dim)
    if length % 4:
        raise ValueError(f"length must be a multiple of 4, as Lemma 2 asks, got {length}")
    value = 2.0 * token_dim * math.comb(length, length // 4)
    meaning = "density costs astronomically many retrievals: it says that D exists, not that it is small"
    sizes = {"length": length, "token_dim": token_dim}
    return Bound("retrievals", value, "upper", SUBSETS, ("4 divides the length",), meaning=meaning, sizes=sizes)
