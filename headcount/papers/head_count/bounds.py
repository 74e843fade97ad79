"""Theorem 2 of the head-count paper as arithmetic: what too few heads cost, and what enough heads save."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

from headcount.refusals import at_least_one, positive
from headcount.results import Bound
from headcount.sources import Source, implements

__all__ = [
    "bites_from",
    "enough_heads_rate",
    "few_heads_exponent",
    "few_heads_table",
    "intrinsic_from",
    "memorise_rate",
]

FEW_HEADS = Source("yu2025heads", "Theorem 2(2)")
FEW_HEADS_DEEP = Source("yu2025heads", "Appendix A.2.2 (remark on Theorem 2(2))")
ENOUGH_HEADS = Source("yu2025heads", "Theorem 2(1)")
MEMORISE = Source("yu2025heads", "Theorem 2(3)")
INTRINSIC = Source("yu2025heads", "Corollary 1")


@implements(FEW_HEADS, test="tests/test_head_count_bounds.py::test_exponents_equal_the_published_formula_by_hand")
def few_heads_exponent(*, length: int, retrievals: int, heads: int, head_dim: int, read_out_layers: int = 2) -> Bound:
    """With fewer heads than retrievals, error eps costs eps^-k feed-forward parameters.

    k = (T/4 - s - D + 1) / ((n + 1) s + 1) - 1 for s heads of dimension n; k / 4 for a read-out of three to five
    layers. Says nothing while k <= 0, and nothing for heads >= retrievals.
    Source: Yu et al. 2025 (heads), Theorem 2(2).

    >>> few_heads_exponent(length=128, retrievals=4, heads=1, head_dim=2).value
    6.0
    >>> few_heads_exponent(length=128, retrievals=4, heads=3, head_dim=8).vacuous
    True
    """
    at_least_one(length=length, retrievals=retrievals, heads=heads, head_dim=head_dim)
    if not 2 <= read_out_layers <= 5:
        raise ValueError(f"read_out_layers must lie in 2..5, as in the theorem and its remark, got {read_out_layers}")
    enough = heads >= retrievals
    # The proof has T_0 = T/4 - s - D + 1 free positions, and the pigeonhole needs T_0 >= (k + 1)(n + 1)s + (k + 1).
    free = length / 4 - heads - retrievals + 1
    k = free / ((head_dim + 1) * heads + 1) - 1
    k = 0.0 if enough else k if read_out_layers == 2 else k / 4
    sizes = {"length": length, "retrievals": retrievals, "heads": heads, "head_dim": head_dim}
    if not enough:
        sizes["bites_from"] = bites_from(retrievals=retrievals, heads=heads, head_dim=head_dim)
    return Bound(
        "exponent k of eps^-k feed-forward parameters",
        k,
        "lower",
        FEW_HEADS if read_out_layers == 2 else FEW_HEADS_DEEP,
        ("heads < retrievals", "Assumptions 1 and 2", f"read-out of at most {max(2, read_out_layers)} layers"),
        vacuous=enough or k <= 0,
        meaning=_meaning(k, sizes),
        sizes=sizes,
    )


def bites_from(*, retrievals: int, heads: int, head_dim: int) -> int:
    """The smallest length at which `few_heads_exponent` is positive: the first above 4((n + 1)s + s + D).

    >>> bites_from(retrievals=4, heads=1, head_dim=2)
    33
    """
    at_least_one(retrievals=retrievals, heads=heads, head_dim=head_dim)
    return 4 * ((head_dim + 1) * heads + heads + retrievals) + 1


def few_heads_table(
    lengths: Iterable[int], heads: Iterable[int], *, retrievals: int, head_dim: int
) -> list[dict[str, Any]]:
    """A row for every number of heads, with the exponent at each length under `T=...`.

    >>> few_heads_table([64, 128], [1], retrievals=4, head_dim=2)
    [{'heads': 1, 'head_dim': 2, 'T=64': 2.0, 'T=128': 6.0, 'bites from': 33}]
    """
    lengths, rows = list(lengths), {}
    for h, length in product(heads, lengths):
        bound = few_heads_exponent(length=length, retrievals=retrievals, heads=h, head_dim=head_dim)
        row = rows.setdefault(h, {"heads": h, "head_dim": head_dim})
        row[f"T={length}"] = bound.value
        row["bites from"] = row.pop("bites from", None) or bound.sizes.get("bites_from")
    return list(rows.values())


@implements(ENOUGH_HEADS, test="tests/test_head_count_bounds.py::test_rates_of_the_two_upper_bounds")
def enough_heads_rate(rate: float) -> Bound:
    """With a head of dimension 2 for each retrieval, eps^-gamma feed-forward parameters suffice, free of length.

    gamma = `rate` is how features and outer function are approximated by two-layer networks (Assumption 3); it is
    1/2 for the wells of this package.
    Source: Yu et al. 2025 (heads), Theorem 2(1).

    >>> enough_heads_rate(0.5).value
    0.5
    """
    positive(rate=rate)
    meaning = f"halving the error multiplies the feed-forward parameters by {2**rate:.3g}, whatever the length"
    hypotheses = ("heads >= retrievals", "head_dim >= 2", "Assumption 3")
    return Bound("exponent of 1/eps", rate, "upper", ENOUGH_HEADS, hypotheses, meaning=meaning, sizes={"rate": rate})


@implements(MEMORISE, test="tests/test_head_count_bounds.py::test_rates_of_the_two_upper_bounds")
def memorise_rate(rate: float) -> Bound:
    """One head that keeps the whole sequence needs eps^-(1 + gamma) feed-forward parameters.

    The widths grow like eps^-max(1, gamma) only; merging the layers into five (Lemma 8) joins the features' units
    with those of the maximum, all with all, and so multiplies the two. Zeros are not counted.
    Source: Yu et al. 2025 (heads), Theorem 2(3).

    >>> memorise_rate(0.5).value, memorise_rate(0.5).sizes["width_exponent"]
    (1.5, 1.0)
    """
    positive(rate=rate)
    hypotheses = ("head_dim >= length * token_dim", "a ReLU read-out of five layers", "Assumption 3")
    meaning = "one head suffices when it is as wide as the sequence; the constant then grows with the length"
    sizes = {"rate": rate, "width_exponent": max(1.0, rate)}
    return Bound("exponent of 1/eps", 1 + rate, "upper", MEMORISE, hypotheses, meaning=meaning, sizes=sizes)


@implements(INTRINSIC, test="tests/test_head_count_bounds.py::test_the_count_of_retrievals_is_intrinsic_in_the_regime")
def intrinsic_from(first: int, second: int) -> Bound:
    """From length 50 (D_1^2 + D_2^2) on, no target has two representations with D_1 and D_2 retrievals.

    Source: Yu et al. 2025 (heads), Corollary 1.

    >>> intrinsic_from(3, 4).value
    1250.0
    """
    at_least_one(first=first, second=second)
    # If D_1 < D_2, heads = D_1 are enough by the first representation and too few by the second, with k > D_2.
    value = 50.0 * (first**2 + second**2)
    meaning = f"a target with {first} retrievals has no representation with {second} at such lengths"
    hypotheses = ("Assumptions 1 and 2 for both representations",)
    sizes = {"first": first, "second": second}
    return Bound("length", value, "lower", INTRINSIC, hypotheses, first == second, meaning, sizes)


def _meaning(k: float, sizes: dict[str, int]) -> str:
    heads, retrievals = sizes["heads"], sizes["retrievals"]
    if heads >= retrievals:
        return f"{heads} heads are enough for {retrievals} retrievals: Theorem 2(1) applies instead"
    if k <= 0:
        return f"says nothing at length {sizes['length']}; it bites from length {sizes['bites_from']}"
    return f"halving the error multiplies the feed-forward parameters by at least {_doublings(k)}, up to a constant"


def _doublings(k: float) -> str:
    return f"{2**k:.3g}" if k < 100 else f"10^{k * math.log10(2):.0f}"
