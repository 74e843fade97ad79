"""One self-contained page of a study: the verdict, the figures, every row, the spec and the environment."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from headcount.drawing.svg import Figure, inches
from headcount.fits import Cells, Knee, knee, knees, predicted_heads, variants
from headcount.fits.knee import RESAMPLES, SLOWER
from headcount.numerals import counted, listed, percent, spelt
from headcount.report.curves import curves
from headcount.report.head_pictures import hit_matrix
from headcount.report.heat_map import heat_map
from headcount.report.lengths import against_length
from headcount.report.rendering import both, render
from headcount.report.rows import table
from headcount.results import Study
from headcount.results.attention_record import AttentionRecord

if TYPE_CHECKING:
    from markupsafe import Markup

WIDE, NARROW = (760, 500), (372, 372)  # pixels: the main figure, and each of the two below it
SIZES = WIDE, NARROW
LETTERS = 117  # pixels drawn per inch of paper: letters of 12 and 11 pixels are then 7.4 and 6.8 points


@dataclass(frozen=True)
class Section:
    """What the page shows of one design: its knees, or why there is none, and its figures."""

    label: str
    study: Study
    pooled: Knee | None
    by_length: dict[int, Knee]
    problem: str
    drawn: Figure
    figures: dict[str, Markup]


def report(
    study: Study,
    *,
    predicted: int | None = None,
    command: str = "",
    confidence: float = 0.95,
    attention: AttentionRecord | None = None,
    because: str = "",
) -> str:
    """The page of a study as HTML that needs no other file, no network and no script.

    `predicted` defaults to what the study's task says of itself; `command` is printed as the way to the same rows.
    `attention` is that of a network of the study, to be shown with it; `because` says why so many heads are predicted,
    where they are the task's own.
    """
    files = write(
        study, predicted=predicted, command=command, confidence=confidence, attention=attention, because=because
    )
    return files["report.html"]


def _method(study: Study, predicted: int | None, confidence: float) -> dict[str, Any]:
    """What the page says about how the knee is found."""
    return {
        "confidence": percent(confidence),
        "slower": Fraction(SLOWER).limit_denominator(100),
        "resamples": RESAMPLES,
        "diverged": sum(row.get("status") == "diverged" for row in study),
        "own": predicted is not None and predicted == predicted_heads(study),
    }


def write(
    study: Study,
    *,
    predicted: int | None = None,
    command: str = "",
    confidence: float = 0.95,
    attention: AttentionRecord | None = None,
    because: str = "",
) -> dict[str, str]:
    """The files of a report by name: the page, and its main figure for each design of the study."""
    predicted = predicted_heads(study) if predicted is None else predicted
    parts, level = variants(study).items(), _level(study)
    sections = [_section(f"v{i}", label, part, predicted, confidence) for i, (label, part) in enumerate(parts)]
    files = {
        "report.html": render(
            "page.html",
            study=study,
            sections=sections,
            lead=partial(lead, level=level),
            level=level,
            headline=_headline(sections),
            attention=attention,
            matrix=None
            if attention is None
            else both("attention", *(hit_matrix(attention, width=w[1]) for w in SIZES)),
            facts=_facts(study, predicted),
            predicted=predicted,
            table=table(study),
            toml=study.spec.get("toml", ""),
            spec=words_of({key: value for key, value in study.spec.items() if key != "toml"}),
            environment=environment_of(study),
            command=command or _command(study),
            because=because,
            **_method(study, predicted, confidence),
        )
    }
    for i, part in enumerate(sections):
        files["curves.svg" if i == 0 else f"curves-{i + 1}.svg"] = part.drawn.standalone()
    return files


def figure(study: Study, *, predicted: int | None = None, width: int = WIDE[0]) -> Figure:
    """The main figure by itself, for a file: `figure(study).standalone()`."""
    pooled, by_length, _ = _knees(study, predicted, 0.95)
    return curves(Cells.of(study, "heads"), pooled, by_length, width=width, label=_level(study))


def paper_figure(study: Study, width: str = "6.5in", *, predicted: int | None = None) -> str:
    """The main figure as plain SVG for a paper, drawn for its `width` so that letters do not shrink with it."""
    pixels = round(min(WIDE[0], max(NARROW[0], LETTERS * inches(width))))
    return figure(study, predicted=predicted, width=pixels).printed(width)


def _section(name: str, label: str, study: Study, predicted: int | None, confidence: float) -> Section:
    pooled, by_length, problem = _knees(study, predicted, confidence)
    cells, level = Cells.of(study, "heads"), _level(study)
    drawn = {"curves": [curves(cells, pooled, by_length, width=w[0], label=level) for w in (WIDE, NARROW)]}
    drawn["heat"] = [heat_map(cells, predicted, width=w[1], label=level) for w in (WIDE, NARROW)]
    if len(cells.groups) > 1:
        drawn["lengths"] = [against_length(cells, width=w[1], label=level) for w in (WIDE, NARROW)]
    figures = {key: both(f"{name}-{key}", *pair) for key, pair in drawn.items()}
    return Section(label, study, pooled, by_length, problem, drawn["curves"][0], figures)


def _knees(study: Study, predicted: int | None, confidence: float) -> tuple[Knee | None, dict[int, Knee], str]:
    by_length = knees(study, predicted=predicted, confidence=confidence)
    try:
        return knee(study, predicted=predicted, confidence=confidence), by_length, ""
    except ValueError as problem:  # too few head counts, as in a sweep that has only begun
        return None, by_length, str(problem)


def _headline(sections: list[Section]) -> str:
    if len(sections) > 1:
        if all(section.pooled is None or section.pooled.verdict is None for section in sections):
            return f"{spelt(len(sections)).capitalize()} designs, side by side"
        met = sum(_is(section, "consistent") for section in sections)
        return f"{met} of {len(sections)} designs agree with the prediction"
    pooled = sections[0].pooled
    return "No knee to report yet" if pooled is None else pooled.claim().headline


def _is(section: Section, outcome: str) -> bool:
    verdict = section.pooled.verdict if section.pooled else None
    return verdict is not None and verdict.outcome == outcome


def _facts(study: Study, predicted: int | None) -> list[tuple[str, str]]:
    requested = study.spec.get("asked", len(study))
    diverged = sum(row.get("status") == "diverged" for row in study)
    rows = f"{len(study)}" if requested <= len(study) else f"{len(study)} of {requested}"
    return [
        ("predicted heads", "none" if predicted is None else str(predicted)),
        ("heads tested", listed(study.values("heads"))),
        ("lengths", listed(study.values("length"))),
        ("seeds", str(len({(row.get("data_seed", 0), row.get("seed", 0)) for row in study}))),
        ("networks trained", rows),
        ("diverged", str(diverged)),
    ]


def _command(study: Study) -> str:
    """How to have the same rows again: by the spec where there is one."""
    name = "-".join(study.name.split()) or "study"
    if not study.spec.get("toml"):
        return f"headcount report runs/{name}"
    return f"headcount sweep {name}.toml --store runs/{name}   # the spec above\nheadcount report runs/{name}"


def _level(study: Study) -> str:
    """What the rows' level is: NMSE, unless the spec names another."""
    return str(study.spec.get("level", "NMSE"))


def lead(found: Knee, level: str = "NMSE") -> str:
    """Where the knee is, over what, with its interval."""
    few, many = found.seeds
    seeds = f"{counted(many, 'seed')} each" if few == many else f"{few} to {many} seeds each"
    lengths = f"{len(found.lengths)} lengths" if len(found.lengths) > 1 else f"length {max(found.lengths)}"
    over = f"Over {lengths}, {seeds}," if len(found.lengths) > 1 else f"At {lengths}, {seeds},"
    if not found.learned:
        low = "explains half of the variance" if level == "NMSE" else f"brings the {level} below one half"
        return f"{over} no head count up to {found.tested[-1]} {low}."
    interval = f"{percent(found.confidence)} interval {found.interval}"
    if not found.reached:
        return f"{over} the error still falls at {counted(found.value, 'head')}, the most tested; {interval}."
    return f"{over} the error levels off at {counted(found.value, 'head')}; {interval}."


def words_of(value: Any) -> str:
    """A value as text, nested ones as JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, default=str, ensure_ascii=False)


def environment_of(study: Study) -> list[tuple[str, str]]:
    """Where the rows were made, in words."""
    return [(key, words_of(value)) for key, value in study.environment.items()]
