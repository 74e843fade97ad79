"""The InfoFlow paper's two tables: pair tasks by heads in two layers, and the triangle centre by length."""

from __future__ import annotations

import math
from typing import Any

from headcount.nets import Architecture
from headcount.papers.infoflow import predict
from headcount.papers.infoflow.trained_cells import Entry, Trained
from headcount.tasks import Gaussian, LinearMax, PairMax, Task, TriangleCentre, UnitSphere, Wells

# Best validation NMSE as published: at (D, D), (D-1, D), (D, D-1) heads in the two layers.
PAIRS = {
    2: (5.89e-5, 5.89e-2, 3.67e-2),
    3: (6.37e-5, 2.64e-2, 2.07e-2),
    4: (6.92e-5, 1.39e-2, 1.30e-2),
    5: (4.69e-4, 4.46e-3, 7.19e-3),
    6: (1.99e-3, 6.26e-3, 7.67e-3),
}
# At (2,2) heads with E = 24, (4,4) with E = 24, (4,4) with E = 48, by length; at length 3 only "about 1e-3" is stated.
TRIANGLE = {
    3: (1e-3, 1e-3, 1e-3),
    8: (0.086, 0.072, 0.080),
    16: (0.843, 0.853, 0.856),
    32: (0.957, 0.958, 0.959),
    64: (0.985, 0.985, 0.985),
}
SHAPES = ("(D,D)", "(D-1,D)", "(D,D-1)")
TRIANGLE_SHAPES = ((2, 24), (4, 24), (4, 48))
TOKENS = {"gaussian": Gaussian(), "sphere": UnitSphere()}
# The kind of network in which the published contrast is seen; the paper does not say its own (docs/log.md).
AS_PUBLISHED: dict[str, Any] = {"class_token": "last", "embedding": "linear", "activation": "gelu"}


def pair_cells(
    tokens: str,
    *,
    length: int = 64,
    head_dim: int = 8,
    embed_dim: int = 64,
    width: int = 128,
    draw: int = 0,
    **kind: Any,
) -> list[Entry]:
    """Every D at its three shapes, all of one state width and feed-forward width; token_dim 4, no positions.

    `draw` is the seed of the matrices; draws but the first are named. `kind` is the rest of the architecture.
    """
    cells = []
    for D in PAIRS:
        task = PairMax.random(D, 4, length, draw, tokens=TOKENS[tokens])
        for shape, heads in zip(SHAPES, ((D, D), (D - 1, D), (D, D - 1)), strict=True):
            layers = tuple((h, head_dim) for h in heads)
            arch = Architecture(layers, width=width, embed_dim=embed_dim, **kind)
            cells.append(Entry(f"{tokens} D={D} {shape}{f', draw {draw}' if draw else ''}", task, arch))
    return cells


def triangle_cells(*, lengths: tuple[int, ...] = tuple(TRIANGLE), width: int = 64) -> list[Entry]:
    """Every length at the three published shapes."""
    return [
        Entry(f"T={length} ({h},{h}) E={E}", TriangleCentre(length), Architecture(((h, E // h),) * 2, width, 0, E))
        for length in lengths
        for h, E in TRIANGLE_SHAPES
    ]


def position_cells(*, length: int = 16, width: int = 128) -> list[Entry]:
    """Three and four maxima by two layers of one head, with and without positions, beside shapes that need none.

    Four are more than ride along without positions, three are not (`carried_retrievals`).
    """
    shapes = (
        (4, ((1, 8), (1, 8)), 0),
        (4, ((1, 8), (1, 8)), 8),
        (4, ((1, 8), (1, 8)), 16),
        (4, ((2, 8), (2, 8)), 0),
        (4, ((4, 8),), 0),
        (3, ((1, 8), (1, 8)), 0),
        (3, ((2, 8),), 0),
        (3, ((3, 8),), 0),
    )
    return [
        _placed(f"{D} maxima", LinearMax.random(D, 4, length), Architecture(layers, width, places, 32))
        for D, layers, places in shapes
    ]


def window_cells(*, length: int = 16, width: int = 64) -> list[Entry]:
    """Four wells, two in each half of the sequence: two layers of one head with positions, without, and one layer."""
    task = Wells.random(4, 2, length, windows=True)
    shapes = ((((4, 8),), 8), (((1, 8), (1, 8)), 8), (((1, 8), (1, 8)), 0), (((2, 8),), 8), (((1, 8),), 8))
    return [_placed("4 wells in halves", task, Architecture(layers, width, places, 32)) for layers, places in shapes]


def _placed(what: str, task: Task, arch: Architecture) -> Entry:
    return Entry(f"{what} {arch.name}, {arch.positions} position features", task, arch)


def position_rows(trained: list[Trained]) -> list[dict[str, object]]:
    """Measured beside predicted; nothing is published."""
    return [_row(t, math.nan) for t in trained]


def pair_rows(trained: list[Trained]) -> list[dict[str, object]]:
    """Measured beside published and predicted, cell by cell."""
    published = [value for D in PAIRS for value in PAIRS[D]]
    return [_row(t, value) for t, value in zip(trained, published, strict=True)]


def triangle_rows(trained: list[Trained]) -> list[dict[str, object]]:
    """Measured beside published and predicted, cell by cell."""
    shapes = {shape: i for i, shape in enumerate(TRIANGLE_SHAPES)}
    rows = []
    for t in trained:
        shape = (t.cell.arch.layers[0][0], t.cell.arch.embed_dim)
        rows.append(_row(t, TRIANGLE[t.cell.task.length][shapes[shape]]))
    return rows


def _row(trained: Trained, published: float) -> dict[str, object]:
    prediction = predict(trained.cell.task, trained.cell.arch)
    exponent = None if math.isinf(prediction.exponent) else prediction.exponent
    shown = None if math.isnan(published) else published
    return {**trained.as_row(), "published": shown, "predicted": prediction.verdict, "exponent": exponent}
