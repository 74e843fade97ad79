"""`python -m studies.claims.page [FILE]`: keep a run's rows in docs/data and write docs/claims.md from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from headcount.files import whole
from studies.claims.judged import LEARNED, Row, agreement, confirmed, learnt

DOCS = Path(__file__).parents[2] / "docs"
DATA, PAGE = DOCS / "data/claims_trained.json", DOCS / "claims.md"
STEEP = 2.0  # an exponent from which a costly claim is far from a cheap one

HEAD = """# Claims of the calculus, trained

Written by `python -m studies.claims.page` from `docs/data/claims_trained.json`; measured {date} ({device}, {steps:,}
steps of {batch} samples, {seeds} seeds). Targets, shapes and the rule were fixed before training: `studies/claims`.

A claim of the calculus says cheap or costly of a random target of one to three look-ups and a random shape. Beside it
a generous reference of as many parameters is trained. A shape has solved its task within 5 times the reference's NMSE,
or below 3e-5, and not above 0.3. Of {drawn} claims drawn, {all} were trained, in order of drawing as far as the time
went; {left} of these say nothing, since the reference stays above an NMSE of {learned:g}. Costly is said of how
parameters grow with the accuracy; what is seen here is an error at one size.

"""


def page(data: dict[str, Any]) -> str:
    """The counts, then every claim."""
    rows: list[Row] = sorted(data["rows"].values(), key=lambda row: int(row["case"].partition(":")[0]))
    out = sum(not learnt(row) for row in rows)
    head = HEAD.format(**data["about"], drawn=2 * data["about"]["each"], all=len(rows), left=out, learned=LEARNED)
    counts = ["| claims | by best | by median |", "|---|---:|---:|", *_counts(rows)]
    cells = ["| claim | exponent | NMSE, best (median) | reference | by best | by median |", "|---|" + "---:|" * 5]
    return head + "\n".join([*counts, "", *cells, *map(_line, rows)]) + "\n"


def _counts(rows: list[Row]) -> Iterable[str]:
    kinds = (
        ("cheap", "cheap", 0.0),
        ("costly", "costly", 0.0),
        (f"costly from exponent {STEEP:g} on", "costly", STEEP),
    )
    for name, said, least in (*kinds, ("all", None, 0.0)):
        best, middle = (agreement(rows, by, said, least) for by in ("best", "median"))
        yield f"| {name} | {best[0]} of {best[1]} | {middle[0]} of {middle[1]} |"


def _line(row: Row) -> str:
    own, other = (f"{min(v):.2g} ({median(v):.2g})" for v in (row["nmse"], row["reference_nmse"]))
    agree = [("yes" if confirmed(row, by) else "no") if learnt(row) else "left out" for by in ("best", "median")]
    return f"| {row['case']}: {row['said']} | {row['exponent']:g} | {own} | {other} | {' | '.join(agree)} |"


def main(file: str | None = None) -> None:
    if file is not None:
        with whole(DATA) as scratch:
            scratch.write_text(Path(file).read_text(encoding="utf-8"), encoding="utf-8")
    with whole(PAGE) as scratch:
        scratch.write_text(page(json.loads(DATA.read_text(encoding="utf-8"))), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main(*sys.argv[1:2])
