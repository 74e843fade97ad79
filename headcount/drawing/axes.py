"""Axes that the figures share: NMSE on a logarithmic scale upwards, head counts or lengths across."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.drawing.palette import STEPS
from headcount.drawing.svg import Scale, path, power_of_ten, text

__all__ = ["Frame", "across", "axis_name", "decades", "end_labels", "nmse_axis", "shade", "ticks"]


@dataclass(frozen=True)
class Frame:
    """The rectangle of a panel, in pixels."""

    left: float
    right: float
    top: float
    bottom: float


def decades(logs: Sequence[float]) -> tuple[int, int]:
    """The whole decades that hold the values, at least one of them.

    >>> decades([-4.2, -1.1])
    (-5, -1)
    """
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    return (low, high) if low < high else (low - 1, high)


def nmse_axis(frame: Frame, low: int, high: int) -> tuple[Scale, str]:
    """The scale of log10 NMSE and its grid with labels, thinned to where they can be read."""
    scale = Scale(low, high, frame.bottom, frame.top)
    step = math.ceil((high - low) * 22 / (frame.bottom - frame.top)) or 1
    marks = [
        path([(frame.left, scale(e)), (frame.right, scale(e))], "grid")
        + text(power_of_ten(e), frame.left - 8, scale(e) + 4, "soft", "end")
        for e in range(high, low - 1, -step)
    ]
    return scale, "".join(marks)


def axis_name(frame: Frame, name: str) -> str:
    """What the axis upwards shows: beside it where it is short, over it where it is long."""
    beside = len(name) <= 5
    return text(name, frame.left - 8 if beside else 4, frame.top - 16, "", "end" if beside else "start")


def across(frame: Frame, values: Sequence[float], of: Callable[[float], float], room: float) -> Scale:
    """A scale through the values with `room` pixels left at both ends."""
    return Scale(values[0], values[-1], frame.left + room, frame.right - room, of)


def ticks(frame: Frame, scale: Scale, values: Sequence[int], label: str, strong: int | None = None) -> str:
    """The axis below a panel, a tick a value as far as they fit, and what it counts."""
    parts = [path([(frame.left, frame.bottom), (frame.right, frame.bottom)], "axis")]
    last = -math.inf
    for value in values:
        x = scale(value)
        parts.append(path([(x, frame.bottom), (x, frame.bottom + 4)], "axis"))
        if x - last >= 7 * len(str(value)) + 8:
            parts.append(text(str(value), x, frame.bottom + 18, "strong" if value == strong else "soft", "middle"))
            last = x
    parts.append(text(label, (frame.left + frame.right) / 2, frame.bottom + 36, "", "middle"))
    return "".join(parts)


def end_labels(places: Sequence[float], ends: Sequence[tuple[float, float]], words: Sequence[str], x: float) -> str:
    """Labels right of the curves they name, each with a leader in its curve's shade."""
    parts = []
    for i, (y, end, word) in enumerate(zip(places, ends, words, strict=True)):
        parts.append(path([end, (x - 14, y), (x - 5, y)], f"lead s{shade(i, len(words))}"))
        parts.append(text(word, x, y + 4))
    return "".join(parts)


def shade(index: int, count: int) -> int:
    """The shade of one of several ordered curves, all of them clear of the ground."""
    first = STEPS // 3 + 1
    return (first + STEPS - 1) // 2 + 2 if count == 1 else first + round(index * (STEPS - 1 - first) / (count - 1))
