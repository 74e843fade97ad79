"""A page of any subject: a headline, a sentence that answers, and sections of words, figures and tables."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.drawing.svg import Figure
from headcount.files import whole
from headcount.numerals import short
from headcount.report.rendering import both, render, trusted

__all__ = ["Exhibit", "Passage", "article", "write_article"]


@dataclass(frozen=True)
class Exhibit:
    """A figure with its caption; `narrow` is the same drawn for a phone, where the wide one would be too small."""

    figure: Figure
    caption: str
    narrow: Figure | None = None


@dataclass(frozen=True)
class Passage:
    """A heading with paragraphs, figures, and rows as a table of the columns named.

    `columns` maps a row's field to its heading; without it every field of the first row is one. `note` stands below the
    table: what a number is, where it comes from.
    """

    heading: str
    paragraphs: tuple[str, ...] = ()
    exhibits: tuple[Exhibit, ...] = ()
    rows: tuple[Mapping[str, Any], ...] = ()
    columns: Mapping[str, str] | None = None
    note: str = ""
    code: str = ""


def article(
    headline: str,
    lead: str,
    sections: Sequence[Passage],
    *,
    subject: str,
    facts: Mapping[str, Any] | None = None,
    command: str = "",
    date: str = "",
) -> str:
    """The page as one self-contained HTML text: light, dark and narrow, with the date and the version on it.

    >>> rows = Passage("Rows", rows=({"heads": 3, "nmse": 1e-4},))
    >>> page = article("Three heads", "So: three.", [rows], subject="example")
    >>> "<h1>Three heads</h1>" in page, "1.00e-4" in page, "https://" in page
    (True, True, False)
    """
    from headcount import __version__

    parts = [_part(i, section) for i, section in enumerate(sections)]
    return render(
        "article.html",
        headline=headline,
        lead=lead,
        subject=subject,
        facts=[(name, _shown(value)) for name, value in (facts or {}).items()],
        sections=parts,
        command=command,
        date=date or f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        version=__version__,
    )


def write_article(path: Path, text: str) -> Path:
    """Write a page, whole or not at all."""
    with whole(path) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return path


def _part(number: int, section: Passage) -> dict[str, Any]:
    rows = section.rows
    columns = section.columns or ({name: name.replace("_", " ") for name in rows[0]} if rows else {})
    numeric = [all(isinstance(row.get(name), int | float | None) for row in rows) for name in columns]
    return {
        "heading": section.heading,
        "paragraphs": section.paragraphs,
        "figures": [_figure(f"f{number}-{i}", exhibit) for i, exhibit in enumerate(section.exhibits)],
        "columns": list(zip(columns.values(), numeric, strict=True)),
        "rows": [[(_shown(row.get(name)), n) for name, n in zip(columns, numeric, strict=True)] for row in rows],
        "note": section.note,
        "code": section.code,
    }


def _figure(name: str, exhibit: Exhibit) -> tuple[Any, str]:
    if exhibit.narrow is not None:
        return both(name, exhibit.figure, exhibit.narrow), exhibit.caption
    return trusted(exhibit.figure.inline(name)), exhibit.caption


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return short(value, 3)
    if isinstance(value, list | tuple):
        return ", ".join(_shown(v) for v in value)
    return str(value)
