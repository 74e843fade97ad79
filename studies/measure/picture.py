"""docs/images/measure_heads.svg: the standard encoder's error against heads, for planted numbers of look-ups."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from headcount.drawing.axes import Frame, across, axis_name, decades, end_labels, log_axis, shade, ticks
from headcount.drawing.svg import Figure, dodged, path, tag

ONE_LAYER = re.compile(r"(\d+) heads?")


def picture(rows: Sequence[dict[str, Any]], width: int = 640) -> Figure:
    """A curve for each set of look-ups, from the rows with the most steps."""
    curves = _curves(rows)
    heads = sorted({h for curve in curves.values() for h in curve})
    frame = Frame(54, width - 110, 34, 330)
    y, body = log_axis(frame, *decades([0.0, *(math.log10(v) for curve in curves.values() for v in curve.values())]))
    x = across(frame, heads, float, room=26.0)
    ends = []
    for i, curve in enumerate(curves.values()):
        tone, line = shade(i, len(curves)), [(x(h), y(math.log10(v))) for h, v in sorted(curve.items())]
        body += path(line, f"line s{tone}")
        body += "".join(tag("circle", cx=px, cy=py, r=4.0, class_=f"level f{tone}") for px, py in line)
        ends.append(line[-1])
    places = dodged([end[1] for end in ends], 15.0, frame.top + 8, frame.bottom - 4)
    body += end_labels(places, ends, list(curves), frame.right + 14) + axis_name(frame, "NMSE")
    body += ticks(frame, x, heads, "heads", None)
    description = f"NMSE on outer parts on a logarithmic scale against heads in one layer: {', '.join(curves)}."
    return Figure(width, round(frame.bottom) + 46, body, "NMSE against heads", description)


def _curves(rows: Sequence[dict[str, Any]]) -> dict[str, dict[int, float]]:
    curves: dict[str, dict[int, float]] = {}
    rows = [row for row in rows if row.get("truth") is not None and not row["form"].endswith("busy")]
    for row in sorted(rows, key=lambda row: (row["truth"], row["steps"])):
        if row["set"].endswith(("look-up", "look-ups")):
            one_layer = {ONE_LAYER.fullmatch(name): level for name, level in row["levels"].items()}
            curves[row["set"]] = {int(name[1]): level for name, level in one_layer.items() if name}
    return curves
