"""The comparison on one page, as Markdown and as HTML: every published number, ours, the verdict, the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from headcount.files import write_text
from headcount.fits.agreement import (
    MOST,
    ORDERED,
    SPREADS,
    ComparedCell,
    TableComparison,
    comparisons,
    judge_claims,
)
from headcount.notebook import AnswerInNotebook
from headcount.numerals import counted, short
from headcount.report.rendering import render
from headcount.reproduction.index import REPRODUCTIONS
from headcount.results.claim import Claim, conclusion
from headcount.results.literature import Cells, Published, Ratio
from headcount.results.record import Record, Reproduction
from headcount.results.verdicts import PLURALS
from headcount.sources import PAPERS

TITLES = {
    "head-count": PAPERS["yu2025heads"].title,
    "infoflow": PAPERS["yu2026infoflow"].title,
    "allocation": PAPERS["yu2025allocation"].title,
    "ssm": PAPERS["ssm2025depth"].title,
    "icl": PAPERS["mehta2025icl"].title,
    "consistency": PAPERS["ghosh2025consistent"].title,
    "born": PAPERS["jobanputra2025born"].title,
    "hardmax": PAPERS["alcalde2025exact"].title,
    "induction": PAPERS["chen2024induction"].title,
    "attention-svm": PAPERS["tarzanagh2023svm"].title,
    "prompts": PAPERS["wang2023prompt"].title,
}


@dataclass(frozen=True)
class ShownTable:
    """One cell as text: what the paper prints, what was measured, and whether they agree."""

    published: str
    ours: str
    spread: str
    agrees: bool | None

    @property
    def markdown(self) -> str:
        """The cell on two lines."""
        lines = [self.published] if self.published else []
        mark = {True: " ✓", False: "", None: ""}[self.agrees]
        lines += [f"**{self.ours}**{mark}" + (f" {self.spread}" if self.spread else "")] if self.ours else []
        return "<br>".join(lines) or "-"


@dataclass(frozen=True)
class PageTable:
    """A table ready to be drawn; `verdict` is None for numbers the paper does not print."""

    title: str
    quantity: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[ShownTable, ...]], ...]
    verdict: Claim | None
    against: str = ""


@dataclass(frozen=True)
class PageEntry:
    """One reproduction on the page."""

    reproduction: Reproduction
    record: Record | None
    tables: tuple[PageTable, ...]

    @property
    def verdicts(self) -> list[Claim]:
        """A verdict for each published table, and one for the statements without numbers."""
        table_verdicts = [table.verdict for table in self.tables if table.verdict is not None]
        claims = self.record.measured.claims if self.record else ()
        return [*table_verdicts, *([judge_claims(claims, self.diverged)] if claims else [])]

    @property
    def diverged(self) -> int:
        """How many runs diverged, as the set-up says."""
        lost = self.record.measured.setup.get("diverged", 0) if self.record else 0
        return lost if isinstance(lost, int) else 0

    @property
    def brackets(self) -> str:
        """What stands in brackets where it is not the smallest and the largest seed."""
        return self.record.measured.kept if self.record else ""

    @property
    def outcomes(self) -> list[tuple[str, Claim]]:
        """Verdicts with what each is about."""
        names = [table.title for table in self.tables if table.verdict is not None] + ["statements"]
        return list(zip(names, self.verdicts, strict=False))

    @property
    def size(self) -> str:
        """How large the run was."""
        if self.record is None:
            return "not run"
        if self.record.quick:
            return "quick: smaller than published"
        if self.reproduction.computed:
            return "computed"
        return "reduced" if self.record.measured.reduced else "full"

    @property
    def notes(self) -> list[str]:
        """What is to be said of the run, first in what it was smaller."""
        return self.record.measured.remarks if self.record else []

    @property
    def setup(self) -> str:
        """The set-up in one line."""
        if self.record is None:
            return ""
        return ", ".join(
            f"{key.replace('_', ' ')} {_plain(value)}" for key, value in self.record.measured.setup.items()
        )


@dataclass(frozen=True)
class ComparedRecords(AnswerInNotebook):
    """Records beside the published tables; `shown` names those whose verdicts are rows (None: all)."""

    records: Mapping[str, Record]
    shown: frozenset[str] | None = None

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row for each verdict."""
        return [
            {"name": e.reproduction.name, "table": table, "verdict": v.word, "reason": v.reason, "run": e.size}
            for e in entries(self.records)
            if e.record is not None and (self.shown is None or e.reproduction.name in self.shown)
            for table, v in e.outcomes
        ]

    @property
    def sentence(self) -> str:
        """How many tables and lists of statements came out how."""
        outcomes = [row["verdict"] for row in self.rows]
        names = self.records if self.shown is None else self.shown
        compared = f"{counted(len(outcomes), 'verdict')} on {counted(len(names), 'reproduction')}"
        words = [f"{outcomes.count(word)} {word}" for word in PLURALS if word in outcomes]
        return ", ".join([compared, *words])

    def files(self, out: Path) -> list[Path]:
        """The page, as Markdown and as HTML."""
        pages = {"reproduction.md": markdown(self.records), "reproduction.html": html(self.records)}
        return [write_text(out / name, text) for name, text in pages.items()]


