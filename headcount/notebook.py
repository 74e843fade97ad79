"""Values as a prompt and a notebook show them: short words within 80 columns, and small HTML tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Protocol, runtime_checkable

from headcount.numerals import cell

MOST_ROWS = 40


def within_columns(words: str, columns: int = 80, most: int = 560) -> str:
    """A text broken into lines of so many columns, and cut where it would still be long.

    >>> print(within_columns("<Study of a few words>", columns=14))
    <Study of a
      few words>
    """
    words = words if len(words) <= most else f"{words[: most - 4]} ...>"
    return textwrap.fill(words, columns, subsequent_indent="  ", break_long_words=True, break_on_hyphens=False)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A plain table; of many rows the first ones, and how many more there are.

    >>> html_table(["heads"], [[4]])
    '<table><thead><tr><th>heads</th></tr></thead><tbody><tr><td>4</td></tr></tbody></table>'
    """
    lines = [[escape(cell(value)) for value in row] for row in rows]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{value}</td>' for value in line)}</tr>" for line in lines[:MOST_ROWS])
    more = f"<p>and {len(lines) - MOST_ROWS:,} rows more</p>" if len(lines) > MOST_ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_answer(sentence: str, rows: Sequence[Mapping[str, Any]], picture: str = "") -> str:
    """What an answer says, its picture where there is one, and its rows.

    >>> html_answer("four heads", [{"heads": 4}])
    '<p>Four heads</p><table><thead><tr><th>heads</th></tr></thead><tbody><tr><td>4</td></tr></tbody></table>'
    """
    table = html_table(tuple(rows[0]), [tuple(row.values()) for row in rows]) if rows else ""
    return html_words(sentence) + picture + table


@runtime_checkable
class _Answer(Protocol):
    @property
    def rows(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def sentence(self) -> str: ...


class AnswerInNotebook:
    """What a notebook shows of an answer that says no more of it: its sentence over its rows."""

    def _repr_html_(self: _Answer) -> str:
        return html_answer(self.sentence, self.rows)


def html_words(words: str) -> str:
    """A paragraph, its first letter large."""
    return f"<p>{escape(words[:1].upper() + words[1:])}</p>"
