"""docs/laws.html: every law of the house with its claimed exponent, the measured one, a verdict and the command."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headcount.fits import knee
from headcount.fits.verdict import Estimate, Verdict, judge, judged
from headcount.papers.consistency.decays import NOISY, QUIET
from headcount.papers.head_count.error_law import fit_error_law
from headcount.papers.icl.bounds import icl_exponent
from headcount.papers.icl.experiments import ReaderRow
from headcount.papers.icl.measured_exponents import bayes_ratios, claims_table, contrast_words, shape_contrast
from headcount.papers.lr_law.paired_slope import paired_width_slope
from headcount.report import Passage, article
from headcount.results import Basis, Claim, Comparison, Evidence, Predicate, Study, read_study
from headcount.results.record import Record
from headcount.sources import SHORT

TEXT_DELTA = 0.25  # Figure 2b of the head-count paper
RATE_POWERS = {"parameters": -0.2219, "steps": -0.3509}  # Equation 6 of the learning-rate paper
# What the exponent of the best rate in the width should be, and between which numbers its whole interval must lie.
ARMS = {
    "plain": ("one rate for all", "below -0.4", -math.inf, -0.4),
    "factors": ("factors by width", "0 within 0.1", -0.1, 0.1),
}
WIDTH_STUDIES = {
    "widths": "LinearMax",
    "silent_widths": "LinearMax, read-out from 0",
    "one_maximum": "one maximum",
}
FITTED = (2, 4, 6, 8)
IN_CONTEXT = "In-context learning"
SEVERAL = {Predicate.FAILS.value: "do not hold here"}
COLUMNS = {
    "law": "law",
    "claimed": "claimed",
    "measured": "measured, interval",
    "verdict": "verdict",
    "reason": "because (it: the claimed one)",
}


@dataclass(frozen=True)
class LawRow:
    """One law: what is claimed, what was measured with its interval, and what the two say of each other."""

    room: str
    law: str
    claimed: str
    measured: str
    interval: str
    claim: Claim | None
    command: str

    @property
    def verdict(self) -> str:
        """The word of the claim; what was not measured has none."""
        return "not measured" if self.claim is None else self.claim.word

    @property
    def reason(self) -> str:
        """Why, and at which finite sizes."""
        if self.claim is None:
            return "-"
        sizes = self.claim.evidence.sizes if self.claim.evidence else ""
        return "; ".join(part for part in (self.claim.reason, sizes) if part)

    @property
    def measured_within(self) -> str:
        """What was measured, its interval on the next line."""
        return self.measured if self.interval == "-" else f"{self.measured}\n{self.interval}"


def laws(data: Path) -> list[LawRow]:
    """Every law that the committed data speak of; one whose data are missing stands as not measured."""
    sections = (_head_count, _text, _allocation, _learning_rate, _in_context, _consistency)
    return [row for section in sections for row in section(data)]


def page(data: Path) -> str:
    """The page as self-contained HTML."""
    rows = laws(data)
    measured = [row for row in rows if row.claim is not None]
    words = [row.verdict for row in measured]
    counts = {w: words.count(w) for w in dict.fromkeys(words)}
    tally = ", ".join(f"{n} {SEVERAL.get(word, word)}" for word, n in counts.items())
    lead = f"So: {len(measured)} laws measured: {tally}."
    sections = [
        _section(section, [row for row in rows if row.room == section], _optimal(data) if section == IN_CONTEXT else "")
        for section in dict.fromkeys(r.room for r in rows)
    ]
    sections += [*_contrast(data), *_rates(data)]
    return article(
        "Laws of the house",
        lead,
        sections,
        subject="every law: claimed, measured, verdict",
        command="make docs",
        date=_date(data),
    )


def _optimal(data: Path) -> str:
    """How near trained networks come to the best answer there is, where it is known."""
    path = data / "icl.json"
    if not path.is_file():
        return ""
    phrases = []
    for attention in ("linear", "softmax"):
        ratios = bayes_ratios(_kept(path), attention, 0)
        if ratios:
            phrases.append(f"{attention} attention {min(ratios.values()):.2f} to {max(ratios.values()):.2f}")
    if not phrases:
        return ""
    return (
        f"Of the linear teacher the best answer is known, the posterior mean. Median errors of trained networks at "
        f"{min(ratios)} to {max(ratios)} examples are so many times its error: {', '.join(phrases)}. Near 1 they are "
        "Bayes-optimal, and their exponent in the context is that of the best answer, 1 in the end."
    )


def _section(section: str, rows: list[LawRow], more: str = "") -> Passage:
    commands = dict.fromkeys(row.command for row in rows)
    shown = tuple(
        {"law": row.law, "claimed": row.claimed, "measured": row.measured_within}
        | {"verdict": row.verdict, "reason": row.reason}
        for row in rows
    )
    words = (WORDS[section], more) if more else (WORDS[section],)
    return Passage(section, words, rows=shown, columns=COLUMNS, code="\n".join(commands))


WORDS = {
    "Head count": "As many heads as retrievals: the knee of the error over head counts, against the number of maxima.",
    "Text error law": "Err = c T^b exp(a h / T^delta) through training errors of text retrieval at 2 to 8 heads. "
    "The interval is the range of the fit when one cell at a time is left out.",
    "Allocation": "The norm of the attention's Jacobian should fall like one over the length. Exponents are of a "
    "straight line through the logarithms; the interval is that of the line's slope, two standard errors.",
    "Learning rate": "The best rate as a power of parameters and steps: three widths, four horizons, eight rates, "
    "five seeds, targets with noise. The design was changed after a first look: without noise the best rate lies right "
    "below the one at which training breaks, and no law was fitted. Against width at one horizon: factors by width are "
    "to keep the best rate where it is, its exponent within 0.1 of 0 with the whole interval; one rate for all should "
    "fall below -0.4. These intervals are over seeds, which all widths and rates share; before, seeds were drawn anew "
    "at each rate, 0 had to lie in the interval and nothing was asked of one rate for all. On LinearMax factors do not "
    "hold the rate: from width 32 to 256 the error falls by more than half at the smallest rate and hardly at the "
    "largest that trains, so the optimum falls too. A read-out that starts at 0, and a task that the narrowest network "
    "learns about as well as the widest, were tried after that look, on other seeds: too few of them to tell. In the "
    "first of these, with sixteen seeds, the gain at a small rate halves with every doubling of the width, as a "
    "correction of one over width would.",
    "In-context learning": "Relative squared error against the noiseless answer, as a law with a floor in depth, width "
    "or context, each cell at the best of three rates; 95% bootstrap over seeds. The claim has no visible proof. A run "
    "that diverged counts as error 1, and where some did, or where an interval ends with the range of exponents that "
    "is searched, nothing is said to be false.",
    "Consistency": "Decay of the smoother's root mean square error over the number of tokens, 95% over 20 repetitions. "
    "The function is sin(2 sum x) on the unit cube, analytic; the space is flat (curvature 0). Of the paper its "
    "abstract was seen; it promises at least this decay of the empirical error, and these are errors at new points "
    "of one smoother whose bandwidth sets the rate (at d = 1 it alone gives t^(-1/3)): nothing here can be compared "
    "with the theorem.",
}


def _head_count(data: Path) -> Iterator[LawRow]:
    study = read_study(data / "head_count.json")
    count = knee(study)
    yield LawRow("Head count", "heads at the knee", str(count.predicted), count.text, count.interval, count.judged(),
                 "headcount sweep examples/head_count.toml --device cuda && headcount fit RUN")  # fmt: skip


def _text(data: Path) -> Iterator[LawRow]:
    record = _record(data, "head-count_text")
    if record is None:
        return
    every = {(h, t): 1 - float(np.mean(v)) for (h, t), v in record.measured.tables["Table 6"].items() if h in FITTED}
    cells = {key: error for key, error in every.items() if error > 0}
    law = fit_error_law(cells)
    rest = [fit_error_law({k: v for k, v in cells.items() if k != left}).delta for left in cells]
    low, high = min(*rest, law.delta), max(*rest, law.delta)
    evidence = Evidence(planned=len(every), entered=len(cells), interval=(low, high))
    claim = judged("delta", judge(TEXT_DELTA, low, high), evidence, Comparison("Figure 2b", "printed"))
    yield LawRow("Text error law", "delta: how heads lose to the length", f"{TEXT_DELTA}", f"{law.delta:.3f}",
                 _span(low, high), claim, record.command)  # fmt: skip


def _allocation(data: Path) -> Iterator[LawRow]:
    record = _record(data, "allocation_jacobian")
    if record is None:
        return
    cells = record.measured.tables["norm of the Jacobian"]
    for layer in dict.fromkeys(column for _, column in cells):
        sizes, norms = zip(*[(row, v[0]) for (row, column), v in cells.items() if column == layer], strict=True)
        (slope, _), spread = np.polyfit(np.log(sizes), np.log(norms), 1, cov=True)
        error = 2 * float(np.sqrt(spread[0, 0]))
        ends = slope - error, slope + error
        evidence = Evidence(
            planned=len(sizes), entered=len(sizes), interval=ends, sizes=f"at lengths {min(sizes)} to {max(sizes)}"
        )
        claim = judged("the slope", judge(-1.0, *ends), evidence, Comparison("1/length", "printed"))
        yield LawRow("Allocation", f"Jacobian against length, {layer}", "-1", f"{slope:.2f}",
                     _span(*ends), claim, record.command)  # fmt: skip


def _learning_rate(data: Path) -> Iterator[LawRow]:
    path = data / "lr_law.json"
    parts = json.loads(path.read_text()) if path.is_file() else {}
    command = "python -m studies.laws.lr_law"
    fitted = [(name, law, part) for name, part in parts.items() for law in part.get("laws", [])]
    for name, law, part in fitted:
        task, note = name.replace("_", " "), ", biased" if law["biased"] else ""
        runs, lost = law.get("runs", 0), law.get("diverged", 0)
        for size, claimed in RATE_POWERS.items():
            ends = law[f"{size}_low"], law[f"{size}_high"]
            evidence = Evidence(planned=runs, entered=runs, diverged=lost, interval=ends, level=0.95)
            beside = Comparison("Equation 6", "printed")
            claim = judged("the power", judge(claimed, *ends), evidence, beside)
            if law["biased"]:
                why = "the extrapolated road is biased, and is shown beside the trained one"
                claim = replace(claim, predicate=Predicate.NOT_COMPARABLE, reason=why)
            yield LawRow("Learning rate", f"rate against {size}, {task} ({law['road']}{note})", f"{claimed:.3f}",
                         f"{law[size]:.3f}", _span(*ends), claim, part.get("command", command))  # fmt: skip
    if not fitted:
        for size, claimed in RATE_POWERS.items():
            yield LawRow("Learning rate", f"rate against {size}", f"{claimed:.3f}", "-", "-", None, command)
    yield from _factors(parts)


def _factors(parts: dict[str, Any]) -> Iterator[LawRow]:
    """The best rate against width, with and without the factors that should hold it still, study by study."""
    for name, study in WIDTH_STUDIES.items():
        for arm, (kind, claimed, *ends) in ARMS.items():
            part = parts.get(name, {})
            if "slope" in (measured := part.get(arm, {})):
                rows: Any = tuple(dict(zip(measured["columns"], row, strict=True)) for row in measured["rows"])
                slope = paired_width_slope(Study(rows))
                yield LawRow("Learning rate", f"rate against width, {kind}, {study}", claimed, f"{slope.value:.3f}",
                             _span(slope.low, slope.high), _factor_claim(slope, Study(rows), *ends),
                             part["command"])  # fmt: skip


def _factor_claim(slope: Estimate, study: Study, least: float, most: float) -> Claim:
    """The verdict on a slope of a limit of large widths, at the widths that were trained."""
    widths = study.values("width")
    lost = sum(row.get("status") == "diverged" for row in study)
    evidence = Evidence(
        planned=len(study),
        entered=len(study),
        interval=(slope.low, slope.high),
        level=0.95,
        sizes=f"at widths {min(widths)} to {max(widths)}",
    )
    read = _within(slope, least, most)
    claim = judged("the slope", read, evidence, Comparison("the limit of large widths", "printed"))
    # Rates beyond the best are tried in order to break: what diverges there is the right end of the range.
    broke = f"; {lost} of {len(study)} runs broke, at rates too large" if lost else ""
    return replace(claim, reason=claim.reason + broke)


def _within(slope: Estimate, least: float, most: float) -> Verdict:
    """Whether the whole interval lies between the two, none of it does, or neither is sure."""
    span, ends = f"the interval [{slope.low:.3g}, {slope.high:.3g}]", f"{least:g} to {most:g}"
    if least <= slope.low and slope.high <= most:
        return Verdict("consistent", most, f"{span} lies within {ends}")
    if slope.high < least or slope.low > most:
        return Verdict("refuted", most, f"{span} lies outside {ends}")
    return Verdict("unresolved", most, f"{span} lies partly within {ends}")


def _in_context(data: Path) -> Iterator[LawRow]:
    path, command = data / "icl.json", "python -m studies.icl --device cuda"
    if not path.is_file():
        for levels in (0, 1, 2):
            claimed = f"{icl_exponent(levels).value:.3f}"
            yield LawRow("In-context learning", f"level {levels}", claimed, "-", "-", None, command)
        return
    for line in claims_table(_kept(path)):
        law = f"level {line['levels']} in {line['axis']}, {line['attention']} attention"
        yield LawRow("In-context learning", law, f"{line['claimed']:.3f}", f"{line['exponent']:.3g}",
                     _span(line["low"], line["high"]), line["claim"], command)  # fmt: skip


def _kept(path: Path) -> list[ReaderRow]:
    return json.loads(path.read_text())["rows"]


def _consistency(data: Path) -> Iterator[LawRow]:
    record = _record(data, "consistency_smoother")
    if record is None:
        return
    cells = record.measured.tables["decay exponents"]
    for case in (*NOISY, *QUIET):
        value, low, high, claimed = (cells[case.name, c][0] for c in ("decay", "low", "high", "claimed"))
        evidence = Evidence(
            interval=(low, high), level=0.95, sizes=f"at lengths {case.lengths[0]} to {case.lengths[-1]}"
        )
        basis, beside = Basis("measured"), Comparison("the abstract", "printed", statement="ours")
        side = "below" if high < claimed else "not below"
        why = f"{side} it, but the abstract speaks of errors at the tokens given and this is one at new points"
        claim = Claim(case.name, Predicate.NOT_COMPARABLE, None, basis, None, (), beside, evidence, why)
        yield LawRow("Consistency", case.name, f"{claimed:.3f}", f"{value:.3f}", _span(low, high), claim,
                     record.command)  # fmt: skip


def _contrast(data: Path) -> list[Passage]:
    path = data / "icl.json"
    rows = shape_contrast(json.loads(path.read_text())["rows"]) if path.is_file() else []
    if not rows:
        return []
    columns = {"covariance": "covariance", "examples": "context", "depth": "best depth", "width": "its width"}
    columns |= {"flat": "error of one layer", "best": "error of the best", "gain": "gain of depth"}
    words = "At about 49 thousand parameters: the best of four shapes, medians over five seeds, linear attention. "
    words += (
        f"The neighbour of {SHORT['mehta2025icl']} says that a longer context makes up for depth, except where "
        "covariances rotate. "
    )
    return [Passage("Depth or width in context", (words + contrast_words(rows),), rows=tuple(rows), columns=columns)]


RATES = {  # columns of the table, as studies.laws.lr_law names them
    "one rate": "one rate for all",
    "best of seven": "best of seven by cell",
    "searched": "chosen by one seed",
    "short search": "chosen in a quarter of the steps",
}


def _rates(data: Path) -> list[Passage]:
    """Tables 2 to 4 of the head-count paper by how the rate was chosen: is a knee a bad learning rate?"""
    path = data / "lr_law.json"
    stored = json.loads(path.read_text()).get("tables") if path.is_file() else None
    if stored is None:
        return []
    tables = {name: table for name, table in stored.items() if name.startswith("table-")}
    rows = [
        {"table": f"Table {name[-1]}", "proved": str(table["retrievals"])}
        | {label: _enough(table["knees"][label]) for label in RATES}
        for name, table in tables.items()
    ]
    first = next(iter(tables.values()))
    cost = f"{first['search']['cost']:.1f} and {first['short search']['cost']:.1f} times"
    words = (
        "Heads that are enough, with the 95% interval, when the learning rate is the house's one, the best of seven "
        "for every head count and length, the one that a single seed chooses among the seven, or what that seed "
        "chooses in a quarter of the steps; three seeds, lengths 8 and 32. Searching adds "
        f"{cost} the steps of the study at one rate, the best of seven {first['cost_of_best_of_seven'] - 1} times. "
        "No knee moves where rates are chosen by the whole training. The short search finds rates at which the whole "
        "training breaks, and loses the knee: a sweep that chooses the rate itself takes all steps since then."
    )
    columns = {"table": "table", "proved": "proved", **RATES}
    return [Passage("A knee is not a bad learning rate", (words,), rows=tuple(rows), columns=columns)]


def _enough(heads: dict[str, Any]) -> str:
    return f"{heads['text']} [{heads['low']}, " + ("...)" if heads["high"] is None else f"{heads['high']}]")


def _record(data: Path, name: str) -> Record | None:
    path = data / "reproduction" / f"{name}.json"
    return Record.read(path) if path.is_file() else None


def _date(data: Path) -> str:
    """The latest date of the data shown."""
    names = ("head-count_text", "allocation_jacobian", "consistency_smoother")
    dates = [record.date for name in names if (record := _record(data, name))]
    more: list[dict[str, Any]] = []
    for name in ("icl.json", "lr_law.json"):
        if (data / name).is_file():
            stored = json.loads((data / name).read_text())
            more += [stored] if "date" in stored else list(stored.values())
    return max(dates + [part["date"] for part in more if "date" in part])


def _span(low: float, high: float) -> str:
    return f"[{low:.3g}, {high:.3g}]"
