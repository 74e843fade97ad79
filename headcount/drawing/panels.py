"""Panels: a frame, two scales and marks placed by data; several of them make a figure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from headcount.drawing.axes import Frame, below, beside, decades, log_axis, round_numbers
from headcount.drawing.svg import Figure, Scale, path, tag, text

Point = tuple[float, float]
Mark = Literal["dot", "ring", "cross", "dash"]
TITLE, HEAD, FOOT, GAP = 22, 34, 46, 62  # pixels: the figure's title, a panel's title, its lower axis, its left labels


@dataclass(frozen=True)
class Panel:
    """A frame with its scales; `axes` is what is drawn below the marks."""

    frame: Frame
    x: Scale
    y: Scale
    axes: str = ""

    def line(self, points: Iterable[Point], class_: str) -> str:
        """A line through the points; nothing where there are none."""
        places = [(self.x(x), self.y(y)) for x, y in points]
        return path(places, class_) if places else ""

    def level(self, y: float, class_: str) -> str:
        """A line across the whole panel."""
        return path([(self.frame.left, self.y(y)), (self.frame.right, self.y(y))], class_)

    def marks(self, points: Iterable[Point], tone: int | str, mark: Mark = "dot", size: float = 4.0) -> str:
        """The same mark at every point: `tone` is the number of a category, or the name of a shade such as f9."""
        fill, stroke = (f"kf{tone}", f"ks{tone}") if isinstance(tone, int) else (tone, tone.replace("f", "s"))
        return "".join(_mark(mark, self.x(x), self.y(y), size, fill, stroke) for x, y in points)

    def below(self, places: Sequence[tuple[float, str]], label: str) -> str:
        """The lower axis, a name at each place given by data."""
        return below(self.frame, [(self.x(value), name) for value, name in places], label)

    def title(self, words: str) -> str:
        """What the panel shows, above it."""
        return text(words, self.frame.left, self.frame.top - 12, "strong")


def legend(names: Sequence[str], left: float, top: float, strokes: Sequence[str] = ()) -> str:
    """Names below each other, each with a piece of its line: categories in their order unless `strokes` says else."""
    rows = []
    for i, name in enumerate(names):
        y, stroke = top + 17 * i, strokes[i] if strokes else f"ks{i % 4}"
        rows.append(path([(left, y), (left + 14, y)], f"line {stroke}") + text(name, left + 20, y + 4, "halo"))
    return "".join(rows)


def frames(count: int, *, width: int, height: int, title: bool = False, labels: float = GAP) -> list[Frame]:
    """Frames side by side, with room for titles above, axes below and labels on the left."""
    each = width / count
    top = HEAD + (TITLE if title else 0)
    return [Frame(each * i + labels, each * (i + 1) - 14, top, height - FOOT) for i in range(count)]


def log_panel(frame: Frame, x: Sequence[float], y: Sequence[float]) -> Panel:
    """A panel whose values upwards are drawn by their logarithm; `y` and all that is placed are the values."""
    low, high = decades([math.log10(v) for v in y])
    _, grid = log_axis(frame, low, high)
    return Panel(frame, _across(frame, x), Scale(10.0**low, 10.0**high, frame.bottom, frame.top, math.log10), grid)


def plain_panel(frame: Frame, x: Sequence[float], y: Sequence[float]) -> Panel:
    """A panel with round numbers upwards."""
    spare = 0.06 * ((max(y) - min(y)) or 1.0)
    low, high = min(y) - spare, max(y) + spare
    scale = Scale(low, high, frame.bottom, frame.top)
    grid = beside(frame, [(scale(v), f"{v:g}") for v in round_numbers(low, high)])
    return Panel(frame, _across(frame, x), scale, grid)


def figure_of(parts: Iterable[str], *, width: int, height: int, title: str, words: str, shown: str = "") -> Figure:
    """The figure that the parts make; `shown` is a title on the figure itself."""
    head = text(shown, 8, 18, "strong") if shown else ""
    return Figure(width, height, head + "".join(parts), title, words)


def _across(frame: Frame, x: Sequence[float]) -> Scale:
    return Scale(min(x), max(x), frame.left + 16, frame.right - 16)


def _mark(mark: Mark, x: float, y: float, size: float, fill: str, stroke: str) -> str:
    if mark == "dot":
        return tag("circle", cx=x, cy=y, r=size, class_=f"level {fill}")
    if mark == "ring":
        return tag("circle", cx=x, cy=y, r=size, class_=f"ring {stroke}")
    if mark == "dash":
        return path([(x - size, y), (x + size, y)], f"ring {stroke}")
    falling, rising = [(x - size, y - size), (x + size, y + size)], [(x - size, y + size), (x + size, y - size)]
    return path(falling, f"ring {stroke}") + path(rising, f"ring {stroke}")
