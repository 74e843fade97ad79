"""Rows of what `compress` reports, with their types. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

JsonRow = dict[str, object]  # what a value writes as JSON; read back by nobody but a person's program

BeforeAfter = dict[str, str | float | None]  # what ("") is compared, original, compact, ratio


class RankRow(TypedDict):
    """One layer's part: the rows that each of its heads keeps, their sum, and of how many."""

    layer: int
    part: str
    ranks: list[int]
    sum: int
    of: int


def rank_rows(kept: Iterable[tuple[int, str, int, int]]) -> list[RankRow]:
    """One row per layer and part, of what every head keeps: (layer, part, rows, of how many).

    >>> rank_rows([(0, "query-key", 3, 8), (0, "query-key", 4, 8)])
    [{'layer': 0, 'part': 'query-key', 'ranks': [3, 4], 'sum': 7, 'of': 16}]
    """
    by_part: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for layer, part, rows, full in kept:
        by_part.setdefault((layer, part), []).append((rows, full))
    return [
        {
            "layer": layer,
            "part": part,
            "ranks": [rows for rows, _ in heads],
            "sum": sum(rows for rows, _ in heads),
            "of": sum(full for _, full in heads),
        }
        for (layer, part), heads in sorted(by_part.items())
    ]


def kept_by_part(rows: Sequence[RankRow]) -> list[str]:
    """Of many layers one sentence a part: how much is kept of it, and in which layers least and most.

    >>> some = [{"layer": i, "part": "query-key", "ranks": [r], "sum": r, "of": 8} for i, r in enumerate((8, 2, 5))]
    >>> kept_by_part(some)
    ['query-key: 62% of the rows are kept, least in layer 1 (25%) and most in layer 0 (100%)']
    """
    sentences = []
    for part in dict.fromkeys(row["part"] for row in rows):
        of_part = [row for row in rows if row["part"] == part]
        fraction = sum(row["sum"] for row in of_part) / sum(row["of"] for row in of_part)
        order = sorted(of_part, key=lambda row: row["sum"] / row["of"])
        least, most = (f"layer {row['layer']} ({row['sum'] / row['of']:.0%})" for row in (order[0], order[-1]))
        sentences.append(f"{part}: {fraction:.0%} of the rows are kept, least in {least} and most in {most}")
    return sentences


def before_after(what: str, before: float, after: float) -> BeforeAfter:
    """A figure of the original and of the smaller model, and their ratio.

    >>> before_after("parameters", 200, 150)["ratio"]
    0.75
    """
    return {"": what, "original": before, "compact": after, "ratio": after / before if before else None}
