"""`python -m studies.claims.page [FILE]`: keep a run's rows in docs/data and write docs/claims.md from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from headcount.files import atomic_write
from studies.claims.judged import LEARNED, NEAR, Row, agreement, confirmed, learnt, near
from studies.stored import written

DOCS = Path(__file__).parents[2] / "docs"
DATA, PAGE = DOCS / "data/claims_trained.json", DOCS / "claims.md"
STEEP = 2.0  # an exponent from which a costly claim is far from a cheap one
WAYS = ("best", "median")
FORMS = {"longer": "four times as long", "wider": "four times as long with four times the hidden units"}

HEAD = """# Claims of the calculus, trained

Written by `python -m studies.claims.page` from `docs/data/claims_trained.json`; measured {date} ({device}, {steps:,}
steps of {batch} samples, {seeds} seeds). Targets, shapes and the rule were fixed before training: `studies/claims`.

A claim of the calculus says cheap or costly of a random target of one to three look-ups and a random shape. Beside it
a generous reference of as many parameters is trained. A shape has solved its task within 5 times the reference's NMSE,
or below 3e-5, and not above 0.3. Of {drawn} claims drawn, {all} were trained; {left} of these say nothing, since the
reference stays above an NMSE of {learned:g}. Costly is said of how parameters grow with the accuracy; what is seen
here is an error at one size.

*As drawn*: the claims as they stood before anything was trained. *Today*: what the calculus says since these trainings
were looked at. {changed}

