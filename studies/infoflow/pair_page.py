"""What the InfoFlow page says of the pair task: stored JSON of `studies.infoflow.pair_table` in, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ALONE = ("gaussian at length 16, linear embedding, gelu", "gaussian at length 16, gelu")  # the encoder alone differs
ENTERED = "gaussian, width 256, linear embedding, gelu"  # the part of the table in which tokens enter by one matrix

Row = dict[str, Any]


def entered_by_one_matrix(pairs: Mapping[str, Any]) -> Row | None:
    """The published table, tokens entering by one matrix: a line for each D, kinds of feed-forward, what heads ask."""
    table = pairs.get(ENTERED)
    if table is None:
        return None
    return {
        **table,
        "lines": [_line(cells) for cells in _by_shapes(table["rows"])],
        "kinds": _kinds(pairs.get("kinds of feed-forward, linear embedding", {"rows": []})["rows"]),
        "rates": pairs.get("gaussian rates, width 256, linear embedding, gelu"),
        "forms": pairs.get("forms, linear embedding"),
        "near": pairs.get("near, linear embedding, gelu"),
        "alone": [pairs[name] for name in ALONE] if all(name in pairs for name in ALONE) else None,
    }


def _by_shapes(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """(D,D), (D-1,D) and (D,D-1) together, as they stand one after the other."""
    return [rows[i : i + 3] for i in range(0, len(rows), 3)]


def _line(cells: Sequence[Row]) -> Row:
    """One D: its three cells, and how many times (D,D) lies below the lower of the two others."""
    full, *short = cells
    return {
        "D": full["retrievals"],
        "cells": cells,
        "steps": full["steps"],
        "below": min(cell["best"] for cell in short) / full["best"],
        "below by median": min(cell["median"] for cell in short) / full["median"],
    }


def _kinds(rows: Sequence[Row]) -> list[Row]:
    """(D,D) by activation, hidden units and rate, every D side by side."""
    by_kind: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        kind = {key: row[key] for key in ("activation", "width", "lr", "steps")}
        by_kind.setdefault(tuple(kind.values()), kind | {"by": {}})["by"][row["retrievals"]] = row
    return list(by_kind.values())


def by_draws(table: Mapping[str, Any]) -> Row:
    """The pair task by draws of its matrices: three shapes in a row."""
    drawn = _by_shapes(table["rows"])
    ratios = [[short["best"] / full["best"] for short in (first, second)] for full, first, second in drawn]
    first, second = (sorted(column) for column in zip(*ratios, strict=True))
    return {**table, "drawn": drawn, "first": first, "second": second}


def beyond_choosing(table: Mapping[str, Any]) -> list[Row]:
    """Cells a head short in the first layer: what choosing misses beside what is measured, and beside all heads."""
    full = {row["retrievals"]: row for row in table["rows"] if row["cell"].endswith("(D,D)")}
    short = [row for row in table["rows"] if row.get("missed by choosing") is not None]
    return [{**row, "full": full[row["retrievals"]]} for row in short]


def by_widths(pairs: Mapping[str, Any]) -> Row | None:
    """Two pairs by hidden units: the three shapes of a width in a row, and how far each error falls from end to end."""
    table = next((part for name, part in pairs.items() if name.startswith("widths")), None)
    if table is None:
        return None
    wide = sorted({row["width"] for row in table["rows"]})
    shapes = [[row for row in table["rows"] if row["width"] == width] for width in wide]
    falls = [first["best"] / last["best"] for first, last in zip(shapes[0], shapes[-1], strict=True)]
    return {**table, "shapes": list(zip(wide, shapes, strict=True)), "falls": falls, "wide": wide}
