"""A forest plot: a line for each measurement with its interval, a diamond for what they come to together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headcount.drawing.axes import Frame, below, round_numbers
from headcount.drawing.svg import Figure, Scale, path, tag, text

ROW, HEAD, FOOT = 20.0, 30.0, 52.0


@dataclass(frozen=True)
class ForestLine:
    """One measurement: its name, its value, and the ends of its interval."""

    name: str
    value: float
    low: float
    high: float
    ours: bool = False


@dataclass(frozen=True)
class ForestGroup:
    """Measurements of one kind, and what they come to: mean, interval, and where a further one would lie."""

    name: str
    lines: tuple[ForestLine, ...]
    total: ForestLine | None = None
    further: tuple[float, float] | None = None
    note: str = field(default="")


def forest(groups: Sequence[ForestGroup], *, title: str, words: str, axis: str, narrow: bool = False) -> Figure:
    """The figure; what lies outside the axis ends there, and a narrow axis keeps its name up to a semicolon."""
    width, left = (380, 150.0) if narrow else (860, 330.0)
    height = HEAD + sum(ROW * (len(g.lines) + 1 + (g.total is not None)) + 8 for g in groups) + FOOT
    frame = Frame(left, width - 14.0, 10.0, height - FOOT)
    scale = _scale(groups, frame)
    parts = [_ground(frame, scale, axis.partition(";")[0] if narrow else axis)]
    y = HEAD
    for group in groups:
        parts.append(text(_cut(group.name + group.note, narrow), 4, y, "strong"))
        y += ROW
        for line in group.lines:
            parts.append(text(_cut(line.name, narrow), 14, y + 4, "soft small") + _marked(line, scale, y))
            y += ROW
        if group.total is not None:
            parts.append(text("together", 14, y + 4, "small strong") + _diamond(group, scale, y))
            y += ROW
        y += 8
    return Figure(width, round(height), "".join(parts), title, words)


def _scale(groups: Sequence[ForestGroup], frame: Frame) -> Scale:
    """An axis through all values and zero; intervals may reach beyond it."""
    values = [0.0, *(line.value for g in groups for line in (*g.lines, *([g.total] if g.total else [])))]
    spare = 0.15 * ((max(values) - min(values)) or 1.0)
    return Scale(min(values) - spare, max(values) + spare, frame.left, frame.right)


def _ground(frame: Frame, scale: Scale, axis: str) -> str:
    ticks = round_numbers(scale.low, scale.high, 6)
    grid = "".join(path([(scale(v), frame.top), (scale(v), frame.bottom)], "grid") for v in ticks)
    zero = path([(scale(0.0), frame.top), (scale(0.0), frame.bottom)], "axis")
    return grid + zero + below(frame, [(scale(v), f"{v:+g}" if v else "0") for v in ticks], axis)


def _marked(line: ForestLine, scale: Scale, y: float) -> str:
    tone = "ks0" if line.ours else "ks1"
    ends = path([(_at(scale, line.low), y), (_at(scale, line.high), y)], f"thin {tone}")
    return ends + tag("circle", cx=scale(line.value), cy=y, r=4.0, class_=f"level {tone.replace('s', 'f', 1)}")


def _diamond(group: ForestGroup, scale: Scale, y: float) -> str:
    total = group.total
    assert total is not None
    low, middle, high = _at(scale, total.low), scale(total.value), _at(scale, total.high)
    corners = [(low, y), (middle, y - 6), (high, y), (middle, y + 6), (low, y)]
    shape = tag("path", d="M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in corners), class_="knee")
    if group.further is None:
        return shape
    return path([(_at(scale, group.further[0]), y), (_at(scale, group.further[1]), y)], "interval") + shape


def _at(scale: Scale, value: float) -> float:
    return scale(min(max(value, scale.low), scale.high))


def _cut(words: str, narrow: bool) -> str:
    most = 22 if narrow else 56
    return words if len(words) <= most else words[: most - 1] + "…"
