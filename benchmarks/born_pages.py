"""docs/born.html from whatever was measured: `python -m benchmarks.born_pages`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.infoflow_stored import stored
from headcount.papers.born.born_page import born_page
from headcount.report import write_article

__all__ = ["page"]

DATA = Path(__file__).parent.parent / "docs/data"


def page() -> str:
    """The page of the stored rows; parts that are missing are named."""
    table, depth, cuts = (stored(DATA / f"{name}.json") for name in ("born", "alternation", "born_ablation"))
    edges: dict[str, Any] = cuts.get("full") or cuts.get("small") or {}
    dates = [part["date"] for part in (*table.values(), depth, edges) if part.get("date")]
    return born_page(table, depth.get("rows", []), edges.get("rows", []), date=max(dates, default=""))


if __name__ == "__main__":
    print(write_article(DATA.parent / "born.html", page()))
