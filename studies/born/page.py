"""docs/born.html from whatever was measured."""

from __future__ import annotations

from typing import Any

from headcount.papers.born.born_page import born_page
from studies.stored import DATA, stored


def page() -> str:
    """The page of the stored rows; parts that are missing are named."""
    table, depth, cuts = (stored(DATA / f"{name}.json") for name in ("born", "alternation", "born_ablation"))
    edges: dict[str, Any] = cuts.get("full") or cuts.get("small") or {}
    in_context = stored(DATA / "born_in_context.json")
    layers = [depth, *(part for name, part in depth.items() if name.startswith("narrow"))]
    dates = [part["date"] for part in (*table.values(), *layers, *in_context.values(), edges) if part.get("date")]
    depths = {_sizes(part): part["rows"] for part in layers if part.get("rows")}
    contexts = {model: part["rows"] for model, part in in_context.items()}
    return born_page(table, depths, edges.get("rows", []), contexts, date=max(dates, default=""))


def _sizes(part: dict[str, Any]) -> str:
    steps = max(row["steps"] for row in part["rows"])
    return f"width {part['embed_dim']}, {steps:,} steps of {part['batch']} words"
