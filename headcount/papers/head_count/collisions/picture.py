"""A collision as a picture: both sequences through the eyes of the retrieval that attention loses."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headcount.certificates.minima import minima_of
from headcount.files import whole
from headcount.papers.head_count.collisions.collision import Collision
from headcount.tasks import Task

__all__ = ["draw", "write_svg"]

INK, FIRST, SECOND = "#808080", "#3b82c4", "#e07b39"  # readable on light and on dark


def draw(collision: Collision, task: Task, *, radius: float | None = None) -> Figure:
    """The feature of the lost retrieval at every position, for both sequences; and how little attention sees of it."""
    i = collision.placement.retrieval
    both = torch.stack([collision.first, collision.second])
    values = minima_of(task, radius).features(both)[..., i].numpy()
    figure = Figure(figsize=(8.0, 4.4), layout="constrained")
    figure.patch.set_alpha(0.0)
    wide, close = figure.subplots(1, 2, width_ratios=(3, 2))
    differ = np.flatnonzero(values[0] != values[1]).tolist()
    _sequence(wide, values, range(values.shape[1]))
    wide.set_title("the whole sequences", color=INK, fontsize=10)
    wide.set_ylabel(f"feature of retrieval {i + 1}", color=INK)
    _sequence(close, values[:, differ], differ)
    close.set_title("where they differ; dotted: the minima", color=INK, fontsize=10)
    for y, colour in zip(values, (FIRST, SECOND), strict=True):
        close.axhline(y.min(), color=colour, linewidth=1.2, linestyle=":")
    close.legend(frameon=False, labelcolor=INK, loc="upper left", fontsize=9)
    figure.suptitle(
        f"targets {collision.target_gap:.1e} apart, attention outputs {collision.attention_distance:.1e} apart: "
        f"heads {collision.heads}, retrievals {minima_of(task, radius).count}",
        color=INK,
        fontsize=11,
    )
    return figure


def _sequence(axes: Axes, values: np.ndarray, positions: range | list[int]) -> None:
    at = np.arange(len(positions)) if isinstance(positions, list) else np.asarray(positions) + 1
    axes.set_facecolor("none")
    axes.plot(at, values[0], "o", color=FIRST, markersize=6, fillstyle="none", label="first")
    axes.plot(at, values[1], "x", color=SECOND, markersize=5, label="second")
    axes.set_xlabel("position", color=INK)
    if isinstance(positions, list):
        axes.set_xticks(at, [str(p + 1) for p in positions], fontsize=8)
    axes.tick_params(colors=INK)
    for spine in axes.spines.values():
        spine.set_color(INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.ticklabel_format(axis="y", scilimits=(-2, 3))


def write_svg(figure: Figure, path: Path) -> Path:
    """Write the figure, the same bytes every time; whole or not at all."""
    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "headcount", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    with whole(path) as scratch:
        scratch.write_text(text.getvalue())
    return path
