"""A page of any subject: a headline, a sentence that answers, and sections of words, figures and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.drawing.svg import Figure
from headcount.numerals import cell
from headcount.report.rendering import both, render, trusted

LONG = 32  # letters from which a column of words is broken into lines


@dataclass(frozen=True)
class Exhibit:
    """A figure with its caption; `narrow` is the same drawn for a phone, where the wide one would be too small."""

    figure: Figure
    caption: str
    narrow: Figure | None = None


@dataclass(frozen=True)
class Passage:
    """A heading with paragraphs, figures, and rows as a table of the columns named.

    `columns` maps a row's field to its heading; without it every field of the first row is one. What follows the first
    line of a text stands below it in small letters: a number's interval. `note` stands below the table: what a number
    is, where it comes from.
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
    >>> page = article("Three heads", "Three do.", [rows], subject="example")
    >>> "<h1>Three heads</h1>" in page, "1.00e-4" in page, "https://" in page
    (True, True, False)
    """
    parts = [_part(i, section) for i, section in enumerate(sections)]
    return render(
        "article.html",
        headline=headline,
        lead=lead,
        subject=subject,
        facts=[(name, _shown(value)) for name, value in (facts or {}).items()],
        sections=parts,
        command=command,
        date=date,
    )


def _part(number: int, section: Passage) -> dict[str, object]:
    rows = section.rows
    columns = section.columns or ({name: name.replace("_", " ") for name in rows[0]} if rows else {})
    kinds = [_kind([row.get(name) for row in rows]) for name in columns]
    return {
        "heading": section.heading,
        "paragraphs": section.paragraphs,
        "figures": [_figure(f"f{number}-{i}", exhibit) for i, exhibit in enumerate(section.exhibits)],
        "columns": list(zip(columns.values(), kinds, strict=True)),
        "rows": [[(_lines(row.get(name)), k) for name, k in zip(columns, kinds, strict=True)] for row in rows],
        "note": section.note,
        "code": section.code,
    }


def _kind(values: Sequence[Any]) -> str:
    """How a column is set: numbers to the right, long words broken into lines."""
    if all(isinstance(value, int | float | None) or _ranged(value) for value in values):
        return "n"
    return "wrap" if any(len(_shown(value)) > LONG for value in values) else ""


def _ranged(value: Any) -> bool:
    """Whether a text is a number with its interval below it."""
    return isinstance(value, str) and "\n[" in value


def _lines(value: Any) -> tuple[str, str]:
    """A cell's first line, and what stands below it in small letters, as an interval does."""
    first, _, below = _shown(value).partition("\n")
    return first, below


def _figure(name: str, exhibit: Exhibit) -> tuple[Any, str]:
    if exhibit.narrow is not None:
        return both(name, exhibit.figure, exhibit.narrow), exhibit.caption
    return trusted(exhibit.figure.inline(name)), exhibit.caption


def _shown(value: Any) -> str:
    return ", ".join(map(_shown, value)) if isinstance(value, list | tuple) else cell(value)
