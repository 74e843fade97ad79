"""Tables in Markdown and LaTeX: of any rows, and of a study for a paper, NMSE by heads and length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from headcount.results import Study

Grid = list[list[str]]


def table_lines(head: Sequence[str], rows: Iterable[Sequence[Any]], numbers: int = 0) -> list[str]:
    """A Markdown table, a line a row; the last `numbers` columns stand to the right.

    >>> table_lines(("task", "heads"), [("maxima", 3)], numbers=1)
    ['| task | heads |', '|---|---:|', '| maxima | 3 |']
    """
    signs = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return [_row(head), f"|{'|'.join(signs)}|", *map(_row, rows)]


def as_markdown(study: Study) -> str:
    """Heads down, lengths across; a cell is the best and, in brackets, the median NMSE over seeds.

    >>> rows = [{"heads": h, "length": 8, "seed": s, "nmse": 10.0**-h * (1 + s)} for h in (1, 2) for s in (0, 1)]
    >>> print(as_markdown(Study(tuple(rows))))
    | heads | T = 8 |
    |---:|---:|
    | 1 | 1.0e-01 (1.5e-01) |
    | 2 | 1.0e-02 (1.5e-02) |
    """
    head, *body = _grid(study)
    return "\n".join(table_lines(head, body, numbers=len(head)))


def as_latex(study: Study) -> str:
    """The same as a tabular, numbers as powers of ten; needs no package.

    >>> rows = [{"heads": h, "length": 8, "seed": 0, "nmse": 10.0**-h} for h in (1, 2)]
    >>> print(as_latex(Study(tuple(rows))).splitlines()[3])
    1 & $1.0 \\cdot 10^{-1}$ ($1.0 \\cdot 10^{-1}$) \\\\
    """
    head, *body = _grid(study)
    lines = [r"\begin{tabular}{" + "r" * len(head) + "}", " & ".join(_escaped(h) for h in head) + r" \\", r"\hline"]
    lines += [" & ".join(_powers(cell) for cell in line) + r" \\" for line in body]
    return "\n".join([*lines, r"\end{tabular}"])


def _grid(study: Study) -> Grid:
    if not study.rows:
        raise ValueError("the study has no rows yet: nothing to tabulate")
    lengths = study.values("length")
    head = ["heads", *(f"T = {n}" for n in lengths)]
    return [head, *([str(h), *(_cell(study, h, n) for n in lengths)] for h in study.values("heads"))]


def _cell(study: Study, heads: int, length: int) -> str:
    values = [row["nmse"] for row in study.where(heads=heads, length=length) if row["nmse"] is not None]
    return f"{min(values):.1e} ({median(values):.1e})" if values else "-"


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _escaped(text: str) -> str:
    return f"${text}$" if "=" in text else text


def _powers(cell: str) -> str:
    import re

    return re.sub(r"([0-9.]+)e([+-])0*([0-9]+)", lambda m: rf"${m[1]} \cdot 10^{{{m[2].strip('+')}{m[3]}}}$", cell)
