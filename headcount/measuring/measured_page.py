"""The page of a measurement: the answer, errors against heads beside what needs none, every contestant, every row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from headcount.drawing.axes import Frame, across, axis_name, decades, end_labels, log_axis, shade, ticks
from headcount.drawing.svg import Figure, Scale, dodged, path, tag, text
from headcount.measuring.measurement import Measurement
from headcount.numerals import counted
from headcount.report.page import NARROW, WIDE, environment_of, words_of
from headcount.report.rendering import both, render
from headcount.report.rows import table

if TYPE_CHECKING:
    from markupsafe import Markup

DRAWN = 4  # contestants without attention that are drawn, the best ones


def measured(found: Measurement, *, command: str = "") -> str:
    """The page as HTML that needs no other file, no network and no script."""
    study, spec = found.study, found.study.spec
    data, plan = spec.get("data", {}), spec.get("plan", {})
    return render(
        "measured.html",
        "headcount.measuring",
        date=spec.get("date", ""),
        found=found,
        study=study,
        headline=found.answer.headline,
        again=again_words(found),
        facts=_facts(found),
        figures=_figures(found),
        lines=found.by_contestant(),
        level=found.words,
        classes="classes" in data.get("target", ""),
        letters="letters" in data.get("tokens", ""),
        ragged=" to " in data.get("tokens", ""),
        data=data,
        plan=plan,
        steps=spec.get("steps", 0),
        table=table(study),
        spec=words_of(spec),
        environment=environment_of(study),
        command=command or f"headcount measure {data.get('name', 'DATA')}",
    )


def write_measured(found: Measurement, *, command: str = "") -> dict[str, str]:
    """The files of a measurement by name: the page, its main figure, and the study they were drawn from."""
    return {
        "report.html": measured(found, command=command),
        "curves.svg": heads_figure(found, WIDE[0]).standalone(),
        "study.json": found.study.to_json(),
    }


def again_words(found: Measurement) -> str:
    """What is missing, with the arguments that would bring it."""
    missing, arguments = found.answer.missing, dict(found.answer.ask or {})
    budget = found.study.spec.get("budget")
    if not missing:
        return ""
    if arguments and budget is not None and missing != "heads":
        return f"four times the time, {4 * budget:g} s"
    if not arguments:
        return f"more {missing}"
    return ", ".join(f"{name} = {value}" for name, value in arguments.items())


def _figures(measurement: Measurement) -> dict[str, Markup]:
    return {"curves": both("curves", *(heads_figure(measurement, sizes[0]) for sizes in (WIDE, NARROW)))}


def heads_figure(found: Measurement, width: int) -> Figure:
    """Errors on outer parts against heads, a curve for each depth, and lines for what needs no attention."""
    grid = found.grid()
    heads = sorted({h for row in grid.values() for h in row}) or [1]
    without = sorted((one for one in found.scores if not one.attends), key=lambda one: one.mean(one.outer))[:DRAWN]
    frame = Frame(54, width - 132, 34, 34 + min(320, round(0.62 * width)))
    errors = [v for one in found.scores if one.standard or one in without for v in one.outer.values()]
    y, body = log_axis(frame, *decades([0.0, *(_log(v) for v in errors)]))
    x = across(frame, heads, float, room=26.0)
    ends, words = [], []
    for one in without:
        level = y(_log(one.mean(one.outer)))
        body += path([(frame.left, level), (frame.right, level)], "axis dots")
        ends.append((frame.right, level))
        words.append(one.name)
    for i, (depth, row) in enumerate(grid.items()):
        body += _curve(found, depth, row, x, y, shade(i, len(grid)))
        last = max(row)
        ends.append((x(last), y(_log(row[last]))))
        words.append(counted(depth, "layer"))
    places = dodged([end[1] for end in ends], 15.0, frame.top + 8, frame.bottom - 4)
    body += end_labels(places, ends, words, frame.right + 14) + axis_name(frame, found.words)
    body += ticks(frame, x, heads, "heads", found.answer.heads)
    description = f"{found.words} on outer parts on a logarithmic scale against heads, beside {', '.join(words)}."
    if not grid:
        body += text("no network yet", frame.left + 8, frame.top + 16, "soft")
    return Figure(width, round(frame.bottom) + 46, body, f"{found.words} against heads", description)


def _curve(measurement: Measurement, depth: int, row: dict[int, float], x: Scale, y: Scale, tone: int) -> str:
    scores = [one for one in measurement.scores if one.standard and one.depth == depth]
    dots = [(x(one.heads), y(_log(v))) for one in scores for v in one.outer.values()]
    line = [(x(h), y(_log(v))) for h, v in row.items()]
    drawn = path(line, f"line s{tone}")
    drawn += "".join(tag("circle", cx=px, cy=py, r=2.0, class_=f"f{tone}") for px, py in dots)
    return drawn + "".join(tag("circle", cx=px, cy=py, r=4.0, class_=f"level f{tone}") for px, py in line)


def _log(error: float) -> float:
    return math.log10(min(max(error, 1e-12), 10.0))


def _facts(measurement: Measurement) -> list[tuple[str, str]]:
    data, spec = measurement.study.spec.get("data", {}), measurement.study.spec
    levels = measurement.levels
    facts: list[tuple[str, Any]] = [
        ("sequences", data.get("sequences", "–").removesuffix(" sequences")),
        ("each of", data.get("tokens", "–")),
        ("target", data.get("target", "–")),
        ("splits", max((len(one.outer) for one in measurement.scores), default=0)),
        ("steps", spec.get("steps", "–")),
        (f"best {measurement.words}", f"{min(levels.values()):.3g}" if levels else "–"),
    ]
    return [(name, str(value)) for name, value in facts]
