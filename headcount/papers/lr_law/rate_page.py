"""A learning-rate study as a page: the parabolas, where the optimum moves, and the law by both roads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from headcount.drawing.axes import axis_name
from headcount.drawing.panels import Panel, figure_of, frames, legend, log_panel
from headcount.numerals import counted, listed, percent, short
from headcount.papers.lr_law.parabola import BestRate, best_rates
from headcount.papers.lr_law.published import PUBLISHED
from headcount.papers.lr_law.two_roads import RateLaw, extrapolated_law, rate_law
from headcount.results.claim import conclusion

if TYPE_CHECKING:
    from headcount.drawing.svg import Figure
    from headcount.results import Study

BIAS = (
    "The second road, the one the paper takes, extrapolates the loss of every rate to longer horizons before it looks "
    "for the optimum. The two steps contradict each other, so its exponent in steps comes out too flat however good "
    "its R² is: it is shown, flagged as biased, and judged by nothing."
)


CellRow = TypedDict(
    "CellRow",
    {
        "parameters": int,
        "steps": int,
        "best lr": str,
        "interval": str,
        "NMSE": str,
        "R2": float,
        "seeds": int,
        "diverged": int,
    },
)
"""The best rate of a size and horizon, for people."""
LawRoad = TypedDict(
    "LawRoad",
    {
        "road": str,
        "exponent in": str,
        "measured": str,
        "interval": str,
        "published": float,
        "verdict": str | None,
        "R2": float,
    },
)
"""An exponent by one road beside the published one; no verdict by a biased road."""


@dataclass(frozen=True)
class RateFindings:
    """What the rows of a learning-rate study say: the optimum of every cell, and the law by one or both roads."""

    best: tuple[BestRate, ...]
    laws: tuple[RateLaw, ...]
    unextrapolated: str = ""  # why the second road could not be taken

    @property
    def law(self) -> RateLaw:
        """The law at trained horizons, the one that is judged."""
        return self.laws[0]

    @property
    def sentence(self) -> str:
        """The law and its verdicts as one sentence."""
        exponents = {"parameters": self.law.parameters, "steps": self.law.steps}
        says = " and ".join(
            f"{exponents[name]} in {name} (published {verdict.predicted:g}: {verdict.outcome})"
            for name, verdict in self.law.verdicts.items()
        )
        return f"the best rate has exponent {says}"

    @property
    def cell_rows(self) -> list[CellRow]:
        """The best rate of every cell, for people."""
        return [
            {
                "parameters": best.parameters,
                "steps": best.steps,
                "best lr": short(best.rate.value),
                "interval": f"[{best.rate.low:.2g}, {best.rate.high:.2g}]",
                "NMSE": short(best.loss.value),
                "R2": round(best.r2, 3),
                "seeds": best.seeds,
                "diverged": sum(best.diverged),
            }
            for best in self.best
        ]

    @property
    def law_rows(self) -> list[LawRoad]:
        """Both roads beside the published exponents, for people: a row for each road and exponent."""
        return [
            {
                "road": law.road + (", biased" if law.biased else ""),
                "exponent in": name,
                "measured": short(exponent.value),
                "interval": f"[{exponent.low:.3g}, {exponent.high:.3g}]",
                "published": getattr(PUBLISHED, name),
                "verdict": law.verdicts[name].outcome if not law.biased else None,
                "R2": round(law.r2, 3),
            }
            for law in self.laws
            for name, exponent in (("parameters", law.parameters), ("steps", law.steps))
        ]

    def as_row(self) -> dict[str, object]:
        """Everything, machine-readable."""
        cells = [best.as_row() for best in self.best]
        return {"cells": cells, "laws": [law.as_row() for law in self.laws], "sentence": self.sentence}


def fitted(study: Study, *, confidence: float = 0.95) -> RateFindings:
    """The best rates and the law of a study, by the second road too where there are horizons and rates enough."""
    law, best = rate_law(study, confidence=confidence), best_rates(study, confidence=confidence)
    try:
        return RateFindings(best, (law, extrapolated_law(study, confidence=confidence)))
    except ValueError as problem:
        return RateFindings(best, (law,), str(problem))


def rate_page(study: Study, *, confidence: float = 0.95, command: str = "", date: str = "") -> str:
    """The page of a study of at least two sizes and two horizons, as self-contained HTML."""
    from headcount.report import Exhibit, Passage, article

    findings = fitted(study, confidence=confidence)
    law = findings.law
    sizes = sorted({b.parameters for b in findings.best})
    curves = [[b for b in findings.best if b.parameters == size] for size in sizes]
    shown = [Exhibit(_parabolas(c, 640), f"{c[0].parameters} parameters", _parabolas(c, 360)) for c in curves]
    moves = Exhibit(_moves(curves, law, 640), "Best rate by steps; lines are the law.", _moves(curves, law, 360))
    roads = (BIAS, f"Not taken here: {findings.unextrapolated}.") if findings.unextrapolated else (BIAS,)
    sections = [
        Passage("The parabolas", (_curve_words(findings.best),), tuple(shown)),
        Passage("Where the optimum moves", (f"The law: {law}.",), (moves,), _within(findings.cell_rows, "best lr")),
        Passage("The law, by two roads", roads, rows=_within(findings.law_rows, "measured"), note=_note(study, law)),
    ]
    facts = {"networks": law.runs, "diverged": law.diverged, "cells": len(findings.best), "seeds": law.seeds}
    title = "Where the best learning rate moves"
    lead = conclusion(findings.sentence)
    return article(title, lead, sections, subject="learning rate", facts=facts, command=command, date=date)


def _within(rows: Sequence[CellRow] | Sequence[LawRoad], column: str) -> tuple[dict[str, object], ...]:
    """Rows whose interval stands below its number."""
    joined: list[dict[str, object]] = [{**row} for row in rows]
    for row in joined:
        row[column] = f"{row[column]}\n{row.pop('interval')}"
    return tuple(joined)


def _note(study: Study, law: RateLaw) -> str:
    row: dict[str, object] = {**study.rows[0]}
    fixed_columns = ("task", "length", "schedule", "batch", "weight_decay")
    fixed = ", ".join(f"{name} {row[name]}" for name in fixed_columns if name in row)
    counts = f"{counted(law.runs, 'network')}, {law.diverged} diverged (as NMSE 1), {percent(law.confidence)} intervals"
    return f"{counts}; `parameters` counts all trainable numbers. Held fixed: {fixed or 'nothing is said'}."


def _curve_words(best: Sequence[BestRate]) -> str:
    worst = min(b.r2 for b in best)
    middle = sorted(b.r2 for b in best)[len(best) // 2]
    points = listed(sorted({len(b.rates) for b in best}))
    return (
        f"Mean NMSE over seeds at every rate, and the parabola through the {points} rates "
        f"around the smallest: R² {middle:.3f} in the median, {worst:.3f} at worst."
    )


def _parabolas(cells: Sequence[BestRate], width: int) -> Figure:
    """Levels and parabolas of one size, a colour per horizon; a vertical mark at each optimum."""
    height = 300
    (frame,) = frames(1, width=width, height=height)
    logs = [math.log10(rate) for best in cells for rate in best.tried]
    panel = log_panel(frame, logs, [level for best in cells for level in best.levels])
    parts = [panel.axes, axis_name(frame, "NMSE"), _rates_below(panel, cells[0].tried)]
    for i, best in enumerate(cells):
        tried = [(math.log10(r), v) for r, v in zip(best.tried, best.levels, strict=True)]
        parts += [panel.line(_curve(best), f"line ks{i % 4}"), panel.marks(tried, i % 4)]
        parts.append(panel.marks([(math.log10(best.rate.value), best.loss.value)], i % 4, "cross", 6.0))
    parts.append(legend([f"{best.steps} steps" for best in cells], frame.right - 90, frame.top + 4))
    words = "; ".join(f"{b.steps} steps: best at {b.rate.value:.2g}" for b in cells)
    title = f"NMSE by learning rate, {cells[0].parameters} parameters"
    return figure_of(parts, width=width, height=height, title=title, words=words)


def _curve(best: BestRate, points: int = 24) -> list[tuple[float, float]]:
    low, high = math.log(best.rates[0]), math.log(best.rates[-1])
    logs = [low + (high - low) * i / points for i in range(points + 1)]
    middle, bend = math.log(best.rate.value), best.curvature.value
    return [(log / math.log(10), best.loss.value * math.exp(bend * (log - middle) ** 2)) for log in logs]


def _moves(curves: Sequence[Sequence[BestRate]], law: RateLaw, width: int) -> Figure:
    """Best rates with their intervals against steps, a colour per size, and the law through them."""
    height = 320
    (frame,) = frames(1, width=width, height=height)
    cells = [best for line in curves for best in line]
    steps = sorted({best.steps for best in cells})
    inside = [
        v for b in cells for v in (max(b.rate.low, b.rate.value / 4), b.rate.value, min(b.rate.high, 4 * b.rate.value))
    ]
    panel = log_panel(frame, [math.log10(s) for s in steps], inside)
    parts = [panel.axes, axis_name(frame, "best learning rate")]
    parts.append(panel.below([(math.log10(s), str(s)) for s in steps], "steps"))
    for i, line in enumerate(curves):
        tone, size = i % 4, line[0].parameters
        ends = [(math.log10(s), law(parameters=size, steps=s)) for s in (steps[0], steps[-1])]
        parts.append(panel.line(ends, f"line ks{tone}"))
        for best in line:
            x = math.log10(best.steps) + 0.008 * (i - 1)
            low, high = max(best.rate.low, min(inside)), min(best.rate.high, max(inside))
            parts.append(panel.line([(x, low), (x, high)], f"ring ks{tone}"))
            parts.append(panel.marks([(x, best.rate.value)], tone))
    parts.append(legend([f"{line[0].parameters} parameters" for line in curves], frame.right - 130, frame.top + 4))
    return figure_of(parts, width=width, height=height, title="Best learning rate against steps", words=str(law))


def _rates_below(panel: Panel, rates: Sequence[float]) -> str:
    chosen = rates[:: max(1, len(rates) // 4)]
    return panel.below([(math.log10(rate), f"{rate:.2g}") for rate in chosen], "learning rate")
