"""How we know: the statements a prediction rests on, each proved, claimed, conjectured or reconstructed."""

from __future__ import annotations

from headcount.nets.architecture import Architecture
from headcount.papers.infoflow.analysis import Analysis
from headcount.papers.infoflow.prediction import Statement
from headcount.sources import Source
from headcount.structure import Structure

INFOFLOW, HEADS, HERE = "yu2026infoflow", "yu2025heads", "headcount"

ENOUGH = Statement(
    "enough",
    "D heads in one layer solve D retrievals at a rate free of the length",
    "proved",
    Source(HEADS, "Theorem 2(1)"),
)
FEWER = Statement(
    "fewer",
    "fewer heads than retrievals in one layer cost an exponent linear in the length",
    "proved",
    Source(HEADS, "Theorem 2(2)"),
)
FEWER_LINEAR = Statement(
    "fewer linear",
    "fewer heads than distinct rays in one layer cost a sum of linear maxima an exponent linear in the length",
    "proved",
    Source(HERE, "Few heads on linear maxima (after Theorem 2(2))"),
)
DEEPER = Statement(
    "deeper", "L layers of h heads without positions need L h >= D", "conjectured", Source(HEADS, "Conjecture 1")
)
PLACED = Statement(
    "placed",
    "with positions two layers of one head solve D retrievals when head_dim >= D",
    "reconstructed",
    Source(HERE, "retrievals collected by position"),
)
RIDING = Statement(
    "riding",
    "what tokens found can ride along: L layers of h heads carry (2L - 1) h retrievals without positions",
    "reconstructed",
    Source(HERE, "(2L - 1) h retrievals without positions"),
)
MAXIMUM = Statement(
    "maximum",
    "one head fetches the token of largest score, at no price in the length",
    "claimed",
    Source(INFOFLOW, "max-position retrieval"),
)
PAIRS = Statement(
    "pairs",
    "two layers of one head solve the pair task with eps^-1 parameters; one layer needs eps^-k, k linear in T",
    "claimed",
    Source(INFOFLOW, "the abstract (depth separation)"),
)
PAIR_LAYERS = Statement(
    "pair layers",
    "two layers of D heads solve D pair retrievals; what one layer needs depends on the form",
    "reconstructed",
    Source(INFOFLOW, "the intrinsic-dimension prediction (D heads in both layers)"),
)
PAIR_HEADS = Statement(
    "pair heads",
    "D pair retrievals need D heads in both layers (not in the first where tokens choose, as is derived here)",
    "claimed",
    Source(INFOFLOW, "the intrinsic-dimension prediction"),
)
RANKS = Statement(
    "ranks",
    "the k-th largest, k >= 2, is costly for one layer of few heads",
    "claimed",
    Source(INFOFLOW, "Theorem 2 (k-th largest)"),
)
MASKING = Statement(
    "masking",
    "each further layer can mask the winner: k layers of one head find the k-th largest",
    "reconstructed",
    Source(HERE, "k-th largest by masking"),
)
GATES = Statement(
    "gates",
    "gated heads find the second largest in one layer of 2 ceil(log2 T) heads",
    "reconstructed",
    Source(HERE, "k-th largest in one layer by gated heads"),
)
TRIPLES = Statement(
    "triples",
    "comparing three tokens at a time outgrows the comparisons of fixed depth and heads as the length grows",
    "claimed",
    Source(INFOFLOW, "the triangle-centre prediction"),
)
DECODING = Statement(
    "decoding",
    "reading |I| tokens of dimension d out of E numbers costs eps^-(|I| d / E)",
    "claimed",
    Source(INFOFLOW, "the decoding law"),
)
FIXED = Statement(
    "fixed",
    "positions let a head read fixed places whatever stands there",
    "claimed",
    Source(INFOFLOW, "specific-position aggregation"),
)
INDUCTION = Statement(
    "induction",
    "an induction head needs two layers",
    "claimed",
    Source(INFOFLOW, "recovered results (Sanford et al. 2024)"),
)
DOUBLING = Statement(
    "doubling",
    "k equal links of a chain take floor(log2 k) + 2 layers of one head",
    "claimed",
    Source(INFOFLOW, "recovered results (Sanford et al. 2024)"),
)
BAG = Statement(
    "bag",
    "without positions the output does not depend on the order of the tokens",
    "proved",
    Source(HERE, "permutation symmetry of attention"),
)


def statements_for(structure: Structure, arch: Architecture, plan: Analysis | None) -> tuple[Statement, ...]:
    """What the prediction rests on, in the order of its weight."""
    if plan is None:
        return (BAG,)
    chosen: list[Statement] = []
    one = arch.depth == 1
    compared = [r for r in structure.retrievals if r.order]
    if structure.order > 2:
        chosen.append(TRIPLES)
    if any(r.order == 2 for r in compared):
        known = {r.score for r in compared if r.order == 2} <= {"", "opposite"}
        chosen += [PAIRS if known else PAIR_LAYERS, PAIR_HEADS]
    if any(r.order == 1 and r.rank > 1 for r in compared):
        chosen += [RANKS, GATES if _used(plan, "gated") else MASKING]
    if any(r.order == 1 and r.rank == 1 and not r.after for r in compared):
        chosen += _heads(structure, arch, plan.whole) if one else [RIDING, DEEPER]
        if _used(plan, "routed"):
            chosen.append(PLACED)
    if any(r.offset for r in compared):
        chosen.append(INDUCTION)
    if any(d.links > 1 for d in plan.demands):
        chosen.append(DOUBLING)
    if arch.positions and any(r.positions for r in structure.retrievals):
        chosen.append(FIXED)
    if plan.demands and not (one and chosen):
        chosen.append(MAXIMUM)
    if plan.gathered or plan.cost.features > 1:
        chosen.append(DECODING)
    return tuple(dict.fromkeys(chosen))


def _heads(structure: Structure, arch: Architecture, whole: bool) -> list[Statement]:
    """What is proved about the heads of one layer and scores of this kind; nothing is said where nothing is proved."""
    scores = {r.score for r in structure.retrievals if r.order}
    if not whole:
        return [ENOUGH] if arch.layers[0][1] >= 2 else []
    return [FEWER_LINEAR] if scores == {"linear"} else [FEWER] if scores <= {"", "wells"} else []


def _used(plan: Analysis, way: str) -> bool:
    return any(job.way == way for jobs in plan.layers for job in jobs)
