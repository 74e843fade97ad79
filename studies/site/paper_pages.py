"""One page a paper: what is written by hand, then its statements, its tables beside ours and its names."""

from __future__ import annotations

import inspect
from functools import cache
from pathlib import Path
from typing import NamedTuple

import headcount as hc
from headcount.reproduction import read_records, theorems
from headcount.reproduction.side_by_side import PageEntry, entries
from headcount.results.record import Stated
from headcount.sources import PAPERS, Implementation, implementations
from studies.site.links import slug
from studies.site.markup import as_markdown, escaped, table

DOCS = Path(__file__).parents[2] / "docs"


class PaperPage(NamedTuple):
    """A paper's folder, the keys of its sources, and the name under which its tables are reproduced."""

    folder: str
    sources: tuple[str, ...]
    tables: str = ""


PAPER_PAGES = (
    PaperPage("head_count", ("yu2025heads",), "head-count"),
    PaperPage("infoflow", ("yu2026infoflow",), "infoflow"),
    PaperPage("allocation", ("yu2025allocation",), "allocation"),
    PaperPage("ssm", ("ssm2025depth",), "ssm"),
    PaperPage("tensor_lens", ("atad2026lens",)),
    PaperPage("hardmax", ("alcalde2025exact",), "hardmax"),
    PaperPage("attention_svm", ("tarzanagh2023svm",), "attention-svm"),
    PaperPage("induction", ("chen2024induction",), "induction"),
    PaperPage("born", ("jobanputra2025born", "yang2025kneedeep", "huang2025framework"), "born"),
    PaperPage("prompts", ("wang2023prompt",), "prompts"),
    PaperPage("lr_law", ("zhou2026lr",)),
    PaperPage("icl", ("mehta2025icl",), "icl"),
    PaperPage("consistency", ("ghosh2025consistent",), "consistency"),
)


@cache
def _statements() -> tuple[Implementation, ...]:
    theorems.table()
    return tuple(implementations())


@cache
def _entries() -> tuple[PageEntry, ...]:
    return tuple(entries(read_records(DOCS / "data/reproduction")))


def _citation(page: PaperPage) -> str:
    cited = (PAPERS[key] for key in page.sources)
    return "\n".join(f"- *{p.title}*. {p.authors}; {p.where}." for p in cited)


def _in_ten_lines(page: PaperPage) -> str:
    """What the folder says of itself, without the line that names the paper."""
    docstring = (inspect.getdoc(getattr(hc.papers, page.folder)) or "").partition("\n\n")[2]
    return as_markdown(docstring)


def _stated(page: PaperPage) -> str:
    home = f"headcount.papers.{page.folder}."
    statements = [r for r in _statements() if r.source.paper in page.sources or r.code.startswith(home)]
    if not statements:
        return ""
    rows = [
        (_whose(r, page), escaped(r.says), r.status or "not stated", f"`{r.code.rpartition('.')[2]}`")
        for r in statements
    ]
    repaired = [r for r in statements if r.status == "refuted here"]
    says = f"{len(statements)} statements run as code"
    says += f"; false as published, with a counterexample: {len(repaired)}." if repaired else "."
    link = "[Hypotheses and the test of each](../theorems.md)."
    return "\n".join(
        [
            "## Statement by statement",
            "",
            f"{says} {link}",
            "",
            table(["statement", "says", "how it is known", "name"], rows),
        ]
    )


def _whose(result: Implementation, page: PaperPage) -> str:
    name = escaped(result.source.name)
    return (
        name if result.source.paper in page.sources else f"{name} ({escaped(str(result.source).partition(' of ')[2])})"
    )


def _compared(page: PaperPage) -> str:
    measured = [e for e in _entries() if page.tables and e.reproduction.paper == page.tables]
    if not measured:
        return ""
    rows = [row for entry in measured for row in _rows(entry)]
    intro = "Every published number that we know beside ours: [all tables, and the rule](../reproduction.md)."
    lines = (
        ["", "Statements without numbers, as they were measured:", "", *_statements_of(measured)]
        if any(map(_claims, measured))
        else []
    )
    return "\n".join(
        ["## Theirs beside ours", "", intro, "", table(["table", "run", "verdict", "how far"], rows), *lines, ""]
    )


def _claims(entry: PageEntry) -> tuple[Stated, ...]:
    return entry.record.measured.claims if entry.record else ()


def _statements_of(measured: list[PageEntry]) -> list[str]:
    """What each statement says, whether it holds in what was measured, and what that was."""
    claims = [claim for entry in measured for claim in _claims(entry)]
    return [
        f"- *{'holds' if c.holds else 'does not hold'}*: {escaped(c.says)}. Here: {escaped(c.ours)}" for c in claims
    ]


def _rows(entry: PageEntry) -> list[tuple[str, str, str, str]]:
    name = entry.reproduction.name
    link = f"[{name}](../reproduction.md#{slug(name)})"
    if entry.record is None:
        return [(f"`{name}`: {escaped(entry.reproduction.says)}", "not run", "", "")]
    return [
        (f"{link}: {escaped(title)}", entry.size, f"**{verdict.word}**", escaped(verdict.reason))
        for title, verdict in entry.outcomes
    ]


def _again(page: PaperPage) -> str:
    measured = [e for e in _entries() if page.tables and e.reproduction.paper == page.tables]
    if not measured:
        return ""
    rows = [
        (
            f"`headcount reproduce {e.reproduction.name} --quick`",
            *map(escaped, (e.reproduction.times[0], e.reproduction.times[2], e.reproduction.needs or "nothing")),
        )
        for e in measured
    ]
    head = ["command", "quick, two cores", "full size, one GPU", "needs"]
    return "\n".join(["## Make it again", "", table(head, rows)])


def page_of(page: PaperPage) -> str:
    """The whole page: the hand-written part, then what the package knows."""
    written = (DOCS / f"papers/{page.folder}.md").read_text(encoding="utf-8").rstrip()
    title, _, body = written.partition("\n")
    names = f"Every name with fields, shapes and an example: [`hc.{page.folder}`](../reference/{page.folder}.md)."
    about = ["", _citation(page), "", "```{admonition} In ten lines", _in_ten_lines(page), "```", ""]
    rest = [_stated(page), _compared(page), _again(page), "## Reference", "", names, ""]
    return "\n".join([title, *about, body.strip(), "", *rest])


def pages() -> dict[str, str]:
    """The page of every paper."""
    return {f"papers/{page.folder}.md": page_of(page) for page in PAPER_PAGES}
