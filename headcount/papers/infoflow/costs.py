"""The price list: what each way of moving information costs, as the exponent e of eps^-e feed-forward parameters."""

from __future__ import annotations

import math
from fractions import Fraction

from headcount.sources import Checked, Source, implements

# The largest exponent that still counts as cheap. Aggregated numbers must come out separated (one per dimension):
# exponent 1, as in Theorem 2(3) of the head-count paper. A retrieved token is a smooth function's argument, and a
# two-layer feed-forward learns those at eps^-2 when their Barron norm is finite (Assumption 3 there).
SEPARATED = Fraction(1)
FEATURES = Fraction(2)


@implements(
    Source("yu2026infoflow", "the decoding law"),
    test="tests/test_infoflow_costs.py::test_decoding_law_of_the_notes",
    status="derived",
    hypotheses=(
        Checked("dims >= 1"),
        "weights of the decoder bounded",
    ),
)
def decoding_exponent(numbers: int, dims: int) -> Fraction:
    """Reading `numbers` coupled numbers out of `dims` dimensions costs eps^-(numbers/dims) parameters, at least eps^-1.

    The numbers, to precision eps, are digits base 1/eps: numbers/dims of them share a coordinate, and a piecewise
    linear reader of one coordinate needs a piece for each value.
    Source: Yu et al. 2026 (InfoFlow): |I| tokens of dimension d in a state of width E cost eps^-(|I| d / E).
    Departs: never below 1, the price of a piecewise linear feature.

    >>> decoding_exponent(64 * 4, 24)
    Fraction(32, 3)
    >>> decoding_exponent(3, 8)
    Fraction(1, 1)
    """
    if dims < 1:
        raise ValueError(f"a state needs at least 1 dimension to be read from, got {dims}")
    return max(Fraction(1), Fraction(numbers, dims))


@implements(
    Source("headcount", "k-th largest in one layer by gated heads"),
    test="tests/test_infoflow_costs.py::test_gated_heads_suffice_for_the_kth_largest",
    status="proved here",
    hypotheses=("position features",),
)
def gate_heads(length: int, rank: int) -> int:
    """Heads that find the rank-th largest of `length` tokens in one layer, when positions gate what each head sees.

    Paint the positions with k colours: the least of the k maxima per colour never exceeds the k-th largest, and equals
    it when the k largest have k different colours. Two colours by the bits of t separate any two positions:
    2 ceil(log2 T) heads. For k > 2, N random paintings fail to give k positions k colours with probability
    (1 - k!/k^k)^N, so N > log C(T, k) / -log(1 - k!/k^k) of them serve every k positions at once.
    T heads always do: one per position.

    >>> gate_heads(1024, rank=2)
    20
    >>> gate_heads(7, rank=1), gate_heads(2, rank=2)
    (1, 2)
    """
    if rank == 1:
        return 1
    if rank == 2:
        return min(2 * (length - 1).bit_length(), length)
    # k!/k^k by logarithms: from rank 41 on it is lost beside 1, and from rank 750 or so it is no float at all.
    right = math.exp(math.lgamma(rank + 1) - rank * math.log(rank))
    if rank * right == 0 or rank >= length:
        return length
    paintings = math.floor(math.log(math.comb(length, rank)) / -math.log1p(-right)) + 1
    return min(rank * paintings, length)


def comparisons_needed(window: int, order: int) -> int:
    """Comparisons that select the best of all `order`-tuples, and then its place at the class token.

    >>> comparisons_needed(64, order=3)
    262208
    """
    return window**order + window


def comparisons_made(layers: tuple[tuple[int, int], ...], length: int) -> int:
    """One head at every token makes length^2 comparisons.

    >>> comparisons_made(((4, 6), (4, 6)), length=64)
    32768
    """
    return sum(heads for heads, _ in layers) * length**2
