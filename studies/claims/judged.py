"""What training says of a claim: the rule of the study, row by row and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal, TypedDict

from headcount.papers.infoflow.lower import kth_largest_exponent, pair_exponent
from headcount.results import Predicate
from studies.claims.cases import Case
from studies.infoflow.solved import solved

LEARNED = 1e-2  # a reference above this says nothing about a shape
NEAR = (2.5, 10.0)  # times the reference's NMSE: half and twice the factor within which a task counts as solved
LONGEST = 1000
When = Literal["said", "now"]


class Row(TypedDict):
    """One case as it is kept: what was said, what is said now and why, every seed's NMSE and the reference's."""

    case: str
    said: str
    now: str
    exponent: float
    claim: str
    limit: str
    bound_from: int | None
    shape: str
    width: int
    reference: str
    nmse: list[float]
    reference_nmse: list[float]
    seconds: float


def judged(case: Case, own: Sequence[float], reference: Sequence[float], seconds: float) -> Row:
    """The row of a case, from the NMSE of all seeds."""
    return Row(
        case=case.name,
        **stated(case),
        shape=case.shape.name,
        width=case.shape.width,
        reference=case.reference.name,
        nmse=[float(f"{v:.4g}") for v in own],
        reference_nmse=[float(f"{v:.4g}") for v in reference],
        seconds=round(seconds, 1),
    )


class Stated(TypedDict):
    """What is said of a case, then and now."""

    said: str
    now: str
    exponent: float
    claim: str
    limit: str
    bound_from: int | None  # the length from which a proved bound would speak of such a target and one layer


def stated(case: Case) -> Stated:
    """What the calculus said of a case when it was drawn, and what it says today."""
    return Stated(
        said=case.said,
        now=case.now.verdict,
        exponent=round(case.now.exponent, 3),
        claim=str(case.now.claim("the task")),
        limit=case.now.limit.kind,
        bound_from=_bound_from(case),
    )


def _bound_from(case: Case) -> int | None:
    """The least length at which one of the lower bounds on one layer asks for more than eps^-1, its form granted."""
    if case.shape.depth > 1:
        return None
    (heads, head_dim), parts = case.shape.layers[0], case.task.structure.retrievals
    for length in range(1, LONGEST):
        pair = pair_exponent(length=length, heads=heads, head_dim=head_dim).value
        ranks = [
            kth_largest_exponent(length=length, rank=r.rank, heads=heads, head_dim=head_dim).value
            for r in parts
            if 1 < r.rank <= length
        ]
        exponents = [*([pair] if any(r.order == 2 for r in parts) else []), *ranks]
        if any(value > 1 for value in exponents):
            return length
    return None


def learnt(row: Row) -> bool:
    """Whether the reference learned its task, so that the shape can be judged beside it."""
    return min(row["reference_nmse"]) <= LEARNED


def _taken(row: Row, by: str) -> tuple[float, float]:
    take = min if by == "best" else median
    return take(row["nmse"]), take(row["reference_nmse"])


def confirmed(row: Row, by: str, when: When = "now") -> bool:
    """Whether training agrees with the claim, by best or by median of the seeds."""
    return solved(*_taken(row, by)) == (row[when] == Predicate.CHEAP.value)


def near(row: Row) -> bool:
    """Whether a row is to be trained again: not confirmed, or not far from the border on either side."""
    ratios = [own / other for own, other in (_taken(row, by) for by in ("best", "median"))]
    return learnt(row) and (
        any(NEAR[0] <= r <= NEAR[1] for r in ratios) or not all(confirmed(row, by) for by in ("best", "median"))
    )


def agreement(
    rows: Iterable[Row], by: str, said: str | None = None, least: float = 0.0, when: When = "now"
) -> tuple[int, int]:
    """Confirmed claims and all that could be judged, of one verdict or both, from an exponent on.

    >>> row = Row(case="a", said="costly", now="costly", exponent=4.0, claim="", limit="", bound_from=None, shape="",
    ...           width=8, reference="", nmse=[0.2, 0.3], reference_nmse=[0.001, 0.02], seconds=1.0)
    >>> agreement([row], "best"), agreement([row], "median"), agreement([row], "best", "cheap")
    ((1, 1), (1, 1), (0, 0))
    """
    judgeable = [r for r in rows if learnt(r) and said in (None, r[when]) and r["exponent"] >= least]
    return sum(confirmed(r, by, when) for r in judgeable), len(judgeable)


def table(rows: dict[str, Row]) -> str:
    """The count in a few lines."""
    own, lines = list(rows.values()), []
    for verdict in ("cheap", "costly", None):
        best, median_ = (agreement(own, by, verdict) for by in ("best", "median"))
        lines.append(f"{verdict or 'both':8} by best {best[0]} of {best[1]}, by median {median_[0]} of {median_[1]}")
    left = sum(not learnt(row) for row in own)
    return "\n".join([*lines, f"{left} of {len(own)} cases left out: their references did not learn"])
