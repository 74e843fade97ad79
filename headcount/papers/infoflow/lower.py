"""What falling short of a plan must cost: lower bounds on the exponent for one layer, reconstructed and proved."""

from __future__ import annotations

from headcount.nets.architecture import Architecture
from headcount.papers.head_count import few_heads_exponent, linear_max_exponent, log_mean_rate
from headcount.papers.head_count.bounds import pigeonhole
from headcount.refusals import at_least_one
from headcount.results import Bound, Hypothesis
from headcount.sources import Checked, Source, implements
from headcount.structure import Retrieval, Structure

QUANTITY = "exponent k of eps^-k feed-forward parameters"
NETWORK = "Assumption 1 of the head-count paper (embeddings and weights at most 1, a Lipschitz read-out of two layers)"
SHORTLY = "weights at most 1 and a Lipschitz read-out of two layers"
PAIRS = Source("yu2026infoflow", "depth separation (one layer)")
RANKS = Source("yu2026infoflow", "Theorem 2 (k-th largest)")


@implements(
    PAIRS,
    test="tests/test_infoflow_lower.py::test_pair_exponent_grows_linearly_with_length",
    status="proved here",
    hypotheses=(
        Checked("one layer"),
        Checked("one retrieval, over pairs, and no other"),
        Checked("a form negative definite on a plane, or the distance from cancelling in dimension 2 or more"),
        NETWORK,
    ),
)
def pair_exponent(*, length: int, heads: int, head_dim: int, target: Structure | None = None) -> Bound:
    """One layer needs eps^-k parameters for the most opposite pair, k linear in the length, whatever its heads.

    k = T_0 / ((n + 1) h + 1) - 1 with T_0 = floor((T - h)/2) - h. The target is min |x_s + x_t|, or max x_s^T A x_t
    with a plane on which the symmetric part of A is negative definite, in suitable coordinates -I. There, with the
    antisymmetric part c J, unit tokens at an angle phi give max(x_s^T A x_t, x_t^T A x_s) = sqrt(1 + c^2) cos(phi - p),
    p = pi - arctan |c|: largest where they are p apart (c = 0: opposite). Fixed anchors, close together in an arc,
    and for each a token that varies near p away from its own anchor only: the answer is a function of the least
    deviation. The heads' favourites are placed, at most h anchors lost, and the rest vary freely; the pigeonhole and
    Lemma 4 of the head-count paper then apply as in its Theorem 2(2).
    Source: Yu et al. 2026 (InfoFlow) states Omega(eps^-k), k linear in T.
    Departs: the constant is reconstructed here, the paper's is not known; and for general A the statement is false
    (`kind_of`: semidefinite and rank-one forms), so the form is asked for.

    >>> pair_exponent(length=64, heads=1, head_dim=2).value
    6.5
    """
    at_least_one(length=length, heads=heads, head_dim=head_dim)
    k = pigeonhole((length - heads) // 2 - heads, heads, head_dim)
    alone = opposite = None
    if target is not None:
        first = target.retrievals[0]
        alone = target.count == len(target.retrievals) == 1 and first.order == 2 and first.rank == 1 and _direct(first)
        opposite = None if first.score == "" else first.score == "opposite"
    hypotheses = (
        Hypothesis.checked("one retrieval, over pairs, and no other", alone),
        Hypothesis.checked("a pair form negative definite on a plane", opposite),
        Hypothesis(NETWORK, short=SHORTLY),
    )
    sizes = {"length": length, "heads": heads, "head_dim": head_dim}
    return Bound(QUANTITY, k, "lower", PAIRS, hypotheses, vacuous=k <= 0, sizes=sizes)


@implements(
    RANKS,
    test="tests/test_infoflow_lower.py::test_kth_largest_exponent_needs_fewer_heads_than_the_rank",
    status="proved here",
    hypotheses=(
        Checked("one layer"),
        Checked("heads < rank, counted from the nearer end"),
        Checked("one retrieval and no other"),
        Checked("scores that fill an interval, as a token that is a number does, where a task is given"),
        NETWORK,
    ),
)
def kth_largest_exponent(
    *, length: int, rank: int, heads: int, head_dim: int, target: Structure | None = None
) -> Bound:
    """One layer with fewer heads than the rank needs eps^-k parameters for the k-th largest, k linear in the length.

    Among heads + 1 segments of values one holds no head's favourite; with rank - 1 tokens above it, the answer is the
    largest of T_0 = T - h - (rank - 1) tokens that vary in that segment. The rank counts from the nearer end, as the
    k-th largest is minus the (T - k + 1)-th largest of the negated tokens.
    Source: Yu et al. 2026 (InfoFlow), Theorem 2, which says "any single layer".
    Departs: heads < rank is required, since gated heads find the k-th largest in one layer (`gate_heads`).

    >>> kth_largest_exponent(length=32, rank=2, heads=1, head_dim=2).value
    6.5
    >>> kth_largest_exponent(length=32, rank=31, heads=1, head_dim=2).value
    6.5
    """
    at_least_one(length=length, rank=rank, heads=heads, head_dim=head_dim)
    if rank > length:
        raise ValueError(f"rank must lie in 1..{length} (the length), got {rank}")
    nearer = min(rank, length - rank + 1)
    k = pigeonhole(length - heads - (nearer - 1), heads, head_dim)
    alone = number = None
    if target is not None:
        first = target.retrievals[0]
        alone = target.count == len(target.retrievals) == 1 and first.order == 1 and _direct(first)
        number = None if first.score == "" else first.score == "number"
    hypotheses = (
        Hypothesis.checked("heads < rank", heads < nearer),
        Hypothesis.checked("one retrieval and no other", alone),
        Hypothesis.checked("scores that fill an interval", number),
        Hypothesis(NETWORK, short=SHORTLY),
    )
    sizes = {"length": length, "rank": nearer, "heads": heads, "head_dim": head_dim}
    return Bound(QUANTITY, k, "lower", RANKS, hypotheses, vacuous=k <= 0, sizes=sizes)


def one_layer_bounds(structure: Structure, arch: Architecture) -> tuple[Bound, ...]:
    """Every lower bound on one layer, its hypotheses checked against this structure: some fail, and say which.

    >>> from headcount.nets import Architecture
    >>> from headcount.structure import Retrieval
    >>> single = Structure(64, 4, (Retrieval("single tokens", count=2, score="other"),))
    >>> [b.failed for b in one_layer_bounds(single, Architecture(layers=((1, 2),)))]
    [('Assumption 2',), ('scores <a_i, x_t> with distinct rays, added',)]
    """
    if len(arch.layers) != 1:
        return ()
    (heads, head_dim), bounds = arch.layers[0], []
    compared = [r for r in structure.retrievals if r.order]
    if all(r.order == r.rank == 1 for r in compared):
        sizes = {"length": structure.length, "retrievals": structure.count, "heads": heads, "head_dim": head_dim}
        if structure.count:
            bounds += [few_heads_exponent(**sizes, target=structure), linear_max_exponent(**sizes, target=structure)]
    for r in compared:
        window = r.window or structure.length
        if r.order == 2:
            bounds.append(pair_exponent(length=window, heads=heads, head_dim=head_dim, target=structure))
        if r.order == 1 and r.rank > 1:
            sizes = {"length": window, "rank": r.rank, "heads": heads, "head_dim": head_dim}
            bounds.append(kth_largest_exponent(**sizes, target=structure))
    return tuple(bounds)


def one_layer_bound(structure: Structure, arch: Architecture) -> Bound | None:
    """The lower bound that speaks about this structure and a single layer, if any does and says something.

    A bound with a hypothesis that fails never speaks, and none speaks where the structure does not say what its scores
    are; what a bound assumes of the network is part of its sentence.
    """
    if not any(r.score for r in structure.retrievals):
        return None
    speak = [b for b in one_layer_bounds(structure, arch) if not b.vacuous]
    return max(speak, key=lambda b: b.value, default=None)


def beyond_bounded_weights(structure: Structure, arch: Architecture) -> Bound | None:
    """What a shape can do when its weights may grow with 1/eps, where that is known: maxima by a mean of exponentials.

    One number of the last layer's heads for each look-up; windows need positions, which the encoder sees.

    >>> from headcount.structure import Retrieval
    >>> two = Structure(64, 1, (Retrieval("max", score="linear"), Retrieval("min", rank=64, score="number")))
    >>> beyond_bounded_weights(two, Architecture(layers=((1, 2),))).value
    1.0
    """
    parts, (heads, head_dim) = structure.retrievals, arch.layers[-1]
    plain = all(r.order == 1 and _direct(r) and r.rank in (1, r.window or structure.length) for r in parts)
    windows = any((r.window or structure.length) < structure.length for r in parts) and not arch.positions
    if not plain or windows or arch.embedding == "linear" or min(heads * head_dim, arch.embed_dim) < structure.count:
        return None
    return log_mean_rate(length=structure.length, retrievals=structure.count)


def _direct(r: Retrieval) -> bool:
    """Whether it waits for nothing and is read where it is found."""
    return not r.after and not r.offset and not r.beside
