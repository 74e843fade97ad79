"""A collision as a picture: both sequences through the eyes of the retrieval that attention loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from headcount.drawing.axes import Frame
from headcount.drawing.panels import Panel, figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure
from headcount.papers.head_count.collisions.collision import Collision
from headcount.papers.head_count.networks.minima import minima_of
from headcount.tasks import Task

WIDTH, HEIGHT = 860, 390
NAMES = ("first", "second")


def draw(collision: Collision, task: Task, *, radius: float | None = None) -> Figure:
    """The feature of the lost retrieval at every position, for both sequences; and how little attention sees of it."""
    minima, retrieval = minima_of(task, radius), collision.placement.retrieval
    both = torch.stack([collision.first, collision.second])
    first, second = minima.features(both)[..., retrieval].tolist()
    differ = [t for t, (one, other) in enumerate(zip(first, second, strict=True)) if one != other]
    wide, close = frames(2, width=WIDTH, height=HEIGHT, title=True)
    wide, close = replace(wide, right=wide.right + 70), replace(close, left=close.left + 70)
    words = (
        f"Targets {collision.target_gap:.1e} apart, attention outputs {collision.attention_distance:.1e} apart: "
        f"heads {collision.heads}, retrievals {minima.count}"
    )
    parts = [
        _whole(wide, [first, second], f"Feature of retrieval {retrieval + 1}, the whole sequences"),
        _near(close, [[v[t] for t in differ] for v in (first, second)], differ, (min(first), min(second))),
    ]
    return figure_of(parts, width=WIDTH, height=HEIGHT, title="A collision", words=words + ".", shown=words)


def _whole(frame: Frame, values: Sequence[Sequence[float]], title: str) -> str:
    length = len(values[0])
    panel = plain_panel(frame, [1, length], [v for line in values for v in line])
    step = max(1, length // 8)
    names = [(t, str(t)) for t in (1, *range(step, length + 1, step))]
    return (
        panel.axes + panel.title(title) + _spots(panel, values, range(1, length + 1)) + panel.below(names, "position")
    )


def _near(frame: Frame, values: Sequence[Sequence[float]], at: Sequence[int], minima: tuple[float, float]) -> str:
    places = range(len(at))
    panel = plain_panel(frame, [-0.5, len(at) - 0.5], [*minima, *(v for line in values for v in line)])
    body = panel.axes + panel.title("Where they differ; dotted: the minima")
    body += "".join(panel.level(least, f"thin dots ks{i}") for i, least in enumerate(minima))
    body += _spots(panel, values, places) + legend(NAMES, frame.left + 12, frame.top + 10)
    return body + panel.below([(i, str(t + 1)) for i, t in enumerate(at)], "position")


def _spots(panel: Panel, values: Sequence[Sequence[float]], places: Sequence[int]) -> str:
    first, second = (list(zip(places, line, strict=True)) for line in values)
    return panel.marks(first, 0, "ring", 4.5) + panel.marks(second, 1, "cross", 3.5)
