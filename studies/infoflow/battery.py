"""Prediction against training: a battery of tasks and shapes, every family, cheap and costly, at one size a task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from headcount.nets import Architecture
from headcount.papers.infoflow import predict
from headcount.papers.infoflow.trained_cells import Entry, Trained, same_size
from headcount.tasks import (
    Induction,
    KthLargest,
    LinearMax,
    OppositePair,
    PairMax,
    PositionSum,
    Task,
    TriangleCentre,
    UnitSphere,
    Wells,
)
from studies.infoflow.solved import solved

P = 8  # position features where a cell has any: t/T and almost four turns

# Every group: its name, the task, the reference shape (predicted cheap), and the others as (layers, positions).
Group = tuple[str, Task, str, int, tuple[tuple[str, int], ...]]


def _groups(length: int) -> list[Group]:
    bits = (length - 1).bit_length()
    return [
        (
            "4 maxima",
            LinearMax.random(4, 4, length),
            "4x8",
            0,
            (
                ("1x8", 0),
                ("2x8", 0),
                ("3x8", 0),
                ("5x8", 0),
                ("1x8+1x8", 0),
                ("2x8+2x8", 0),
                ("1x8+2x8", 0),
                ("1x8+3x8", 0),
                ("3x8+1x8", 0),
                ("1x8+1x8+1x8", 0),
                ("1x8+1x8+1x8+1x8", 0),
                ("1x8+1x8", P),
                ("1x2+1x2", P),
            ),
        ),
        (
            "3 maxima",
            LinearMax.random(3, 4, length),
            "3x8",
            0,
            (("2x8", 0), ("1x8+1x8", 0), ("2x8+2x8", 0), ("1x8+1x8+1x8", 0)),
        ),
        ("2 maxima", LinearMax.random(2, 4, length), "2x8", 0, (("1x8", 0), ("1x8+1x8", 0), ("1x8+1x8", P))),
        (
            "2 wells in halves",
            Wells.random(2, 2, length, windows=True),
            "2x8",
            P,
            (("1x8", P), ("2x8", 0), ("1x8+1x8", P)),
        ),
        (
            "2 pairs",
            PairMax.random(2, 3, length, tokens=UnitSphere()),
            "2x8+2x8",
            0,
            (("1x8+2x8", 0), ("2x8+1x8", 0), ("1x8+1x8", 0), ("4x8", 0), ("3x8+3x8", 0), ("1x8+1x8+1x8", 0)),
        ),
        (
            "1 pair",
            PairMax.random(1, 3, length, tokens=UnitSphere()),
            "1x8+1x8",
            0,
            (("1x8", 0), ("2x8", 0), ("2x8+2x8", 0)),
        ),
        ("opposite pair", OppositePair(length), "1x8+1x8", 0, (("1x8", 0), ("4x8", 0))),
        (
            "second largest",
            KthLargest(2, length),
            "1x8+1x8",
            P,
            (("1x8", P), ("1x8+1x8", 0), ("1x8", 0), ("2x4", P), (f"{2 * bits}x2", P)),
        ),
        ("third largest", KthLargest(3, length), "1x8+1x8+1x8", P, (("1x8", P), ("1x8+1x8", P), ("1x8+1x8+1x8", 0))),
        ("first three", PositionSum((0, 1, 2), 10), "1x8", P, (("1x8", 0), ("1x2", P), ("2x8", P))),
        ("induction", Induction(4, length), "1x8+1x8", P, (("1x8", P), ("1x8+1x8", 0), ("2x8", P), ("2x8+2x8", P))),
    ]


def battery(length: int = 32, width: int = 128) -> dict[str, list[Entry]]:
    """The cells of every task, its reference first; all shapes of one task have as many parameters as the reference.

    >>> groups = battery()
    >>> sum(map(len, groups.values())) >= 40, all(predict(c[0].task, c[0].arch).cheap for c in groups.values())
    (True, True)
    """
    return entries(_groups(length), width) | {"triangle centre": list(_triangles(width))}


def entries(groups: Sequence[Group], width: int) -> dict[str, list[Entry]]:
    """The cells of every group, its reference first, all of one size."""
    cells: dict[str, list[Entry]] = {}
    for name, task, reference, positions, others in groups:
        like = _shape(reference, positions, task, width)
        cells[name] = [Entry(f"{name}: {reference}{_with(positions)}", task, like)]
        for layers, places in others:
            arch = same_size(_shape(layers, places, task, width), like, task.token_dim)
            cells[name].append(Entry(f"{name}: {layers}{_with(places)}", task, arch))
    return cells


def _triangles(width: int) -> Iterator[Entry]:
    """The reference of the triangle centre is the same task at length 3, which a state can hold."""
    for length, heads in ((3, 2), (8, 2), (16, 2), (16, 4)):
        arch = Architecture(((heads, 24 // heads),) * 2, width, 0, 24)
        yield Entry(f"triangle centre T={length}: {arch.name}", TriangleCentre(length), arch)


def _with(positions: int) -> str:
    return ", positions" if positions else ""


def _shape(layers: str, positions: int, task: Task, width: int) -> Architecture:
    arch = Architecture.parse(layers, width=width, positions=positions)
    deep = task.token_dim * (1 + max(h for h, _ in arch.layers)) if arch.depth > 1 else 0
    return replace(arch, embed_dim=max(arch.embed_dim, deep, 16))


def judged(group: str, trained: Sequence[Trained]) -> list[dict[str, Any]]:
    """One task's cells, the reference first: every prediction beside what training says relative to the reference."""
    rows = []
    for t in trained:
        prediction = predict(t.cell.task, t.cell.arch)
        ratio = t.best / trained[0].best
        done = solved(t.best, trained[0].best)
        rows.append(
            {
                "group": group,
                **t.as_row(),
                "predicted": prediction.verdict,
                "exponent": None if math.isinf(prediction.exponent) else round(prediction.exponent, 3),
                "limiting": prediction.limiting,
                "warrant": prediction.warrant,
                "reference": trained[0].cell.name,
                "ratio": float(f"{ratio:.3g}"),
                "trained": "solved" if done else "not solved",
                "agree": done == prediction.cheap,
            }
        )
    return rows


def confusion(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """How many cells were predicted cheap or not, and solved or not.

    >>> confusion([{"predicted": "cheap", "trained": "solved"}, {"predicted": "costly", "trained": "solved"}])
    {'cheap': {'solved': 1, 'not solved': 0}, 'costly': {'solved': 1, 'not solved': 0}}
    """
    table = {kind: {"solved": 0, "not solved": 0} for kind in ("cheap", "costly")}
    for row in rows:
        table["cheap" if row["predicted"] == "cheap" else "costly"][row["trained"]] += 1
    return table


def tiny(cells: Sequence[Entry]) -> list[Entry]:
    """The same cells with narrow feed-forwards, to see that everything runs."""
    return [replace(cell, arch=replace(cell.arch, width=4)) for cell in cells]
