"""Pages of an answer and of the evidence: tables, a forest plot, and what each number rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.files import write_json, write_text
from headcount.notebook import AnswerInNotebook
from headcount.numerals import spoken_bytes
from headcount.report import Exhibit, Passage, article
from headcount.sizing.evidence import EvidenceRow, EvidenceTable
from headcount.sizing.forest import ForestGroup, ForestLine, forest
from headcount.sizing.meta_analysis import PooledChange, left_out, pooled_change

if TYPE_CHECKING:
    from headcount.sizing.ranked_shapes import ShapeAnswer

AXIS = "percent of the loss for one step; right is worse"
DOTS = (
    "A dot is a measurement, its line two standard errors: its own where the source gives them, else those of two runs "
    "as loud as the loudest that others report ({noise:.2g}% each) and the rounding of its numbers. A diamond is the "
    "mean over sources with its 95% interval, the pale bar where a further source would lie."
)
FITTED = (
    "A kind of change with fewer than three sources gets no number. Sources may differ beyond their noise, so the "
    "interval is Hartung and Knapp's around a random-effects mean (Paule and Mandel's tau)."
)
COLUMNS = {
    "change": "change",
    "from": "from",
    "to": "to",
    "found": "found",
    "size": "at",
    "held": "kept equal",
    "source": "source",
    "where": "where",
    "checked": "checked",
}


@dataclass(frozen=True)
class EvidenceSummary(AnswerInNotebook):
    """What was measured about heads, row by row, and what each kind of change comes to."""

    table: EvidenceTable

    @cached_property
    def pooled(self) -> list[PooledChange]:
        """One for each kind of change."""
        return [pooled_change(self.table, change) for change in self.table.changes]

    @property
    def rows(self) -> list[dict[str, object]]:
        return [row.as_row() for row in self.table.rows]

    @property
    def sentence(self) -> str:
        """How much there is, and how much of it gives a number."""
        quoted = sum(row.checked == "quoted" for row in self.table.rows)
        firm = sum(p.mean is not None for p in self.pooled)
        read = f"{len(self.rows)} rows from {len(self.table.sources)} sources, {quoted} of them read in the"
        return f"{read} source's own text; {firm} of {len(self.pooled)} kinds of change have three sources and a number"

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        return {"rows": self.rows, "pooled": [p.as_row() for p in self.pooled], "left out": left_out(self.table)}

    def files(self, out: Path, command: str = "") -> list[Path]:
        """The page, the figure and the rows."""
        page = write_text(out / "evidence.html", evidence_page(self.table, command=command))
        figure = write_text(out / "evidence.svg", evidence_figure(self.table).standalone())
        return [page, figure, write_json(out / "evidence.json", self.rows)]


def evidence_rows(table: EvidenceTable) -> list[dict[str, object]]:
    """The rows for people: what was found, in one cell."""
    return [{**row.as_row(), "found": _finding(row)} for row in table.rows]


def pooled_rows(pooled: Sequence[PooledChange]) -> list[dict[str, object]]:
    """A line for each kind of change; without a number where fewer than three sources have measured it."""
    return [
        {
            "change": p.change,
            "sources": p.sources,
            "rows": len(p.rows),
            "percent per step": _ranged(p.mean, p.interval) if p.mean is not None else "fewer than three: rows only",
            "a further source": "-" if p.prediction is None else "[{:+.2f}, {:+.2f}]".format(*p.prediction),
            "contradiction": "yes" if p.contradicts else "",
        }
        for p in pooled
    ]


def evidence_figure(table: EvidenceTable, *, narrow: bool = False) -> Any:
    """The forest plot of every kind of change of which at least one loss was read."""
    groups = [group for change in table.changes if (group := _group(table, change)) is not None]
    words = "; ".join(f"{g.name}: {len(g.lines)} measurements" + _total_text(g) for g in groups)
    return forest(groups, title="What was measured about heads", words=words, axis=AXIS, narrow=narrow)


def evidence_page(table: EvidenceTable, *, date: str = "", extra: Sequence[Passage] = (), command: str = "") -> str:
    """The table of evidence as a page."""
    pooled = [pooled_change(table, change) for change in table.changes]
    firm = [p for p in pooled if p.mean is not None]
    out = left_out(table)
    inside = sum(row["inside"] for row in out)
    quoted = sum(row.checked == "quoted" for row in table.rows)
    lead = _lead(firm, len(pooled))
    read = f"{len(table.rows)} rows from {len(table.sources)} sources; {quoted} were read in the source's own text. "
    sections = [
        Passage(
            "What was measured",
            (DOTS.format(noise=table.assumed_noise),),
            (Exhibit(evidence_figure(table), "Orange is measured here.", evidence_figure(table, narrow=True)),),
        ),
        Passage("What it comes to", (FITTED, _left(out, inside)), rows=tuple(pooled_rows(pooled))),
        *extra,
        Passage(
            "Row by row",
            (read + "The others are shown and enter no number.",),
            rows=tuple(_listed(row) for row in table.rows),
            columns=COLUMNS,
        ),
    ]
    facts = {"rows": len(table.rows), "sources": len(table.sources), "read in the source": quoted, "pooled": len(firm)}
    return article(
        "How many heads? What was measured", lead, sections, subject="shape", facts=facts, command=command, date=date
    )


def shape_page(answer: ShapeAnswer, *, date: str = "", command: str = "") -> str:
    """An answer as a page: the ranking, models in use beside it, what forbids, and what each part rests on."""
    first = answer.first
    sections = [
        Passage(
            "The first ten",
            ("All have as many parameters: what attention gives up, the feed-forward gets.",),
            rows=tuple(_ranked(row) for row in answer.rows[:10]),
            note="Expected is against the reference, in percent of the loss; its interval is for a further source.",
        ),
        Passage("Beside models in use", rows=tuple(_beside(row) for row in answer.beside())),
        Passage("What each part rests on", rows=tuple(answer.marks)),
        Passage("What theorems say", tuple(answer.theory)),
        Passage(
            "The evidence",
            exhibits=(
                Exhibit(
                    evidence_figure(answer.table),
                    "What was measured about heads.",
                    evidence_figure(answer.table, narrow=True),
                ),
            ),
        ),
    ]
    facts = {
        "parameters": first.cost.parameters,
        "training FLOPs a token": f"{first.cost.training_flops:.2e}",
        "cache a token": spoken_bytes(first.cost.cache_per_token),
        f"cache at {answer.context:,}": spoken_bytes(first.cost.cache),
        "rests on": answer.mark,
    }
    return article(
        f"How many heads for {answer.question}?", answer.sentence, sections, subject="shape", facts=facts,
        command=command, date=date,
    )  # fmt: skip


def _group(table: EvidenceTable, change: str) -> ForestGroup | None:
    pooled = pooled_change(table, change)
    lines = tuple(_line(table, row) for row in table.of(change) if row.fits)
    if not lines:
        return None
    if pooled.mean is None or pooled.interval is None:
        return ForestGroup(change, lines)
    total = ForestLine("together", pooled.mean, *pooled.interval)
    return ForestGroup(change, lines, total, pooled.prediction, f", {pooled.sources} sources")


def _line(table: EvidenceTable, row: EvidenceRow) -> ForestLine:
    value, half = row.per_step or 0.0, 2 * table.error(row) / row.steps
    name = f"{row.source.partition(', arXiv')[0]}, {row.size.split(',')[0]}: {row.before} to {row.after}"
    return ForestLine(name, value, value - half, value + half, row.kind == "ours")


def _total_text(group: ForestGroup) -> str:
    return "" if group.total is None else f", together {group.total.value:+.2f}%"


def _finding(row: EvidenceRow) -> str:
    if row.percent is not None:
        steps = "" if row.steps == 1 else f", {row.per_step:+.2f}% a step"
        return f"{row.percent:+.2f}%{steps}"
    if row.base is not None and row.value is not None:
        return f"{row.base:g} to {row.value:g}"
    return row.says


def _left(out: Sequence[Mapping[str, Any]], inside: int) -> str:
    if not out:
        return "No kind has four sources yet, so that none can be left out and still leave three."
    return f"Left out one by one, {inside} of {len(out)} sources lie where the others predict them."


def _lead(firm: Sequence[PooledChange], kinds: int) -> str:
    if not firm:
        return f"None of {kinds} kinds of change has been measured by three sources."
    parts = [f"{p.change}: {p.mean:+.2f}% of the loss a step, {p.sources} sources" for p in firm]
    return f"{'; '.join(parts)}. {kinds - len(firm)} other kinds have fewer than three sources and no number."


def _ranged(mean: float, ends: tuple[float, float] | None) -> str:
    return f"{mean:+.2f}" + ("" if ends is None else "\n[{:+.2f}, {:+.2f}]".format(*ends))


def _listed(row: EvidenceRow) -> dict[str, object]:
    finding = _finding(row)
    below = row.says if row.says and row.says != finding else row.note
    return {**row.as_row(), "found": f"{finding}\n{below}" if below else finding}


def _ranked(row: Mapping[str, Any]) -> dict[str, object]:
    return {
        "heads": row["by layer"] or row["heads"],
        "head_dim": row["head_dim"],
        "key-value heads": row["key-value heads"],
        "feed-forward": row["feed-forward"],
        "parameters": row["parameters"],
        "cache a token": spoken_bytes(row["cache bytes per token"]),
        "decode FLOPs": f"{row['decode FLOPs']:.2e}",
        "tiles": row["tile efficiency"],
        "expected": row["why"],
        "limits": "; ".join(row["broken"]) or "kept",
    }


def _beside(row: Mapping[str, Any]) -> dict[str, object]:
    sizes = {"cache a token": spoken_bytes(row["cache bytes per token"]), "cache": spoken_bytes(row["cache bytes"])}
    names = ("model", "parameters", "layers", "embed_dim", "heads")
    return {**{name: row[name] for name in names}, **sizes, "why it differs": row["why it differs"]}
