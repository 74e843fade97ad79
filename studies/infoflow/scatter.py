"""The battery at a glance: the predicted exponent across, the trained NMSE relative to the reference upwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from headcount.drawing.axes import Frame, axis_name, below, decades, log_axis
from headcount.drawing.svg import Figure, Scale, path, tag
from studies.infoflow.solved import FACTOR

CHEAP, COSTLY = "f11", "accent"  # a shade of the ramp, and the accent


def scatter(rows: Sequence[dict[str, Any]], *, width: int = 760) -> Figure:
    """A dot per cell beside its task's reference; a ring marks a disagreement, a dashed line `FACTOR`.

    Shapes that no exponent describes stand in a column of their own.
    """
    shown = [row for row in rows if row["cell"] != row["reference"] and math.isfinite(row["ratio"])]
    frame = Frame(50, width - 12, 40, 40 + min(340, round(0.62 * width)))
    logs = [math.log10(row["ratio"]) for row in shown]
    y, body = log_axis(frame, *decades([*logs, 0.0, math.log10(FACTOR)]))
    x, names = _columns(frame, shown)
    line = y(math.log10(FACTOR))
    body += path([(frame.left, line), (frame.right, line)], "predicted")
    body += below(frame, names, "predicted exponent") + axis_name(frame, "NMSE relative to the reference shape")
    for row, px in zip(shown, _apart(shown, x, y, frame), strict=True):
        body += _dot(row, px, y(math.log10(row["ratio"])))
    apart = sum(not row["agree"] for row in shown)
    words = f"NMSE relative to the reference against the predicted exponent for {len(shown)} cells, {apart} ringed"
    return Figure(width, round(frame.bottom) + 46, body, "Predicted exponent and trained error", words)


def _columns(frame: Frame, rows: Sequence[dict[str, Any]]) -> tuple[dict[float, float], list[tuple[float, str]]]:
    """Where each exponent stands (infinity at the right end), and the ticks below."""
    finite = sorted({row["exponent"] for row in rows if row["exponent"] is not None})
    endless = any(row["exponent"] is None for row in rows)
    top = max([2.0, *finite])
    scale = Scale(1.0, top, frame.left + 40, frame.right - (86 if endless else 34), math.log2)
    ticks = [(scale(float(2**k)), f"{2**k}") for k in range(math.floor(math.log2(top)) + 1)]
    ticks += [(frame.right - 32, "none")] if endless else []
    return {e: scale(e) for e in finite} | {math.inf: frame.right - 32.0}, ticks


def _apart(rows: Sequence[dict[str, Any]], x: dict[float, float], y: Scale, frame: Frame) -> list[float]:
    """Dots of one column side by side where they would cover each other: 0, +1, -1, +2, ... steps off its middle."""
    taken: list[tuple[float, float]] = []
    for row in rows:
        middle, py = x[math.inf if row["exponent"] is None else row["exponent"]], y(math.log10(row["ratio"]))
        steps = (11 * ((n + 1) // 2) * (1 if n % 2 else -1) for n in range(2 * len(rows)))
        tries = [min(max(middle + step, frame.left + 6), frame.right - 6) for step in steps]
        free = (px for px in tries if all(math.hypot(px - ox, py - oy) >= 10 for ox, oy in taken))
        taken.append((next(free, middle), py))
    return [px for px, _ in taken]


def _dot(row: dict[str, Any], px: float, py: float) -> str:
    words = f"{row['cell']}: {row['predicted']}, {row['trained']}, {row['ratio']:.3g} x the reference"
    tone = CHEAP if row["predicted"] == "cheap" else COSTLY
    dot = tag("circle", tag("title", escape(words)), cx=px, cy=py, r=4.5, class_=f"level {tone}")
    return dot if row["agree"] else dot + tag("circle", cx=px, cy=py, r=8.0, class_="lost")
