"""Quality, bytes and time of a language model against how much of its attention is kept, as rows and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.drawing.panels import figure_of, frames, plain_panel
from headcount.drawing.svg import Figure
from headcount.shrinking.language_model import CutModel

__all__ = ["curve_picture", "curve_row"]

SHOWN = {
    "perplexity x": "Perplexity over the original's",
    "file MB": "Whole file, MB",
    "cache bytes/token": "Cache, bytes per token",
    "token ms": "Milliseconds per token written",
}


def curve_row(cut: CutModel, keep: float) -> dict[str, Any]:
    """One budget."""
    costs = cut.costs[1]
    return {
        "keep": keep,
        "perplexity x": cut.quality.ratio,
        "low": cut.quality.low,
        "high": cut.quality.high,
        "file MB": cut.bytes.compact / 1e6,
        "cache bytes/token": costs.cache_per_token,
        "prefill ms": 1000 * costs.prefill,
        "token ms": 1000 * costs.decode,
    }


def curve_picture(title: str, rows: Sequence[dict[str, Any]]) -> Figure:
    """Four panels over the share that is kept; perplexity with its interval."""
    found = sorted(rows, key=lambda r: r["keep"])
    shares = [100 * r["keep"] for r in found]
    parts = []
    for frame, (column, words) in zip(frames(len(SHOWN), width=1200, height=330), SHOWN.items(), strict=True):
        spread = [r[end] for r in found for end in ("low", "high")] if column == "perplexity x" else []
        levels = [*(r[column] for r in found), *(v for v in spread if v == v)]
        panel = plain_panel(frame, [min(shares) - 3, max(shares) + 3], [min(levels), max(levels) * 1.001])
        body = panel.axes + panel.title(words)
        if spread:
            for x, row in zip(shares, found, strict=True):
                body += panel.line([(x, row["low"]), (x, row["high"])], "thin ks0") if row["low"] == row["low"] else ""
        points = list(zip(shares, (r[column] for r in found), strict=True))
        body += panel.line(points, "line ks0") + panel.marks(points, 0)
        parts.append(body + panel.below([(x, f"{x:g}") for x in shares], "attention kept, %"))
    return figure_of(parts, width=1200, height=330, title=title, words="Quality, bytes and time against what is kept.")
