"""Pictures of token selection: a path of training against both solutions, and the margins of each; and their page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from headcount.drawing.axes import Frame
from headcount.drawing.panels import Panel, figure_of, frames, legend, log_panel, plain_panel
from headcount.drawing.svg import Figure
from headcount.papers.attention_svm.margins import MaxMargin
from headcount.report.article import Exhibit, Passage, article

HEIGHT = 330
Gaps = Mapping[str, Sequence[tuple[float, float]]]  # solution -> (steps, 1 - cosine) along one path


def path_figure(paths: Mapping[str, Gaps], width: int = 1000) -> Figure:
    """1 - cosine to the Frobenius and to the nuclear solution against steps, a panel for each way of training."""
    stacked = width < 600
    height = HEIGHT * (len(paths) if stacked else 1)
    places = _stack(len(paths), width) if stacked else frames(len(paths), width=width, height=height)
    everything = [g for gaps in paths.values() for points in gaps.values() for _, g in points]
    parts = [_path_panel(f, name, gaps, everything) for f, (name, gaps) in zip(places, paths.items(), strict=True)]
    words = "1 - cosine of the trained matrix with each of the two solutions, against steps, on logarithmic scales."
    return figure_of(parts, width=width, height=height, title="Where training goes", words=words)


def _stack(count: int, width: int) -> list[Frame]:
    (one,) = frames(1, width=width, height=HEIGHT)
    return [Frame(one.left, one.right, one.top + HEIGHT * i, one.bottom + HEIGHT * i) for i in range(count)]


def _path_panel(frame: Frame, name: str, gaps: Gaps, everything: Sequence[float]) -> str:
    steps = sorted({step for points in gaps.values() for step, _ in points})
    panel = log_panel(frame, [np.log2(s) for s in steps], [max(g, 1e-12) for g in everything])
    body = panel.axes + panel.title(f"training {name}: 1 - cosine")
    for tone, points in enumerate(gaps.values()):
        placed = [(float(np.log2(s)), max(g, 1e-12)) for s, g in points]
        body += panel.line(placed, f"line ks{tone}") + panel.marks(placed, tone, size=3)
    shown = [s for s in steps if float(np.log2(s / steps[0])).is_integer()]
    body += panel.below([(float(np.log2(s)), f"{s:g}") for s in shown], "steps")
    return body + legend([f"to {solution}" for solution in gaps], frame.left + 14, frame.bottom - 30)


def values_figure(solved: Mapping[str, MaxMargin], width: int = 600) -> Figure:
    """The singular values of both solutions, each over its largest: the nuclear one has few."""
    (frame,) = frames(1, width=width, height=HEIGHT)
    many = max(len(s.singular_values) for s in solved.values())
    panel = plain_panel(frame, [1, max(many, 2)], [0.0, 1.0])
    body = panel.axes + panel.title("singular values over the largest")
    for tone, one in enumerate(solved.values()):
        body += _values(panel, one, tone)
    body += panel.below([(k, str(k)) for k in range(1, many + 1, max(1, many // 8))], "number")
    body += legend([f"{name}, rank {s.rank}" for name, s in solved.items()], frame.right - 130, frame.top + 10)
    words = "Singular values of the solution of least Frobenius norm and of that of least nuclear norm."
    return figure_of([body], width=width, height=HEIGHT, title="Ranks of the solutions", words=words)


def _values(panel: Panel, one: MaxMargin, tone: int) -> str:
    values = one.singular_values / one.singular_values[0]
    points = [(k + 1, float(v)) for k, v in enumerate(values)]
    return panel.line(points, f"line ks{tone}") + panel.marks(points, tone, "ring" if tone else "dot")


SolutionRow = TypedDict(
    "SolutionRow",
    {"norm": str, "value": float, "duality gap": float, "least margin": float, "support": int, "rank": int},
)
"""The solution of least norm in one norm, and how near to the least it must be."""


def solution_rows(solved: Mapping[str, MaxMargin]) -> list[SolutionRow]:
    """A row for each solution: its norm, duality gap, least margin, support and rank."""
    return [
        {
            "norm": name,
            "value": one.norm,
            "duality gap": one.gap,
            "least margin": one.margin,
            "support": len(one.support),
            "rank": one.rank,
        }
        for name, one in solved.items()
    ]


def margin_page(
    solved: Mapping[str, MaxMargin],
    sizes: Mapping[str, int],
    paths: Mapping[str, Gaps] | None,
    answer: str,
    command: str,
    chosen: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page of `headcount theory margin`: both solutions with their proof, and a trained path against them."""
    rows = tuple(solution_rows(solved))
    words = (
        "The matrix of least norm whose attention scores put every chosen token first by 1 or more. A duality gap of g "
        "means that no matrix does it with a norm smaller by more than the factor 1 + g."
    )
    figures = (Exhibit(values_figure(solved), "Fewer directions in the nuclear norm.", values_figure(solved, 360)),)
    sections = [Passage("The two solutions", (words,), figures, rows)]
    if chosen:
        about = (
            "Tokens are the states that the layer is given, asked by the last of each text; chosen is the token that "
            "the head itself gives the largest weight, so this asks how little it takes to look where the head looks."
        )
        sections.append(Passage("What the head looks at most", (about,), rows=tuple(chosen)))
    if paths:
        about = (
            "W trained itself grows in the direction of the Frobenius solution, K and Q with W = K Q^T in that of the "
            "nuclear one, each for the tokens that this training chose."
        )
        shown = Exhibit(path_figure(paths), "Lower is nearer.", path_figure(paths, 360))
        sections.append(Passage("Where training goes", (about,), (shown,)))
    return article("Attention as a support vector machine", answer, sections, subject="token selection",
                   facts={name.replace("_", " "): size for name, size in sizes.items()}, command=command)  # fmt: skip
