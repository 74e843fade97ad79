"""Theorem 2 of the head-count paper as arithmetic: what too few heads cost, and what enough heads save."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product

from headcount.numerals import counted, outward
from headcount.refusals import at_least_one, positive
from headcount.results import Bound, Hypothesis
from headcount.sources import Checked, Source, implements
from headcount.structure import Structure

QUANTITY = "exponent k of eps^-k feed-forward parameters"
NETWORK = "Assumption 1 (embeddings of norm at most 1, attention and read-out weights at most 1)"
TWO_LAYERS = "a read-out of two layers with a Lipschitz activation, as ReLU and GELU are"

BOUNDED = "weights at most 1"

FEW_HEADS = Source("yu2025heads", "Theorem 2(2)")
LINEAR_MAX = Source("headcount", "Few heads on linear maxima (after Theorem 2(2))")
FEW_HEADS_DEEP = Source("yu2025heads", "Appendix A.2.2 (remark on Theorem 2(2))")
ENOUGH_HEADS = Source("yu2025heads", "Theorem 2(1)")
MEMORISE = Source("yu2025heads", "Theorem 2(3)")
INTRINSIC = Source("yu2025heads", "Corollary 1")
LOG_MEAN = Source("headcount", "Maxima by one head with constant scores and a logarithm")


@implements(
    FEW_HEADS,
    test="tests/test_head_count_bounds.py::test_exponents_equal_the_published_formula_by_hand",
    status="proved in the paper",
    hypotheses=(
        Checked("heads < retrievals"),
        Checked("every window holds a quarter of the positions, and its largest or smallest score is wanted"),
        Checked("Assumption 2 (distinct minimisers, definite Hessians, no zero partial), where a task is given"),
        NETWORK,
        TWO_LAYERS,
    ),
)
def few_heads_exponent(
    *,
    length: int,
    retrievals: int,
    heads: int,
    head_dim: int,
    read_out_layers: int = 2,
    target: Structure | None = None,
) -> Bound:
    """With fewer heads than retrievals, error eps costs eps^-k feed-forward parameters.

    k = (T/4 - s - D + 1) / ((n + 1) s + 1) - 1 for s heads of dimension n; k / 4 for a read-out of three to five
    layers. Says nothing while k <= 0, and nothing for heads >= retrievals. What the theorem asks of the target is
    checked where a `target` states its scores, else assumed.
    Source: Yu et al. 2025 (heads), Theorem 2(2).

    >>> few_heads_exponent(length=128, retrievals=4, heads=1, head_dim=2).value
    6.0
    >>> few_heads_exponent(length=128, retrievals=4, heads=3, head_dim=8).vacuous
    True
    """
    at_least_one(length=length, retrievals=retrievals, heads=heads, head_dim=head_dim, read_out_layers=read_out_layers)
    if not 2 <= read_out_layers <= 5:
        raise ValueError(f"read_out_layers must lie in 2..5, as in the theorem and its remark, got {read_out_layers}")
    # The proof has T_0 = T/4 - s - D + 1 free positions, and the pigeonhole needs T_0 >= (k + 1)(n + 1)s + (k + 1).
    k = pigeonhole(length / 4 - heads - retrievals + 1, heads, head_dim)
    k = k if read_out_layers == 2 else k / 4
    sizes = {"length": length, "retrievals": retrievals, "heads": heads, "head_dim": head_dim}
    if heads < retrievals:
        sizes["bites_from"] = bites_from(retrievals=retrievals, heads=heads, head_dim=head_dim)
    source = FEW_HEADS if read_out_layers == 2 else FEW_HEADS_DEEP
    most = "two layers" if read_out_layers == 2 else f"at most {read_out_layers} layers"
    hypotheses = (
        *_of_the_target(target, heads, retrievals, "wells", "Assumption 2"),
        Hypothesis(NETWORK, short=BOUNDED),
        Hypothesis(TWO_LAYERS.replace("two layers", most), short=f"a Lipschitz read-out of {most}"),
    )
    return Bound(QUANTITY, k, "lower", source, hypotheses, k <= 0, _meaning(k, sizes), sizes)


@implements(
    LINEAR_MAX,
    test="tests/test_head_count_bounds.py::test_the_first_difference_decides_a_sum_of_linear_maxima",
    status="proved here",
    hypotheses=(
        Checked("heads < retrievals"),
        Checked("every window is the whole sequence, and its largest score is wanted"),
        Checked("scores <a_i, x_t> with distinct rays, added, where a task is given"),
        "a domain of tokens with interior",
        NETWORK,
        TWO_LAYERS,
    ),
)
def linear_max_exponent(
    *, length: int, retrievals: int, heads: int, head_dim: int, target: Structure | None = None
) -> Bound:
    """With fewer heads than distinct rays, sum_i max_t <a_i, x_t> costs eps^-k parameters, k = T_0/((n+1)s+1) - 1.

    T_0 = T - s - D + 1 for D distinct rays, s heads of dimension n. Theorem 2(2) does not say it: linear scores have
    no definite Hessian (Assumption 2.3). Its proof goes through with other segments, and with T for T/4, as every
    window is the whole sequence.

    Proof. Take a ball of the domain, of centre c and radius R, and x^(i) = c + R a_i/|a_i|. By strict convexity x^(i)
    is the only point of the ball where <a_i, x> is largest, and the x^(i) are distinct. Let G_i be the points
    c + (1 - u) R a_i/|a_i|, u in [r/4, r/2]: along it the score falls by R |a_i| u exactly, and for r small enough it
    stays above <a_i, y> for all y in K_j = G_j + {x^(j)}, j != i. Place each head's favourite (y_j, t_j), the argmax
    of its weight over the union of all K_i and the positions not yet used. As s < D, some K_i, say K_1, holds no
    favourite. Place x^(2), ..., x^(D) elsewhere: T_0 positions are left. Let token t of them run through a grid in
    G_1, all grids disjoint and in falling order, of 1/(C eps) points each. Attention is a weighted mean, and a head's
    favourite outweighs each free token; so by the pigeonhole (n + 1 numbers per head, one of them on a logarithmic
    scale) two of the eps^-T_0 fillings give every head the same mean and total weight up to eps^(k+1) when
    T_0 > (k + 1)(n + 1)s. Where the two agree put x^(D) in both, which changes neither difference. Now every maximum
    but the first is |a_i| R + <a_i, c> in both, attained at x^(i), and the first is that of the first place where
    they differ: the targets differ by a grid step, 3 eps, and the inputs of the read-out by a multiple of eps^(k+1).
    By Lemma 4 its width is a multiple of eps^-k. QED

    >>> linear_max_exponent(length=128, retrievals=4, heads=3, head_dim=8).value
    3.357...
    """
    at_least_one(length=length, retrievals=retrievals, heads=heads, head_dim=head_dim)
    k = pigeonhole(length - heads - retrievals + 1, heads, head_dim)
    sizes = {"length": length, "retrievals": retrievals, "heads": heads, "head_dim": head_dim}
    if heads < retrievals:
        sizes["bites_from"] = (head_dim + 1) * heads + heads + retrievals + 1
    stated = _of_the_target(target, heads, retrievals, "linear", "scores <a_i, x_t> with distinct rays, added")
    inside = True if stated[-1].status == "holds" else None  # such scores are stated of domains with interior alone
    hypotheses = (
        *stated,
        Hypothesis.checked("a domain of tokens with interior", inside, "tokens that fill a ball"),
        Hypothesis(NETWORK, short=BOUNDED),
        Hypothesis(TWO_LAYERS, short="a Lipschitz read-out of two layers"),
    )
    return Bound(QUANTITY, k, "lower", LINEAR_MAX, hypotheses, k <= 0, _meaning(k, sizes), sizes)


def pigeonhole(free: float, heads: int, head_dim: int) -> float:
    """The exponent that `free` varying tokens force: (n + 1) numbers per head remain, and one for the target."""
    return free / ((head_dim + 1) * heads + 1) - 1


def _of_the_target(
    target: Structure | None, heads: int, retrievals: int, score: str, says: str
) -> tuple[Hypothesis, Hypothesis, Hypothesis]:
    """Heads too few; plain maxima over enough positions; and scores of the kind that the proof asks for."""
    divisor, quarter = (1, "the whole sequence") if score == "linear" else (4, "a quarter of the positions")
    plain = known = None
    if target is not None:
        parts = target.retrievals
        plain = all(r.order == r.rank == 1 and not r.after and not r.offset and not r.beside for r in parts) and all(
            divisor * (r.window or target.length) >= target.length for r in parts
        )
        scores = {r.score for r in parts}
        known = None if scores <= {"", score} and "" in scores else scores == {score}
    return (
        Hypothesis.checked("heads < retrievals", heads < retrievals),
        Hypothesis.checked(
            f"every retrieval wants one largest score of {quarter} or more", plain, f"maxima over {quarter}"
        ),
        Hypothesis.checked(says, known, "linear scores on distinct rays" if score == "linear" else says),
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
) -> list[dict[str, object]]:
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


@implements(
    ENOUGH_HEADS,
    test="tests/test_head_count_bounds.py::test_rates_of_the_two_upper_bounds",
    status="proved in the paper",
    hypotheses=("heads >= retrievals", "head_dim >= 2", "Assumption 3 at this rate"),
)
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


@implements(
    MEMORISE,
    test="tests/test_head_count_bounds.py::test_rates_of_the_two_upper_bounds",
    status="proved in the paper",
    hypotheses=("head_dim >= length * token_dim", "a ReLU read-out of five layers", "Assumption 3 at this rate"),
)
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


@implements(
    LOG_MEAN,
    test="tests/test_head_count_log_mean.py::test_the_error_stays_within_its_promise_and_comes_near_it",
    status="proved here",
    hypotheses=("head_dim >= retrievals", "weights that grow like T^(1/eps)", "bounded scores"),
)
def log_mean_rate(*, length: int, retrievals: int) -> Bound:
    """One head with constant scores finds D maxima with eps^-1 feed-forward parameters, where weights may be large.

    The encoder makes exp(beta s_i(x_t)), i = 1..D, attention takes their plain mean, and the read-out log / beta:
    max_t s_i - log(T)/beta <= log(mean_t exp(beta s_i)) / beta <= max_t s_i. With beta = D log(T) / eps the pieces of
    the two interpolants number D sqrt(log T) / eps (`log_mean_exp`), and the weights grow like T^(D S / eps) for
    scores up to S. It lies outside Assumption 1, whose weights are at most 1, and shows what that assumption carries.

    >>> log_mean_rate(length=128, retrievals=4).value
    1.0
    """
    at_least_one(length=length, retrievals=retrievals)
    hypotheses = (
        Hypothesis("head_dim >= retrievals"),
        Hypothesis("weights that grow like length^(retrievals / eps)", short="weights that grow like T^(D/eps)"),
        Hypothesis("scores that are bounded", short="bounded scores"),
    )
    meaning = "one head with constant scores averages exponentials of the scores, and the read-out takes logarithms"
    sizes = {"length": length, "retrievals": retrievals}
    return Bound("exponent of 1/eps", 1.0, "upper", LOG_MEAN, hypotheses, meaning=meaning, sizes=sizes)


@implements(
    INTRINSIC,
    test="tests/test_head_count_bounds.py::test_the_count_of_retrievals_is_intrinsic_in_the_regime",
    status="proved in the paper",
    hypotheses=("Assumptions 1 and 2 for both representations", Checked("first != second")),
)
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
    hypotheses = (
        "Assumptions 1 and 2 for both representations",
        Hypothesis.checked("first != second", first != second),
    )
    sizes = {"first": first, "second": second}
    return Bound("length", value, "lower", INTRINSIC, hypotheses, meaning=meaning, sizes=sizes)


def _meaning(k: float, sizes: dict[str, int]) -> str:
    heads, retrievals = sizes["heads"], sizes["retrievals"]
    if heads >= retrievals and sizes["head_dim"] >= 2:
        some = f"{counted(heads, 'head')} for {counted(retrievals, 'retrieval')}"
        return f"{some} {'is' if heads == 1 else 'are'} not too few: Theorem 2(1) applies instead"
    if heads >= retrievals:
        some = "1 head is not less" if heads == 1 else f"{heads:,} heads are not fewer"
        return f"{some} than {counted(retrievals, 'retrieval')}; Theorem 2(1) asks for head_dim 2, here 1"
    if k <= 0:
        return f"the bound says nothing at length {sizes['length']:,}; it bites from length {sizes['bites_from']:,}"
    return f"halving the error multiplies the feed-forward parameters by at least {_doublings(k)}, up to a constant"


def _doublings(k: float) -> str:
    return f"{outward(2**k, 3, 'lower'):.3g}" if k < 100 else f"10^{math.floor(k * math.log10(2))}"
