"""The grid's rows as rows of the evidence: one source, each change with the error of its paired differences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from headcount.sizing.paired_difference import PairedDifference, best_rates, paired_differences, pooled_deviation
from studies.shape.grid import BASE

# What each pair of shapes changes, and by how many steps of its kind.
CHANGES = (
    ("halve key-value heads", BASE, "8 (4) x 32", 1),
    ("halve key-value heads", BASE, "8 (2) x 32", 2),
    ("halve key-value heads", BASE, "8 (1) x 32", 3),
    ("head_dim 16 to 32", "16 x 16", BASE, 1),
    ("head_dim 32 to 64", BASE, "4 x 64", 1),
    ("head_dim 64 to 128", "4 x 64", "2 x 128", 1),
    ("one head for eight", BASE, "1 x 256", 1),
    ("half the heads, same head_dim", BASE, "4 x 32", 1),
    ("twice the heads, same head_dim, keys and values shared", BASE, "16 (4) x 32", 1),
    ("heads growing with depth", BASE, "ramp", 1),
    ("early layers wide, late ones narrow", BASE, "early wide, late narrow", 1),
)
HEAD = "# Written by `make docs` from docs/data/shape_grid.json: the grid of our own as one source.\n"


def own_rows(grid: Mapping[str, Any]) -> str:
    """The TOML text that enters the grid into the table."""
    rows = grid["rows"]
    deviation, free = pooled_deviation(paired_differences(rows, BASE))
    chosen = best_rates(rows)
    present = set(chosen)
    blocks = [_block(rows, chosen, *change) for change in CHANGES if {change[1], change[2]} <= present]
    paired = f"[paired]\ndeviation = {deviation:.5f}\nfree = {free}\n"
    return HEAD + "\n" + paired + "".join(blocks)


def difference(rows: Sequence[Mapping[str, Any]], before: str, after: str) -> PairedDifference:
    """The paired difference of one shape from another."""
    (paired,) = [d for d in paired_differences(rows, before) if d.shape == after]
    return paired


def _block(
    rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, float], change: str, before: str, after: str, steps: int
) -> str:
    paired = difference(rows, before, after)
    base, value = (_mean(rows, name, chosen[name]) for name in (before, after))
    error = paired.deviation / len(paired.percents) ** 0.5
    low, high = paired.interval()
    name = f"headcount-grid-{after}".replace(" ", "").replace("(", "-").replace(")", "-").replace(",", "-")
    where = f"docs/data/shape_grid.json: paired {paired.mean:+.3f}% [{low:+.3f}, {high:+.3f}]"
    where += "; the best rate is an end of those tried" if paired.edge else ""
    size = f"{rows[0]['parameters'] / 1e6:.1f} M, plays and web passages, one pass"
    fields = {
        "id": f"{name}-from-{before.replace(' ', '')}" if before != BASE else name,
        "change": change,
        "from": before,
        "to": after,
        "steps": steps,
        "size": size,
        "seeds": len(paired.percents),
        "metric": "loss",
        "base": round(base, 6),
        "value": round(value, 6),
        "error": round(max(error, 1e-4), 5),
        "held": "parameters, seeds and data order, each at its best of three rates",
        "source": "headcount",
        "where": where,
        "kind": "ours",
        "checked": "quoted",
    }
    return "\n[[row]]\n" + "".join(f"{key} = {json.dumps(item)}\n" for key, item in fields.items())


def _mean(rows: Sequence[Mapping[str, Any]], shape: str, rate: float) -> float:
    return fmean(row["loss"] for row in rows if row["shape"] == shape and row["rate"] == rate)


def read(path: Path) -> dict[str, Any] | None:
    """A file of the study, or nothing where it has not been run."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
