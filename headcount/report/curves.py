"""NMSE against heads, every seed a dot, a curve per length; and below, where each curve levels off."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from headcount.drawing.axes import Frame, across, axis_name, decades, end_labels, log_axis, shade, ticks
from headcount.drawing.svg import Figure, Scale, dodged, path, tag, text
from headcount.fits import Cells, Knee

MOST_DOTS = 4000
ROW = 24  # pixels of a line of the lower panel


def curves(
    cells: Cells, pooled: Knee | None, by_length: Mapping[int, Knee], *, width: int = 760, label: str = "NMSE"
) -> Figure:
    """The figure of a study: its cells over heads, the knee of all lengths together, and of each by itself."""
    predicted = pooled.predicted if pooled else None
    top = Frame(54, width - 66, 34, 34 + min(320, round(0.62 * width)))
    rows = _forest_rows(pooled, by_length)
    low = Frame(top.left, top.right, top.bottom + 46, top.bottom + 46 + ROW * len(rows)) if rows else top
    of = math.log2 if cells.points[-1] > 12 * cells.points[0] else float
    x = across(top, cells.points, of, room=min(46.0, (top.right - top.left) / (len(cells.points) + 1)))
    body = _prediction(predicted, x, top, low) if predicted is not None else ""
    body += _panel(cells, top, x, label) + (_forest(rows, low, x) if rows else "")
    body += ticks(low, x, cells.points, "heads", predicted)
    return Figure(width, round(low.bottom) + 46, body, f"{label} against heads", _described(cells, pooled, label))


def _panel(cells: Cells, frame: Frame, x: Scale, label: str) -> str:
    flat = cells.logs.reshape(*cells.logs.shape[:2], -1)
    y, body = log_axis(frame, *decades([0.0, *flat[np.isfinite(flat)].tolist()]))
    levels, count = cells.levels(), len(cells.groups)
    gap = _spacing(x, cells.points)
    shift = [(i - (count - 1) / 2) * min(9.0, 0.5 * gap / count) for i in range(count)]
    most = max(3, MOST_DOTS // (count * len(cells.points)))
    ends = []
    for i in range(count):
        finite = [j for j in range(len(cells.points)) if np.isfinite(levels[i, j])]
        dots = [(x(cells.points[j]) + shift[i], y(v)) for j in finite for v in _thinned(flat[i, j], most)]
        line = [(x(cells.points[j]) + shift[i], y(levels[i, j])) for j in finite]
        body += _curve(line, dots, shade(i, count))
        ends.append(line[-1] if line else (frame.right, frame.bottom))
    places = dodged([end[1] for end in ends], 15.0, frame.top + 8, frame.bottom - 4)
    body += end_labels(places, ends, [str(g) for g in cells.groups], frame.right + 16)
    body += text("length", frame.right + 16, min(places) - 18, "soft small")
    return body + axis_name(frame, label)


def _thinned(values: np.ndarray, most: int) -> np.ndarray:
    """The finite values; of more than `most`, evenly spaced ones in the order of their size.

    >>> _thinned(np.array([3.0, 1.0, 2.0, np.nan]), 5).tolist(), _thinned(np.arange(100.0), 3).tolist()
    ([3.0, 1.0, 2.0], [0.0, 50.0, 99.0])
    """
    finite = values[np.isfinite(values)]
    if len(finite) <= most:
        return finite
    return np.sort(finite)[np.linspace(0, len(finite) - 1, most).round().astype(int)]


def _curve(line: list[tuple[float, float]], dots: list[tuple[float, float]], tone: int) -> str:
    seeds = "".join(tag("circle", cx=px, cy=py, r=2.0, class_=f"seed f{tone}") for px, py in dots)
    levels = "".join(tag("circle", cx=px, cy=py, r=4.0, class_=f"level f{tone}") for px, py in line)
    return path(line, f"line s{tone}") + seeds + levels if line else ""


def _forest_rows(pooled: Knee | None, by_length: Mapping[int, Knee]) -> list[tuple[str, Knee]]:
    rows = [(str(length), knee) for length, knee in by_length.items()]
    return [*rows, ("all", pooled)] if pooled and len(rows) != 1 else rows


def _forest(rows: list[tuple[str, Knee]], frame: Frame, x: Scale) -> str:
    body = text("where the curve levels off, with its interval", frame.left, frame.top - 12, "soft small halo")
    for i, (name, knee) in enumerate(rows):
        y = frame.top + ROW * (i + 0.5)
        weight = "strong" if name == "all" else "soft"
        body += path([(frame.left, y), (frame.right, y)], "grid")
        body += text(name, frame.left - 8, y + 4, weight, "end") + _interval(knee, frame, x, y)
        body += text(knee.text.replace(">=", "≥").replace("<=", "≤"), frame.right + 16, y + 4, weight)
    return body


def _interval(knee: Knee, frame: Frame, x: Scale, y: float) -> str:
    low = max(knee.low, knee.tested[0])
    start = x(low) if knee.low >= knee.tested[0] else frame.left + 4
    end = frame.right - 4 if knee.high is None else x(knee.high)
    arrow = path([(end - 5, y - 5), (end, y), (end - 5, y + 5)], "open") if knee.high is None else ""
    dot = tag("circle", cx=x(knee.value), cy=y, r=5.0, class_="knee")
    return path([(start, y), (end, y)], "interval") + arrow + dot


def _prediction(predicted: int, x: Scale, top: Frame, low: Frame) -> str:
    place = x(predicted)
    if not top.left <= place <= top.right:
        return ""
    side = ("start", 6) if place < (top.left + top.right) / 2 else ("end", -6)
    line = path([(place, top.top - 22), (place, low.bottom)], "predicted")
    return line + text(f"predicted {predicted}", place + side[1], top.top - 14, "strong small", side[0])


def _spacing(x: Scale, points: tuple[int, ...]) -> float:
    places = [x(p) for p in points]
    return min((b - a for a, b in pairwise(places)), default=60.0)


def _described(cells: Cells, pooled: Knee | None, label: str) -> str:
    sizes = f"{len(cells.points)} head counts and {len(cells.groups)} lengths"
    sentence = pooled.sentence if pooled and label == "NMSE" else ""  # a claim about variance is one about NMSE
    return f"{label} on a logarithmic scale against heads, {sizes}. {sentence}".strip()
