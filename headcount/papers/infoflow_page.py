"""The InfoFlow page: published tables beside ours, and the battery as a confusion table. Stored JSON in, no torch."""

from __future__ import annotations

from html import escape
from typing import Any

from headcount.report.palette import stylesheet

__all__ = ["page"]


def page(tables: dict[str, Any], battery: dict[str, Any]) -> str:
    """One self-contained HTML page of what `benchmarks.infoflow_tables` and `infoflow_battery` wrote."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>InfoFlow: predicted and trained</title>",
        f"<style>{stylesheet()} td,th{{padding:.15em .7em;text-align:left}} td.n{{text-align:right}}</style><main>",
        "<h1>InfoFlow: predicted and trained</h1>",
        *_battery(battery),
        *_tables(tables),
        "</main></html>",
    ]
    return "\n".join(parts) + "\n"


def _battery(battery: dict[str, Any]) -> list[str]:
    if not battery:
        return []
    rows, run = battery["rows"], battery["run"]
    agree = sum(row["agree"] for row in rows)
    head = (
        f"<h2>Prediction against training: {agree} of {len(rows)} cells agree</h2>"
        f"<p>Every shape of a task has as many parameters as the reference shape; best of {run['seeds']} seeds, "
        f"{run['steps']} steps. Solved: within a factor of the reference.</p>"
    )
    counts = battery["confusion"]
    table = [[kind, counts[kind]["solved"], counts[kind]["not solved"]] for kind in ("cheap", "costly")]
    apart = [row for row in rows if not row["agree"]]
    columns = ("cell", "predicted", "exponent", "nmse", "ratio", "trained", "limiting")
    return [
        head,
        _table(("predicted", "solved", "not solved"), table),
        f"<h3>The {len(apart)} that disagree</h3>",
        _table(columns, [[row[c] for c in columns] for row in apart]),
        "<h3>Every cell</h3>",
        _table(columns[:-1], [[row[c] for c in columns[:-1]] for row in rows]),
    ]


def _tables(tables: dict[str, Any]) -> list[str]:
    titles = {
        "gaussian": "Pair task, Gaussian tokens",
        "sphere": "Pair task, unit tokens",
        "triangle": "Triangle centre",
        "positions": "Two layers of one head, with and without positions",
    }
    columns = ("cell", "nmse", "median", "published", "predicted", "exponent")
    parts = []
    for name, title in titles.items():
        if name in tables:
            found = tables[name]
            parts.append(f"<h2>{title}</h2><p>Best of {found['seeds']} seeds, {found['steps']} steps.</p>")
            parts.append(_table(columns, [[row[c] for c in columns] for row in found["rows"]]))
    return parts


def _table(columns: tuple[str, ...], rows: list[list[Any]]) -> str:
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(_cell(v) for v in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return f"<td class='n'>{value:.3g}</td>"
    return f"<td>{escape('-' if value is None else str(value))}</td>"
