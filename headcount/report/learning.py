"""Two small figures of a measurement: training beside validation, and what another number of heads is worth."""

from __future__ import annotations

import math

from headcount.drawing.axes import Frame, across, axis_name, decades, end_labels, log_axis, shade, ticks
from headcount.drawing.svg import Figure, Scale, dodged, path, tag, text
from headcount.fits import Measurement
from headcount.fits.measurement import Worth

__all__ = ["learning", "worths"]

ROW = 30
NICE = (0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 5, 10, 20, 50, 100, 1000, 10_000)


def learning(found: Measurement, *, width: int = 500) -> Figure:
    """The level of training and of validation against heads."""
    frame = Frame(54, width - 84, 34, 34 + min(260, round(0.62 * width)))
    lines = found.by_heads()
    shown = {"training": [row["training"] for row in lines], "validation": [row["level"] for row in lines]}
    logs = {name: [math.log10(min(max(v, 1e-12), 1.0)) for v in values] for name, values in shown.items()}
    y, body = log_axis(frame, *decades([v for values in logs.values() for v in values]))
    heads = [row["heads"] for row in lines]
    x = across(frame, heads, float, room=18.0)
    ends = []
    for i, values in enumerate(logs.values()):
        tone = shade(i, 2)
        line = [(x(h), y(v)) for h, v in zip(heads, values, strict=True)]
        body += path(line, f"line s{tone}")
        body += "".join(tag("circle", cx=px, cy=py, r=4.0, class_=f"level f{tone}") for px, py in line)
        ends.append(line[-1])
    places = dodged([end[1] for end in ends], 15.0, frame.top + 8, frame.bottom - 4)
    body += end_labels(places, ends, list(logs), frame.right + 14) + axis_name(frame, found.words)
    body += ticks(frame, x, heads, "heads", found.knee.value)
    words = f"{found.words} of training and of validation on a logarithmic scale against heads."
    return Figure(width, round(frame.bottom) + 46, body, "Training and validation", words)


def worths(found: Measurement, *, width: int = 500) -> Figure:
    """Every other head count's error over that at the knee, as points with intervals around the line at 1."""
    others = [row for row in found.by_heads() if row["against"]]
    frame = Frame(54, width - 66, 30, 30 + max(200, ROW * len(others)))
    ends = [math.log10(v) for row in others for v in (row["against"].factor.low, row["against"].factor.high)]
    low, high = min(*ends, -0.05) - 0.04, max(*ends, 0.05) + 0.04
    x = Scale(low, high, frame.left + 8, frame.right - 8)
    body = _factors(frame, x, low, high)
    tall = (frame.bottom - frame.top) / max(1, len(others))
    for i, row in enumerate(others):
        body += _worth(row["against"], frame, x, frame.top + tall * (i + 0.5))
    body += text("heads", frame.left - 8, frame.top - 14, "soft small", "end")
    body += text(
        f"error over that at {found.knee.value}", (frame.left + frame.right) / 2, frame.bottom + 36, "", "middle"
    )
    words = f"Error at other head counts over that at {found.knee.value}, with intervals."
    return Figure(width, round(frame.bottom) + 46, body, "What a head is worth", words)


def _factors(frame: Frame, x: Scale, low: float, high: float) -> str:
    """The grid of round factors, as many as can be read, and the line at 1."""
    inside = [v for v in NICE if low <= math.log10(v) <= high]
    body, last = "", -math.inf
    for value in [1, *(v for v in inside if v != 1)] if len(inside) < 3 else inside:
        place = x(math.log10(value))
        body += path([(place, frame.top), (place, frame.bottom)], "predicted" if value == 1 else "grid")
        if abs(place - last) > 26:
            body += text(f"×{value:g}", place, frame.bottom + 18, "strong" if value == 1 else "soft", "middle")
            last = place
    return body + path([(frame.left, frame.bottom), (frame.right, frame.bottom)], "axis")


def _worth(worth: Worth, frame: Frame, x: Scale, y: float) -> str:
    low, middle, high = (x(math.log10(v)) for v in (worth.factor.low, worth.factor.value, worth.factor.high))
    body = text(str(worth.heads), frame.left - 8, y + 4, "soft", "end")
    body += path([(low, y), (high, y)], "interval") + tag("circle", cx=middle, cy=y, r=5.0, class_="knee")
    return body + text(f"×{worth.factor.value:.3g}", frame.right + 10, y + 4, "" if worth.tells else "soft")
