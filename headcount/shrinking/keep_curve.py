"""Quality, bytes and time of a language model against how much of its attention is kept, as rows and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headcount.drawing.panels import figure_of, frames, plain_panel
from headcount.drawing.svg import Figure
from headcount.files import write_json, write_text
from headcount.notebook import AnswerInNotebook
from headcount.shrinking.language_model import Calibrated, CutModel, cut_to
from headcount.shrinking.report_rows import JsonRow

KEEPS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
LOST = 0.03  # of perplexity, the most that the sentence allows

SHOWN = {
    "perplexity x": "Perplexity over the original's",
    "file MB": "Whole file, MB",
    "cache bytes/token": "Cache, bytes per token",
    "token ms": "Milliseconds per token written",
}


@dataclass(frozen=True)
class KeepCurve(AnswerInNotebook):
    """Every budget of one calibration: a row for each share of the attention that is kept."""

    model: str
    tokens: int
    rows: list[dict[str, float]]

    @property
    def sentence(self) -> str:
        """The least that loses little."""
        fractions = [row["keep"] for row in self.rows if row["perplexity x"] <= 1 + LOST]
        if not fractions:
            return f"none of these budgets loses at most {LOST:.0%} of perplexity"
        return f"keeping {min(fractions):g} of the attention loses at most {LOST:.0%} of perplexity"

    def to_json(self) -> JsonRow:
        """A JSON-ready dictionary."""
        return {"model": self.model, "rows": self.rows}

    def files(self, out: Path) -> list[Path]:
        """The rows, and the picture."""
        rows = write_json(out / "curve.json", self.to_json())
        return [rows, write_text(out / "curve.svg", curve_picture(self.model, self.rows).standalone())]


def keep_curve(seen: Calibrated, cast: str = "bf16", say: Callable[[str], None] = lambda _: None) -> KeepCurve:
    """Cut a calibrated model to one budget after the other, and judge each."""
    rows = [curve_row(cut_to(seen, seen.plan(keep), cast=cast, generated=8, say=say), keep) for keep in KEEPS]
    return KeepCurve(seen.title, seen.split.calibration.numel(), rows)


def curve_row(cut: CutModel, keep: float) -> dict[str, float]:
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


def curve_picture(title: str, rows: Sequence[dict[str, float]]) -> Figure:
    """Four panels over the share that is kept; perplexity with its interval."""
    ordered = sorted(rows, key=lambda r: r["keep"])
    percents = [100 * r["keep"] for r in ordered]
    parts = []
    for frame, (column, words) in zip(frames(len(SHOWN), width=1200, height=330), SHOWN.items(), strict=True):
        spread = [r[end] for r in ordered for end in ("low", "high")] if column == "perplexity x" else []
        levels = [*(r[column] for r in ordered), *(v for v in spread if v == v)]
        panel = plain_panel(frame, [min(percents) - 3, max(percents) + 3], [min(levels), max(levels) * 1.001])
        body = panel.axes + panel.title(words)
        if spread:
            for x, row in zip(percents, ordered, strict=True):
                body += panel.line([(x, row["low"]), (x, row["high"])], "thin ks0") if row["low"] == row["low"] else ""
        points = list(zip(percents, (r[column] for r in ordered), strict=True))
        body += panel.line(points, "line ks0") + panel.marks(points, 0)
        parts.append(body + panel.below([(x, f"{x:g}") for x in percents], "attention kept, %"))
    return figure_of(parts, width=1200, height=330, title=title, words="Quality, bytes and time against what is kept.")
