"""Every row of a study as a table: what varies as columns, what never does said once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headcount.numerals import short
from headcount.results import Study
from headcount.results.study import COLUMNS

MOST_ROWS = 2000
FIRST = ("heads", "length", "seed", "nmse", "status")


@dataclass(frozen=True)
class ShownCell:
    """What a cell shows, and what it sorts by."""

    shown: str
    key: str
    numeric: bool


@dataclass(frozen=True)
class Table:
    """The columns that vary with what they mean, the rows, and the columns that hold one value throughout."""

    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[ShownCell, ...], ...]
    constant: tuple[tuple[str, str], ...]
    total: int  # rows of the study, of which these are all or evenly spaced ones


def table(study: Study, most: int = MOST_ROWS) -> Table:
    """The rows of the study; of more than `most`, so many evenly spaced ones: a page must open on a telephone."""
    first = study.rows[0]
    known = {name for row in study for name in row}
    names = [name for name in dict.fromkeys((*COLUMNS, *first)) if name in known]
    names = [name for name in names if not isinstance(first.get(name), list)]  # curves have no cell of their own
    varying = [n for n in names if n in FIRST or _varies([row.get(n) for row in study], first.get(n))]
    order = [*(n for n in FIRST if n in varying), *(n for n in varying if n not in FIRST and n != "run")]
    order += ["run"] if "run" in varying else []
    constant = tuple((study.column_name(n), _cell(study.rows[0].get(n)).shown) for n in names if n not in order)
    step = max(1.0, len(study) / most)
    shown = [study.rows[int(i * step)] for i in range(min(most, len(study)))]
    rows = tuple(tuple(_cell(row.get(n), n) for n in order) for row in shown)
    columns = tuple((study.column_name(n), _meaning(study, n)) for n in order)
    return Table(columns, rows, constant, len(study))


def _varies(values: list[Any], first: Any) -> bool:
    """Whether a value looks another than the first; equal ones need not be spelt."""
    return any(value is not first and str(value) != str(first) for value in values)


def _meaning(study: Study, name: str) -> str:
    """What a column means; a level that is no NMSE says so by its name."""
    return COLUMNS[name].meaning if name in COLUMNS and study.column_name(name) == name else ""


def _cell(value: Any, column: str = "") -> ShownCell:
    if value is None:
        return ShownCell("–", "inf", numeric=True)
    if isinstance(value, bool) or not isinstance(value, int | float):
        shown = {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
        return ShownCell(shown[:8] if column == "run" else shown, shown, numeric=False)
    if isinstance(value, float) and not math.isfinite(value):
        return ShownCell("∞" if value > 0 else "–", "inf", numeric=True)
    shown = (
        short(value, 2, padded=True)
        if column.endswith("nmse") and value > 0
        else f"{value:,}"
        if isinstance(value, int)
        else f"{value:g}"
    )
    return ShownCell(shown, repr(value), numeric=True)
