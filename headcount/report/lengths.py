"""NMSE against length, a curve per head count: too few heads get worse as sequences grow."""

from __future__ import annotations

import math

import numpy as np

from headcount.drawing.axes import Frame, across, decades, end_labels, log_axis, shade, ticks
from headcount.drawing.svg import Figure, dodged, path, tag, text
from headcount.fits import Cells


def against_length(cells: Cells, *, width: int = 520, label: str = "NMSE") -> Figure:
    """The level of every cell over length, on logarithmic scales."""
    frame = Frame(54, width - 52, 34, 34 + min(260, round(0.62 * width)))
    levels, count = cells.levels(), len(cells.points)
    y, body = log_axis(frame, *decades([v for v in levels.ravel().tolist() if np.isfinite(v)]))
    x = across(frame, cells.groups, math.log2, room=24.0)
    ends = []
    for j in range(count):
        finite = [i for i in range(len(cells.groups)) if np.isfinite(levels[i, j])]
        line = [(x(cells.groups[i]), y(levels[i, j])) for i in finite]
        tone = shade(j, count)
        body += path(line, f"line s{tone}")
        body += "".join(tag("circle", cx=px, cy=py, r=4.0, class_=f"level f{tone}") for px, py in line)
        ends.append(line[-1])
    places = dodged([end[1] for end in ends], 15.0, frame.top + 8, frame.bottom - 4)
    body += end_labels(places, ends, [str(p) for p in cells.points], frame.right + 14)
    body += text("heads", frame.right + 14, min(places) - 16, "soft small")
    body += text(label, frame.left - 8, frame.top - 16, "", "end")
    body += ticks(frame, x, cells.groups, "length")
    words = f"{label} against length on logarithmic scales, one curve for each of {count} head counts."
    return Figure(width, round(frame.bottom) + 46, body, f"{label} against length", words)
