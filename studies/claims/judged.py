"""What training says of a claim: the rule of the study, row by row and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import TypedDict

from headcount.results import Predicate
from studies.claims.cases import Case
from studies.infoflow.solved import solved

LEARNED = 1e-2  # a reference above this says nothing about a shape


class Row(TypedDict):
    """One case as it is kept: what was said, and the NMSE of every seed of the shape and of its reference."""

    case: str
    said: str
    exponent: float
    claim: str
    limit: str
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
        said=case.said.verdict,
        exponent=round(case.said.exponent, 3),
        claim=str(case.said.claim("the task")),
        limit=case.said.limit.kind,
        shape=case.shape.name,
        width=case.shape.width,
        reference=case.reference.name,
        nmse=[float(f"{v:.4g}") for v in own],
        reference_nmse=[float(f"{v:.4g}") for v in reference],
        seconds=round(seconds, 1),
    )


def learnt(row: Row) -> bool:
    """Whether the reference learned its task, so that the shape can be judged beside it."""
    return min(row["reference_nmse"]) <= LEARNED


def confirmed(row: Row, by: str) -> bool:
    """Whether training agrees with the claim, by best or by median of the seeds."""
    take = min if by == "best" else median
    done = solved(take(row["nmse"]), take(row["reference_nmse"]))
    return done == (row["said"] == Predicate.CHEAP.value)


def agreement(rows: Iterable[Row], by: str, said: str | None = None, least: float = 0.0) -> tuple[int, int]:
    """Confirmed claims and all that could be judged, of one verdict or both, from an exponent on.

    >>> row = Row(case="a", said="costly", exponent=4.0, claim="", limit="", shape="", width=8, reference="",
    ...           nmse=[0.2, 0.3], reference_nmse=[0.001, 0.02], seconds=1.0)
    >>> agreement([row], "best"), agreement([row], "median"), agreement([row], "best", "cheap")
    ((1, 1), (1, 1), (0, 0))
    """
    judgeable = [r for r in rows if learnt(r) and said in (None, r["said"]) and r["exponent"] >= least]
    return sum(confirmed(r, by) for r in judgeable), len(judgeable)


def table(rows: dict[str, Row]) -> str:
    """The count in a few lines."""
    own, lines = list(rows.values()), []
    for said in ("cheap", "costly", None):
        best, median_ = (agreement(own, by, said) for by in ("best", "median"))
        lines.append(f"{said or 'both':8} by best {best[0]} of {best[1]}, by median {median_[0]} of {median_[1]}")
    left = sum(not learnt(row) for row in own)
    return "\n".join([*lines, f"{left} of {len(own)} cases left out: their references did not learn"])