"""
CHANGED = """Three things were mended in it, each by a construction that
does not rest on the training: what stands at one place may be carried in parts by several heads (claim 45 was false:
two heads of dimension 2 carry a neighbour of 3 numbers); a neighbour that enters a score linearly is one number; where
look-ups need no more of a token than its own scores, the scores are gathered and not all its numbers (`<a, x_t> e_t`,
averaged by constant attention, is all T scores in T dimensions). The last lowers exponents and turns claims 68 and 124
from costly to cheap, where training says costly: what a read-out must do with the numbers before it is not counted, and
such claims now say so ("given a read-out that looks up among all numbers"). Found on the way, and not by training: a
head of dimension 1 cannot look aside (its score has rank 1, so that all tokens together find two), which had been
called cheap."""
FALSE = {
    45: "false, and mended: two of the three heads of layer 1 carry the neighbour's 3 numbers in 2 dimensions each"
}


def page(data: dict[str, Any]) -> str:
    """The counts, then every claim, then why some are not confirmed."""
    rows: list[Row] = sorted(data["rows"].values(), key=_number)
    out = sum(not learnt(row) for row in rows)
    about = {**data["about"], "drawn": 2 * data["about"]["each"], "all": len(rows), "left": out, "learned": LEARNED}
    moved = any(row["now"] != row["said"] for row in rows)
    changed = CHANGED if moved else "Nothing has changed in it."
    head = HEAD.format(**about, changed=changed)
    cells = ["| claim | exponent | NMSE, best (median) | reference | by best | by median |", "|---|" + "---:|" * 5]
    parts = [head + "\n".join([*_counts(rows), "", *cells, *(_line(row) for row in rows)])]
    parts += [_again(data)] if any(form in data for form in FORMS) else []
    return "\n\n".join([*parts, _causes(rows, data)]) + "\n"


def _number(row: Row) -> int:
    return int(row["case"].partition(":")[0])


def _counts(rows: list[Row]) -> Iterable[str]:
    yield "| claims | as drawn, by best | by median | today, by best | by median |"
    yield "|---|---:|---:|---:|---:|"
    steep = (f"costly from exponent {STEEP:g} on", "costly", STEEP)
    for name, verdict, least in (("cheap", "cheap", 0.0), ("costly", "costly", 0.0), steep, ("all", None, 0.0)):
        agreements = [agreement(rows, by, verdict, least, when) for when in ("said", "now") for by in WAYS]
        yield f"| {name} | {' | '.join(f'{right} of {number}' for right, number in agreements)} |"


def _verdict(row: Row) -> str:
    return row["said"] if row["now"] == row["said"] else f"{row['said']} as drawn, {row['now']} today"


def _line(row: Row) -> str:
    own, other = (f"{min(v):.2g} ({median(v):.2g})" for v in (row["nmse"], row["reference_nmse"]))
    agree = [("yes" if confirmed(row, by) else "no") if learnt(row) else "left out" for by in WAYS]
    return f"| {row['case']}: {_verdict(row)} | {row['exponent']:g} | {own} | {other} | {' | '.join(agree)} |"


# Why a claim is not confirmed ---------------------------------------------------------------------------------------


def unsettled(row: Row) -> bool:
    """Whether the claim, as drawn or as it is said today, is not confirmed by best and by median."""
    return learnt(row) and not all(confirmed(row, by, when) for by in WAYS for when in ("said", "now"))


def cause(row: Row, data: dict[str, Any]) -> str:
    """Why training does not agree with a claim: what was mended, what longer and wider training say, what is seen."""
    known = [FALSE[_number(row)]] if _number(row) in FALSE else []
    known += ["the calculus counts numbers that reach the read-out, not what it does with them"] * (
        row["now"] == "cheap" and row["limit"] == "aggregation"
    )
    return "; ".join([*known, *([] if _number(row) in FALSE else _seen_again(row, data) or _seen(row))])


def _ratio(row: Row, by: str) -> float:
    take = min if by == "best" else median
    return take(row["nmse"]) / take(row["reference_nmse"])


def _seen_again(row: Row, data: dict[str, Any]) -> list[str]:
    """What the other forms of training say, where they were run."""
    reasons = []
    for form, says in FORMS.items():
        other: Row | None = data.get(form, {}).get(row["case"])
        if other is None:
            continue
        both = all(confirmed(other, by) for by in WAYS)
        now, then = (" and ".join(f"{_ratio(r, by):.2g}" for by in WAYS) for r in (other, row))
        word = "confirmed" if both else "still not confirmed"
        reasons.append(f"{word} when trained {says}: {now} times the reference by best and median, {then} before")
        if both:
            reasons.append("training was too short" if form == "longer" else "a finite size")
            break
    return reasons


def _seen(row: Row) -> list[str]:
    """What the one form of training shows: seeds that have not settled, an exponent near 1, bounds that are silent."""
    apart = {"shape": median(row["nmse"]) / min(row["nmse"])}
    apart["reference"] = median(row["reference_nmse"]) / min(row["reference_nmse"])
    wider = max(apart, key=lambda name: apart[name])
    reasons = []
    if confirmed(row, "best") != confirmed(row, "median") and apart[wider] > 1.5:
        reasons.append(f"half of the {wider}'s seeds have not settled: the median is {apart[wider]:.2g} times the best")
    if row["now"] == "costly" and row["exponent"] <= STEEP:
        reasons.append(
            f"a finite size: at exponent {row['exponent']:g} the price has hardly parted from that of a cheap shape"
        )
    if row["bound_from"] and row["now"] == "costly":
        reasons.append(f"the proved bounds of one layer say nothing before length {row['bound_from']}")
    ratios = [_ratio(row, by) for by in WAYS]
    if row["now"] == "cheap" and not reasons and max(ratios) <= NEAR[1]:
        reasons.append(f"near the border: {ratios[0]:.2g} and {ratios[1]:.2g} times the reference, where 5 are allowed")
    if row["limit"] == "aggregation" and row["now"] == "cheap":
        return reasons
    return reasons or ["not known: neither seeds nor exponent tell"]


def _again(data: dict[str, Any]) -> str:
    lines = ["## Again", "", "Claims that were not confirmed, or whose error is 2.5 to 10 times the reference's."]
    lines += ["", "| trained | claims | by best | by median | the same claims before |", "|---|---:|---:|---:|---:|"]
    for form, says in FORMS.items():
        rows: list[Row] = list(data.get(form, {}).values())
        if not rows:
            continue
        best, middle = (agreement(rows, by) for by in WAYS)
        before = [agreement([data["rows"][row["case"]] for row in rows], by) for by in WAYS]
        was = " and ".join(f"{right} of {number}" for right, number in before)
        lines.append(f"| {says} | {len(rows)} | {best[0]} of {best[1]} | {middle[0]} of {middle[1]} | {was} |")
    return "\n".join(lines)


def _causes(rows: list[Row], data: dict[str, Any]) -> str:
    border = sum(near(row) for row in rows)
    lines = ["## Why some are not confirmed", "", f"{border} claims are near the border or beyond it."]
    again = len({name for form in FORMS for name in data.get(form, {})})
    lines[-1] += (
        f" {again} of them were trained again; of the others the causes are what seeds, exponents and bounds suggest."
    )
    lines += ["", "| claim | times the reference, by best and median | cause |", "|---|---:|---|"]
    for row in filter(unsettled, rows):
        ratios = " and ".join(f"{_ratio(row, by):.2g}" for by in WAYS)
        lines.append(f"| {row['case']}: {_verdict(row)} | {ratios} | {cause(row, data)} |")
    return "\n".join(lines)


def main(file: str | None = None) -> None:
    if file is not None:
        from studies.claims.cases import drawn_cases
        from studies.claims.judged import stated

        data, cases = json.loads(Path(file).read_text(encoding="utf-8")), {case.name: case for case in drawn_cases()}
        for form in ("rows", *FORMS):
            for name, row in data.get(form, {}).items():
                row.update(stated(cases[name]))
        written(DATA, data)
    with atomic_write(PAGE) as scratch:
        scratch.write_text(page(json.loads(DATA.read_text(encoding="utf-8"))), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main(*sys.argv[1:2])