def outcome_lines(record: Record, reproduction: Reproduction) -> list[str]:
    """What one run came to: its tables, its statements, and what is to be said of it."""
    smaller = " (quick: smaller than published)" if record.quick else ""
    lines = [
        f"{c.published.title}: {c.verdict.word}: {c.verdict.reason}{smaller}" for c in comparisons(record, reproduction)
    ]
    for claim in record.measured.claims:
        lines.append(f"{'borne out' if claim.holds else 'not borne out'}: {claim.says}. Here: {claim.ours}")
    return [*lines, *record.measured.remarks]


def entries(records: Mapping[str, Record]) -> list[PageEntry]:
    """Every reproduction with its record where there is one."""
    return [_entry(r, records.get(r.name)) for r in REPRODUCTIONS]


def markdown(records: Mapping[str, Record]) -> str:
    """The page as Markdown."""
    return _render("reproduction.md", records)


def html(records: Mapping[str, Record]) -> str:
    """The page as HTML that needs no other file."""
    return _render("reproduction.html", records)


def _entry(reproduction: Reproduction, record: Record | None) -> PageEntry:
    if record is None:
        empty = (_beside(TableComparison(p, (), (0, 0), None)) for p in reproduction.published)
        return PageEntry(reproduction, None, tuple(replace(table, verdict=None) for table in empty))
    compared = comparisons(record, reproduction)
    known = {c.published.title for c in compared}
    selected = bool(record.measured.kept)
    rest = [
        _alone(title, cells, selected=selected) for title, cells in record.measured.tables.items() if title not in known
    ]
    return PageEntry(reproduction, record, (*(_beside(c) for c in compared), *rest))


def _beside(comparison: TableComparison) -> PageTable:
    published = comparison.published
    cells = {(c.row, c.column): c for c in comparison.cells}
    rows = []
    for row in published.rows:
        line = []
        for column in published.columns:
            spread, cell = published.spread_at(row, column), cells.get((row, column))
            printed = short(published.at(row, column)) + (f" ± {short(spread)}" if spread else "")
            ours, around = ("", "") if cell is None else (short(cell.ours), _range(cell.values))
            line.append(ShownTable(printed, ours, around, None if cell is None else cell.agrees))
        measured = [cells[row, column] for column in published.columns if (row, column) in cells]
        rows.append((str(row), (*line, _distance(published, measured))))
    unit = "ours / published" if isinstance(published.measure, Ratio) else "ours - published"
    corner, columns = f"{published.row} \\ {published.column}", (*map(str, published.columns), unit)
    return PageTable(
        published.title, published.quantity, corner, columns, tuple(rows), comparison.verdict, str(published.source)
    )


def _distance(published: Published, cells: Sequence[ComparedCell]) -> ShownTable:
    """How far a row lies from the published one, from its smallest to its largest distance."""
    if isinstance(published.measure, Ratio):
        far = [short(value, 2) for value in sorted(c.ratio for c in cells if c.ratio is not None)]
    else:
        far = [f"{value:+.2g}" for value in sorted(c.ours - c.published for c in cells)]
    ends = list(dict.fromkeys(far[:1] + far[-1:]))
    return ShownTable(" to ".join(ends), "", "", None)


def _alone(title: str, cells: Cells, *, selected: bool = False) -> PageTable:
    columns = list(dict.fromkeys(column for _, column in cells))
    names = list(dict.fromkeys(row for row, _ in cells))
    if all(isinstance(name, int | float) for name in names):
        names = sorted(names)
    rows = tuple(
        (str(row), tuple(_only(cells.get((row, column), ()), selected=selected) for column in columns)) for row in names
    )
    return PageTable(title, "", "", tuple(map(str, columns)), rows, None)


def _only(values: Sequence[float], *, selected: bool = False) -> ShownTable:
    """The median of the seeds; of best and median, the second."""
    middle = (values[-1] if selected else median(values)) if values else None
    return ShownTable("", "" if middle is None else short(middle), _range(values), None)


def _range(values: Sequence[float]) -> str:
    return f"[{short(min(values))}, {short(max(values))}]" if len(values) > 1 else ""


def _plain(value: Any) -> str:
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _render(name: str, records: Mapping[str, Record]) -> str:
    page_entries = entries(records)
    papers = [(title, [e for e in page_entries if e.reproduction.paper == key]) for key, title in TITLES.items()]
    rules = {"spreads": f"{SPREADS:g}", "most": f"{MOST:.0%}", "ordered": f"{ORDERED:.0%}"}
    date = max((record.date for record in records.values()), default="")[:10]
    text = render(
        name,
        "headcount.reproduction",
        date=date,
        papers=papers,
        entries=page_entries,
        rules=rules,
        answer=_answer(page_entries),
    )
    return text if name.endswith("html") else _tidy(text)


def _answer(page_entries: Sequence[PageEntry]) -> str:
    """How many published tables came out how, in one sentence."""
    outcomes = [verdict.word for entry in page_entries for verdict in entry.verdicts]
    counts = ", ".join(f"{outcomes.count(word)} {meant}" for word, meant in PLURALS.items() if word in outcomes)
    return conclusion(f"of {len(outcomes)} published tables and lists of statements, {counts}")


def _tidy(text: str) -> str:
    lines, out = [line.rstrip() for line in text.splitlines()], []
    for line in lines:
        if line or (out and out[-1]):
            out.append(line)
    return "\n".join(out).rstrip() + "\n"
