"""The reachable strip with prompts in it, the least loss along it, and their page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.drawing.axes import Frame, round_numbers
from headcount.drawing.panels import figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure
from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.papers.prompts.strip import strip_of
from headcount.report.article import Exhibit, Passage, article

__all__ = ["prompt_page", "strip_figure"]

HEIGHT = 340


def strip_figure(
    layer: PromptedLayer, last: np.ndarray, prompts: Mapping[int, Sequence[np.ndarray]], width: int = 640
) -> Figure:
    """log Z against g.p for prompts of up to four lengths, and the lines between which each length is held."""
    strip = strip_of(layer, last)
    if strip.slope is None:
        raise ValueError("this head has no strip: one token reaches every (p, log Z)")
    placed = {m: [_place(layer, last, strip.slope, p) for p in some] for m, some in prompts.items()}
    across = [x for points in placed.values() for x, _ in points]
    spare = 0.1 * (max(across) - min(across) or 1.0)
    x = [min(across) - spare, max(across) + spare]
    top = math.log(max(prompts))
    (one,) = frames(1, width=width, height=HEIGHT)
    frame = Frame(one.left, one.right, one.top, one.bottom)
    panel = plain_panel(frame, x, [-0.3, top + 2.4])
    body = panel.axes + panel.title("log Z - g.p of trained prompts")
    for tone, (m, points) in enumerate(placed.items()):
        body += panel.line([(v, math.log(m)) for v in x], f"line dots ks{tone % 4}")
        body += panel.marks([(a, b - a) for a, b in points], tone % 4, "ring" if tone % 2 else "dot")
    body += panel.line([(v, 0.0) for v in x], "predicted")
    body += panel.below([(v, f"{v:g}") for v in round_numbers(x[0], x[1])], "g.p")
    names = [f"{m} token{'s' if m > 1 else ''}" for m in prompts]
    body += legend(names, frame.right - 100, frame.top + 6)
    words = "Trained prompts lie between 0 and the logarithm of their length, whatever they were trained for."
    return figure_of([body], width=width, height=HEIGHT, title="The reachable strip", words=words)


def _place(layer: PromptedLayer, last: np.ndarray, slope: np.ndarray, prompt: np.ndarray) -> tuple[float, float]:
    p, log_mass = layer.mass(last, prompt)
    return float(slope @ p), log_mass


def prompt_page(answer: str, rows: Sequence[Mapping[str, Any]], figures: tuple[Figure, ...] | None,
                facts: Mapping[str, Any], tuned: Sequence[Mapping[str, Any]], command: str) -> str:  # fmt: skip
    """The page of `headcount prompt`: floors and trained prompts by length, the strip, and low-rank updates beside."""
    about = (
        "Sum of squares that attention misses at the last token. No prompt of this length goes below the floor; least "
        "is the value found, built the loss of the prompt made for it, trained the best of several starts."
    )
    strip = (
        "To sequences with one last token a prompt is a mean p and a mass log Z. The entropy of the attention inside "
        "the prompt, log Z - g.p, lies between 0 and the logarithm of its length: that is all that length buys."
    )
    sections = [Passage("What prompts reach", (about,), rows=tuple(rows))]
    if figures:
        shown = Exhibit(
            figures[0],
            "Prompts from every start of the training; a dotted line is the logarithm of its length.",
            figures[1],
        )
        sections.append(Passage("The strip", (strip,), (shown,)))
    if tuned:
        low = "The same pair by rank-one updates: losses of the layer's outputs, and how many numbers were tuned."
        sections.append(Passage("Prompts and low-rank updates", (low,), rows=tuple(tuned)))
    return article("What a prompt can and cannot do", answer, sections, subject="limits of prompts", facts=dict(facts),
                   command=command)  # fmt: skip
