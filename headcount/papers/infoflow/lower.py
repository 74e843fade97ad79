"""What falling short of a plan must cost: lower bounds on the exponent for one layer, reconstructed and proved."""

from __future__ import annotations

from typing import Any

from headcount.nets.architecture import Architecture
from headcount.papers.head_count import few_heads_exponent
from headcount.papers.infoflow.demands import nearer_rank
from headcount.results import Bound
from headcount.sources import Source, implements
from headcount.structure import Retrieval, Structure

__all__ = ["kth_largest_exponent", "one_layer_bound", "pair_exponent"]

QUANTITY = "exponent k of eps^-k feed-forward parameters"


def _pigeonhole(free: int, heads: int, head_dim: int) -> float:
    # The head-count paper's pigeonhole: `free` varying tokens, (n + 1) numbers a head, one for the target.
    return free / ((head_dim + 1) * heads + 1) - 1


@implements(
    Source("yu2026infoflow", "depth separation (one layer)"),
    test="tests/test_infoflow_lower.py::test_pair_exponent_grows_linearly_with_length",
)
def pair_exponent(*, length: int, heads: int, head_dim: int) -> Bound:
    """One layer needs eps^-k parameters for the best pair, k linear in the length, whatever its heads.

    k = T_0 / ((n + 1) h + 1) - 1 with T_0 = floor((T - h)/2) - h: fixed anchors on a half circle give every second
    token its own partner, the heads' favourites are placed and at most h basins lost, and the rest vary freely.
    Source: Yu et al. 2026 (InfoFlow) states Omega(eps^-k), k linear in T.
    Departs: the constant is reconstructed here; the paper's is not known.

    >>> pair_exponent(length=64, heads=1, head_dim=2).value
    6.5
    """
    k = _pigeonhole((length - heads) // 2 - heads, heads, head_dim)
    source = Source("yu2026infoflow", "depth separation (one layer)")
    sizes = {"length": length, "heads": heads, "head_dim": head_dim}
    return Bound(QUANTITY, k, "lower", source, ("one layer", "token_dim >= 2"), vacuous=k <= 0, sizes=sizes)


@implements(
    Source("yu2026infoflow", "Theorem 2 (k-th largest)"),
    test="tests/test_infoflow_lower.py::test_kth_largest_exponent_needs_fewer_heads_than_the_rank",
)
def kth_largest_exponent(*, length: int, rank: int, heads: int, head_dim: int) -> Bound:
    """One layer with fewer heads than the rank needs eps^-k parameters for the k-th largest, k linear in the length.

    Among heads + 1 segments of values one holds no head's favourite; with rank - 1 tokens above it, the answer is the
    largest of T_0 = T - h - (rank - 1) tokens that vary in that segment.
    Source: Yu et al. 2026 (InfoFlow), Theorem 2, which says "any single layer".
    Departs: heads < rank is required, since gated heads find the k-th largest in one layer (`gate_heads`).

    >>> kth_largest_exponent(length=32, rank=2, heads=1, head_dim=2).value
    6.5
    """
    short = heads < rank
    k = _pigeonhole(length - heads - (rank - 1), heads, head_dim) if short else 0.0
    source = Source("yu2026infoflow", "Theorem 2 (k-th largest)")
    sizes = {"length": length, "rank": rank, "heads": heads, "head_dim": head_dim}
    return Bound(QUANTITY, k, "lower", source, ("one layer", "heads < rank"), vacuous=not short or k <= 0, sizes=sizes)


# What is known of the scores of the tasks that ship; a structure may state it itself (`Retrieval.score`).
SCORES = {"Wells": "wells", "KthLargest": "number", "OppositePair": "opposite"}


def _score(task: Any, r: Retrieval) -> str:
    stated = getattr(r, "score", "")
    kind = type(task)
    return stated or (SCORES.get(kind.__name__, "") if kind.__module__.startswith("headcount.tasks.") else "")


def one_layer_bound(task: Any, structure: Structure, arch: Architecture) -> Bound | None:
    """The largest lower bound on a single layer whose hypotheses the task meets, if any says something.

    Theorem 2(2) asks for wells (Assumption 2), the k-th largest for numbers, the pair for a form that is negative
    definite on a plane: of a structure that does not say what its scores are, nothing is proved.
    """
    if arch.depth != 1:
        return None
    heads, head_dim = arch.layers[0]
    shape = {"heads": heads, "head_dim": head_dim}
    bounds: list[Bound] = []
    compared = [r for r in structure.retrievals if r.order and not r.after and not r.offset]
    scores = {_score(task, r) for r in compared}
    wide = all(4 * (r.window or structure.length) >= structure.length for r in compared)
    plain = len(compared) == len(structure.retrievals) and all(r.order == r.rank == 1 for r in compared)
    if plain and wide and scores == {"wells"}:
        bounds.append(few_heads_exponent(length=structure.length, retrievals=structure.count, **shape))
    for r in compared if len(compared) == len(structure.retrievals) == 1 else ():
        window, rank = r.window or structure.length, nearer_rank(r, structure.length)
        if r.order == 2 and scores == {"opposite"} and structure.token_dim > 1:
            bounds.append(pair_exponent(length=window, **shape))
        if r.order == 1 and rank > 1 and scores == {"number"}:
            bounds.append(kth_largest_exponent(length=window, rank=rank, **shape))
    return max((b for b in bounds if not b.vacuous), key=lambda b: b.value, default=None)
