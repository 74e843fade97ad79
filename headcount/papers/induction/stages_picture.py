"""The three stages of training as a picture: the selector, then the heads, then the scale, over the same steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headcount.drawing.axes import Frame
from headcount.drawing.panels import Panel, figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure, Scale
from headcount.results.gathering import grouped

Rows = Sequence[Mapping[str, Any]]
BEFORE = 0.5  # where step 0 stands on a logarithmic axis
WORDS = "Share of every set of lags, own-lag weights of three heads, and scale and loss, against the step of descent"
SETS = ("1,2", "1", "2", "1,3")


def stages_picture(rows: Rows, *, narrow: bool = False) -> Figure:
    """Three panels over the logarithm of the step; `narrow` stands them below each other."""
    places, width, height = _frames(3, narrow)
    parts = [_shares(places[0], rows), _heads(places[1], rows), _scale(places[2], rows)]
    return figure_of(parts, width=width, height=height, title="Three stages of training", words=WORDS)


def lengths_picture(rows: Rows, *, narrow: bool = False) -> Figure:
    """Accuracy against length, a panel for each concentration: the trained model, the posterior, the true kernel."""
    by_concentration = grouped((row["concentration"], row) for row in rows)
    places, width, height = _frames(len(by_concentration), narrow)
    words = "Accuracy against the length of the test sequences, for the model, the posterior and the true kernel"
    values = [row[name] for row in rows for name in ("model_accuracy", "kernel_accuracy")]
    parts = []
    for frame, (alpha, of_concentration) in zip(places, by_concentration.items(), strict=True):
        lengths = [row["length"] for row in of_concentration]
        panel = _over(lengths, plain_panel(frame, (0, 1), values))
        ticks = panel.below([(length, str(length)) for length in lengths], "length")
        parts.append(panel.axes + panel.title(f"concentration {alpha:g}") + ticks)
        for i, name in enumerate(("model", "posterior", "kernel")):
            points = [(row["length"], row[f"{name}_accuracy"]) for row in of_concentration]
            parts.append(panel.line(points, f"line ks{i}") + panel.marks(points, i, size=3.0))
        parts.append(legend(("trained at 100", "posterior", "true kernel"), frame.right - 118, frame.bottom - 44))
    return figure_of(parts, width=width, height=height, title="Other lengths", words=words)


def _frames(count: int, narrow: bool) -> tuple[list[Frame], int, int]:
    if not narrow:
        return frames(count, width=860, height=300), 860, 300
    each = 250
    return [Frame(56, 356, each * i + 34, each * (i + 1) - 46) for i in range(count)], 370, each * count


def _over(values: Sequence[float], panel: Panel) -> Panel:
    """The panel with a logarithmic axis across."""
    across = Scale(min(values), max(values), panel.frame.left + 16, panel.frame.right - 16, math.log10)
    return replace(panel, x=across)


def _steps(panel: Panel, rows: Rows) -> str:
    last = max(row["step"] for row in rows)
    powers = [10**e for e in range(math.floor(math.log10(last)) + 1)]
    return panel.below([(BEFORE, "0"), *((p, f"{p:,}") for p in powers)], "step")


def _panel(frame: Frame, rows: Rows, values: Sequence[float], title: str) -> tuple[Panel, str]:
    panel = _over([max(row["step"], BEFORE) for row in rows], plain_panel(frame, (0, 1), values))
    return panel, panel.axes + panel.title(title) + _steps(panel, rows)


def _curve(panel: Panel, rows: Rows, values: Sequence[float], class_: str) -> str:
    return panel.line([(max(row["step"], BEFORE), v) for row, v in zip(rows, values, strict=True)], class_)


def _shares(frame: Frame, rows: Rows) -> str:
    panel, drawn = _panel(frame, rows, (0.0, 1.0), "1 selector: share of a set of lags")
    for i, name in enumerate(SETS):
        drawn += _curve(panel, rows, [row["shares"][name] for row in rows], f"line ks{i}")
    return drawn + legend([f"{{{name}}}" for name in SETS], frame.right - 70, (frame.top + frame.bottom) / 2 - 30)


def _heads(frame: Frame, rows: Rows) -> str:
    values = [w for row in rows for w in row["own"]]
    panel, drawn = _panel(frame, rows, values, "2 copier: own-lag weight of a head")
    for head in range(len(rows[0]["own"])):
        drawn += _curve(panel, rows, [row["own"][head] for row in rows], f"line ks{head}")
    names = [f"head {head + 1}" for head in range(len(rows[0]["own"]))]
    return drawn + legend(names, frame.left + 24, frame.top + 12)


def _scale(frame: Frame, rows: Rows) -> str:
    values = [row["scale"] for row in rows]
    losses = [10 * row["loss"] for row in rows]
    panel, drawn = _panel(frame, rows, [0.0, *values, *losses], "3 classifier: scale a, and the loss")
    drawn += _curve(panel, rows, values, "line ks0") + _curve(panel, rows, losses, "line ks1")
    return drawn + legend(("scale a", "10 x loss"), frame.left + 24, (frame.top + frame.bottom) / 2 - 12)
