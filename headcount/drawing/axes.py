"""Axes that the figures share: decades or round numbers upwards, counts across, labels at the ends of curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.drawing.palette import STEPS
from headcount.drawing.svg import Scale, path, power_of_ten, text

CLEAR = 9  # the first shade whose contrast to the ground is 3 or more, light and dark


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


def round_numbers(low: float, high: float, most: int = 6) -> list[float]:
    """At most about `most` round numbers between two, a step of 1, 2 or 5 times a power of ten apart.

    >>> round_numbers(0.0, 1.0), round_numbers(-0.03, 0.011, 5)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [-0.03, -0.02, -0.01, 0.0, 0.01])
    """
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(s * power for s in (1, 2, 5, 10) if (high - low) / (s * power) <= most * (1 + 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{step * i:.12g}") for i in range(first, last + 1)]


def log_axis(frame: Frame, low: int, high: int) -> tuple[Scale, str]:
    """The scale of a decimal logarithm and its grid with labels, thinned to where they can be read."""
    scale = Scale(low, high, frame.bottom, frame.top)
    step = math.ceil((high - low) * 22 / (frame.bottom - frame.top)) or 1
    return scale, beside(frame, [(scale(e), power_of_ten(e)) for e in range(high, low - 1, -step)])


def beside(frame: Frame, places: Sequence[tuple[float, str]]) -> str:
    """The grid of a panel, with a label left of each of its lines."""
    return "".join(
        path([(frame.left, y), (frame.right, y)], "grid") + text(label, frame.left - 8, y + 4, "soft", "end")
        for y, label in places
    )


def axis_name(frame: Frame, name: str) -> str:
    """What the axis upwards shows: beside it where it is short, over it where it is long."""
    fits = len(name) <= 5
    return text(name, frame.left - 8 if fits else 4, frame.top - 16, "", "end" if fits else "start")


def across(frame: Frame, values: Sequence[float], of: Callable[[float], float], room: float) -> Scale:
    """A scale through the values with `room` pixels left at both ends."""
    return Scale(values[0], values[-1], frame.left + room, frame.right - room, of)


def ticks(frame: Frame, scale: Scale, values: Sequence[int], label: str, strong: int | None = None) -> str:
    """The axis below a panel, a tick for each value, and what it counts."""
    return below(frame, [(scale(value), str(value)) for value in values], label, str(strong))


def below(frame: Frame, places: Sequence[tuple[float, str]], label: str, strong: str = "") -> str:
    """The axis below a panel: a tick at each place, its name as far as they fit, and what the axis shows."""
    parts = [path([(frame.left, frame.bottom), (frame.right, frame.bottom)], "axis")]
    last = -math.inf
    for x, name in places:
        parts.append(path([(x, frame.bottom), (x, frame.bottom + 4)], "axis"))
        if x - last >= 7 * len(name) + 8:
            parts.append(text(name, x, frame.bottom + 18, "strong" if name == strong else "soft", "middle"))
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
    """The shade of one of several ordered curves, all of them with a contrast of 3 or more to the ground."""
    first = CLEAR
    return (first + STEPS - 1) // 2 + 2 if count == 1 else first + round(index * (STEPS - 1 - first) / (count - 1))
