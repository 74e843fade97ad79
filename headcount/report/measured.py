"""The page of a measurement on given data: the advice, the curve, what a head is worth, memory, and every row."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from headcount.drawing.svg import Figure
from headcount.fits import Measurement
from headcount.fits.knee import RESAMPLES, SLOWER
from headcount.numerals import counted, listed
from headcount.report.curves import curves
from headcount.report.learning import learning, worths
from headcount.report.page import NARROW, WIDE, environment_of, words_of
from headcount.report.rendering import both, render
from headcount.report.rows import table

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["measured", "write_measured"]


def measured(found: Measurement, *, command: str = "") -> str:
    """The page as HTML that needs no other file, no network and no script."""
    study, spec = found.study, found.study.spec
    data, plan = spec.get("data", {}), spec.get("plan", {})
    return render(
        "measured.html",
        found=found,
        study=study,
        headline=found.answer.headline,
        lead=_lead(found),
        facts=_facts(found),
        figures=_figures(found),
        lines=found.by_heads(),
        baselines=found.baselines,
        level=found.words,
        classes="classes" in data.get("target", ""),
        ragged=" to " in data.get("tokens", ""),
        data=data,
        plan=plan,
        layers="one attention layer" if plan.get("layers", 1) == 1 else f"{plan['layers']} attention layers",
        given_up=spec.get("given_up", ""),
        confidence=f"{found.confidence:.0%}",
        slower=Fraction(SLOWER).limit_denominator(100),
        resamples=RESAMPLES,
        table=table(study),
        spec=words_of(spec),
        environment=environment_of(study),
        command=command or f"headcount measure {data.get('name', 'DATA')}",
    )


def write_measured(found: Measurement, *, command: str = "") -> dict[str, str]:
    """The files of a measurement by name: the page, its main figure, and the study they were drawn from."""
    return {
        "report.html": measured(found, command=command),
        "curves.svg": _main(found, WIDE[0]).standalone(),
        "study.json": found.study.to_json(),
    }


def _main(found: Measurement, width: int) -> Figure:
    return curves(found.cells, found.knee, {max(found.knee.lengths): found.knee}, width=width, label=found.words)


def _figures(found: Measurement) -> dict[str, Markup]:
    draw = {"curves": (_main, 0), "worth": (_worths, 1), "learning": (_learning, 1)}
    return {
        name: both(name, *(make(found, sizes[at]) for sizes in (WIDE, NARROW))) for name, (make, at) in draw.items()
    }


def _worths(found: Measurement, width: int) -> Figure:
    return worths(found, width=width)


def _learning(found: Measurement, width: int) -> Figure:
    return learning(found, width=width)


def _lead(found: Measurement) -> str:
    """Where the curve levels off, with its interval, or why that cannot be said."""
    few, many = found.knee.seeds
    seeds = counted(many, "seed") if few == many else f"{few} to {many} seeds"
    sentence = found.sentence
    return f"{sentence[:1].upper()}{sentence[1:]}, with {seeds} for each head count."


def _facts(found: Measurement) -> list[tuple[str, str]]:
    data, plan = found.study.spec.get("data", {}), found.study.spec.get("plan", {})
    best = min(found.levels.values())
    facts: list[tuple[str, Any]] = [
        ("sequences", data.get("sequences", "–").removesuffix(" sequences")),
        ("each of", data.get("tokens", "–")),
        ("target", data.get("target", "–")),
        ("heads tested", listed(found.cells.points)),
        ("seeds", str(max(found.knee.seeds))),
        ("steps", str(plan.get("steps", "–"))),
        (f"best {found.words}", f"{best:.3g}"),
    ]
    return [(name, str(value)) for name, value in facts]
