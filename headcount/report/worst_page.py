"""The page of a worst error: what was drawn, attacked, met and proved; the worst input; the way to it."""

from __future__ import annotations

from collections.abc import Callable

from headcount.drawing.panels import figure_of, frames, log_panel, plain_panel
from headcount.drawing.svg import Figure
from headcount.report.article import Exhibit, Passage, article
from headcount.results.worst_record import WorstRecord


def worst_page(record: WorstRecord, *, command: str = "", date: str = "") -> str:
    """One network, as a page."""
    sentence = f"{record.sentence[:1].upper()}{record.sentence[1:]}."
    facts = {
        "task": record.task,
        "layers": record.layers,
        "length": record.length,
        "domain": f"[{record.low:g}, {record.high:g}]",
        "boxes": record.boxes,
        "seconds": round(record.seconds, 2),
    }
    sections = [
        Passage("Four looks at one error", rows=tuple(record.rows), note=_note(record)),
        Passage(
            "The worst input", exhibits=(_shown(_tokens, record, "Tokens of the input where the error is largest."),)
        ),
    ]
    if record.along:
        caption = "|Error| on the straight line from an input that was drawn (0) to the worst one (1)."
        sections.append(Passage("The way to it", exhibits=(_shown(_way, record, caption),)))
    headline = f"Never wrong by more than {record.upper:.3g}"
    return article(headline, sentence, sections, subject="worst error", facts=facts, command=command, date=date)


def _note(record: WorstRecord) -> str:
    state = "Every box is closed" if not record.open else f"{record.open:,} boxes were left open, and are bounded too"
    return f"{state}: at most {record.ratio:g} times what was met was asked for. By {record.road}; {record.arithmetic}."


def _shown(draw: Callable[[WorstRecord, int], Figure], record: WorstRecord, caption: str) -> Exhibit:
    return Exhibit(draw(record, 620), caption, draw(record, 372))


def _tokens(record: WorstRecord, width: int) -> Figure:
    """Every coordinate of every token of the worst input."""
    (frame,) = frames(1, width=width, height=220)
    places = range(1, len(record.where) + 1)
    panel = plain_panel(frame, [0.5, len(record.where) + 0.5], [record.low, record.high])
    coordinates = list(zip(*record.where, strict=True))
    parts = [panel.axes, panel.below([(t, str(t)) for t in _few(list(places))], "token")]
    parts += [panel.marks(zip(places, row, strict=True), i % 4) for i, row in enumerate(coordinates)]
    return figure_of(parts, width=width, height=220, title="The worst input", words="Coordinates of every token.")


def _way(record: WorstRecord, width: int) -> Figure:
    """|Error| along the line."""
    (frame,) = frames(1, width=width, height=240)
    points = [(fraction, max(error, 1e-9)) for fraction, error in record.along]
    panel = log_panel(frame, [0.0, 1.0], [y for _, y in points] + [record.upper])
    ticks = [(v, f"{v:g}") for v in (0.0, 0.25, 0.5, 0.75, 1.0)]
    parts = [
        panel.axes,
        panel.below(ticks, "share of the way"),
        panel.line(points, "line ks0"),
        panel.level(record.upper, "line ks1"),
    ]
    words = f"The error rises to {record.lower:.3g}; the line above is the bound, {record.upper:.3g}."
    return figure_of(parts, width=width, height=240, title="The way to the worst input", words=words)


def _few(places: list[int], most: int = 16) -> list[int]:
    every = max(1, -(-len(places) // most))
    return places[::every]
