"""The reachable strip with prompts in it, the least loss along it, and their page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.drawing.axes import round_numbers
from headcount.drawing.panels import figure_of, frames, legend, plain_panel
from headcount.drawing.svg import Figure
from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.papers.prompts.strip import strip_of
from headcount.report.article import Exhibit, Passage, article

HEIGHT = 340


def strip_figure(
    layer: PromptedLayer, last: np.ndarray, prompts: Mapping[int, Sequence[np.ndarray]], width: int = 640
) -> Figure:
    """log Z - g.p against g.p for prompts of up to four lengths, and the lines between which each length is held.

    Small marks are random prompts. The middle of the trained ones sets what is shown; a prompt far out to a side is
    drawn at the edge.
    """
    strip = strip_of(layer, last)
    if strip.slope is None:
        raise ValueError("this head has no strip: one token reaches every (p, log Z)")
    trained = {m: [_place(layer, last, strip.slope, p) for p in some] for m, some in prompts.items()}
    others = {m: [_place(layer, last, strip.slope, p) for p in _random(layer, m)] for m in prompts}
    x = _window([place for points in (*trained.values(), *others.values()) for place, _ in points])
    top = math.log(max(prompts))
    (frame,) = frames(1, width=width, height=HEIGHT)
    panel = plain_panel(frame, x, [-0.3, top + 0.45 * max(top, 2.0)])
    body = panel.axes + panel.title("log Z - g.p of trained and random prompts")
    for tone, m in enumerate(prompts):
        body += panel.line([(v, math.log(m)) for v in x], f"line dots ks{tone % 4}")
        body += panel.marks([(_inside(a, x), b - a) for a, b in others[m]], tone % 4, size=2.5)
    for tone, m in enumerate(prompts):
        mark = "ring" if tone % 2 else "dot"
        body += panel.marks([(_inside(a, x), b - a) for a, b in trained[m]], tone % 4, mark, 5)
    body += panel.line([(v, 0.0) for v in x], "predicted")
    body += panel.below([(v, f"{v:g}") for v in round_numbers(x[0], x[1])], "g.p")
    names = [f"{m} token{'s' if m > 1 else ''}" for m in prompts]
    body += legend(names, frame.right - 100, frame.top + 6)
    words = "Prompts lie between 0 and the logarithm of their length, whatever they were trained for."
    return figure_of([body], width=width, height=HEIGHT, title="The reachable strip", words=words)


def _random(layer: PromptedLayer, tokens: int, many: int = 40) -> list[np.ndarray]:
    """Normal prompts of scales from 0.1 to 1.5."""
    g = np.random.default_rng(tokens)
    return [s * g.standard_normal((tokens, layer.token_dim)) for s in np.geomspace(0.1, 1.5, many)]


def _window(places: Sequence[float]) -> list[float]:
    """From the tenth to the ninetieth percentile, and half as much on either side."""
    low, high = np.percentile(places, [10, 90])
    spare = 0.5 * (high - low) or 1.0
    return [float(low - spare), float(high + spare)]


def _inside(value: float, window: Sequence[float]) -> float:
    return min(max(value, window[0]), window[1])


def _place(layer: PromptedLayer, last: np.ndarray, slope: np.ndarray, prompt: np.ndarray) -> tuple[float, float]:
    p, log_mass = layer.mass(last, prompt)
    return float(slope @ p), log_mass


def prompt_page(answer: str, rows: Sequence[Mapping[str, Any]], figures: tuple[Figure, ...] | None,
                facts: Mapping[str, Any], tuned: Sequence[Mapping[str, Any]], command: str,
                wanted: Sequence[Mapping[str, Any]] = ()) -> str:  # fmt: skip
    """The page of `headcount theory prompt`: floors and trained prompts by length, the strip, low-rank updates."""
    about = (
        "Sum of squares that attention misses at the last token. No prompt of this length goes below the floor; least "
        "is the value found, built the loss of the prompt made for it, trained the best of several starts."
    )
    strip = (
        "To sequences with one last token a prompt is a mean p and a mass log Z. The entropy of the attention inside "
        "the prompt, log Z - g.p, lies between 0 and the logarithm of its length: that is all that length buys."
    )
    sections = [Passage("What prompts reach", (about,), rows=tuple(rows))]
    if wanted:
        of = (
            "The contexts are the states that the layer is given before the last token of each text, the last token "
            "that of the first text; wanted is the value of the token that the head itself gives the largest weight."
        )
        sections.append(Passage("What is wanted", (of,), rows=tuple(wanted)))
    if figures:
        shown = Exhibit(
            figures[0],
            "Large marks: prompts from every start of the training; small ones: random prompts. A dotted line is the "
            "logarithm of its length; prompts far out to a side are drawn at the edge.",
            figures[1],
        )
        sections.append(Passage("The strip", (strip,), (shown,)))
    if tuned:
        low = "The same pair by rank-one updates: losses of the layer's outputs, and how many numbers were tuned."
        sections.append(Passage("Prompts and low-rank updates", (low,), rows=tuple(tuned)))
    return article("What a prompt can and cannot do", answer, sections, subject="limits of prompts", facts=dict(facts),
                   command=command)  # fmt: skip
