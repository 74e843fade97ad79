"""The InfoFlow page: the battery as a confusion table, published tables beside ours. Stored JSON in, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from headcount.numerals import counted
from headcount.refusals import refuse_unknown
from headcount.report.rendering import both, render
from studies.infoflow.pair_page import beyond_choosing, by_draws, by_widths, entered_by_one_matrix
from studies.infoflow.scatter import scatter
from studies.infoflow.solved import FACTOR, FAILED, FLOOR, solved
from studies.stored import DATA, stored

UNSEEN = "not looked into yet"
WIDE, NARROW = 760, 372  # pixels of the figure on a wide and on a narrow screen

INFOFLOW = (
    "infoflow_tables.json",
    "infoflow_battery.json",
    "infoflow_disagreements.json",
    "pair_table.json",
    "held_out_battery.json",
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Shown:
    """A table of the page: its title, a sentence on how it was measured, what it comes to, and its rows."""

    title: str
    measured: str
    says: str
    rows: tuple[Row, ...]
    published: bool
    ratios: bool


def stored_page() -> str:
    """The page of the stored measurements."""
    return page(*(stored(DATA / name) for name in INFOFLOW))


def page(
    tables: Mapping[str, Any],
    battery: Mapping[str, Any],
    looked_into: Mapping[str, str] | None = None,
    pairs: Mapping[str, Any] | None = None,
    held_out: Mapping[str, Any] | None = None,
) -> str:
    """One self-contained HTML page of what `studies.infoflow.tables` and its siblings wrote.

    `looked_into` holds a sentence for each cell whose disagreement somebody has followed up, by the cell's name.
    """
    once = {f"once, {name}": _once(pairs[name]) for name in ("sphere", "gaussian") if pairs and name in pairs}
    tables = {**once, **tables}
    rows: list[Row] = list(battery.get("rows", []))
    notes = dict(looked_into or {})
    if rows:
        refuse_unknown(notes, [row["cell"] for row in rows], "the disagreements looked into")
    return render(
        "infoflow.html",
        "studies.infoflow",
        date=max((part.get("date", "") for part in (*battery.get("runs", {}).values(), *tables.values())), default=""),
        rule={"factor": FACTOR, "floor": FLOOR, "failed": FAILED},
        battery=battery if rows else None,
        figure=both("scatter", *(scatter(rows, width=width) for width in (WIDE, NARROW))) if rows else "",
        groups=_groups(rows, battery.get("runs", {})),
        apart=[{**row, "note": notes.get(row["cell"], UNSEEN)} for row in rows if not row["agree"]],
        unseen=UNSEEN,
        agree=sum(row["agree"] for row in rows if row["cell"] != row["reference"]),
        compared=sum(row["cell"] != row["reference"] for row in rows),
        total=len(rows),
        shown=[table for table in (_shown(name, tables[name]) for name in TITLES if name in tables) if table.rows],
        tables=tables,
        held_out=_held_out(held_out) if held_out else None,
        entered=entered_by_one_matrix(pairs or {}),
        draws=by_draws(pairs["draws"]) if pairs and "draws" in pairs else None,
        beyond=beyond_choosing(once["once, gaussian"]) if "once, gaussian" in once else None,
        widths=by_widths(pairs) if pairs else None,
    )


def _held_out(table: Mapping[str, Any]) -> Row:
    """The second battery: the count by the rule fixed before, by today's rules, and who disagrees, with its length."""
    agreed = table["agreement"]
    rows = [row for group in table["groups"].values() for row in group if row["group"] not in agreed["unlearned"]]
    now = {(row["group"], row["cell"]) for row in table["now"]["against"]}
    against = [{**row, "still": (row["group"], row["cell"]) in now} for row in rows if not row["agree"]]
    counted_rows = [row for row in rows if row["cell"] != row["reference"]]
    alone = [row for row in counted_rows if row["warrant"] == "calculus"]
    return {
        **agreed,
        "standards": {factor: _agreeing(counted_rows, factor) for factor in FACTORS},
        "alone": (sum(row["agree"] for row in alone), len(alone)),
        "now": table["now"],
        "against": [row for row in against if row["cell"] != row["reference"]],
        "date": max(row["date"] for row in rows),
        "device": rows[0]["device"],
        "steps": min(row["steps"] for row in rows),
        "longer": max(row["steps"] for row in rows),
    }


def _agreeing(rows: Sequence[Row], factor: float) -> int:
    """How many cells agree where solved means within this factor of the reference."""
    pairs = [(solved(row["nmse"], row["nmse"] / row["ratio"], factor), row["predicted"] == "cheap") for row in rows]
    return sum(trained == cheap for trained, cheap in pairs)


def _groups(rows: Sequence[Row], runs: Mapping[str, Any]) -> list[tuple[str, str, list[Row]]]:
    """Rows by task, each with a line on how it was trained."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    return [(name, _trained(group, runs.get(name)), group) for name, group in groups.items()]


def _trained(rows: Sequence[Row], run: Mapping[str, Any] | None) -> str:
    lengths = ", ".join(dict.fromkeys(str(row["length"]) for row in rows))
    if run is None:
        return f"length {lengths}"
    seeds = counted(run["seeds"], "seed")
    return f"length {lengths}; {run['steps']:,} steps of {run['batch']}, {seeds}, {run['device']}, {run['date']}"


FACTORS = (2, 3, 5, 10, 20, 50)  # of the reference, within which a cell may count as solved
TITLES = {
    "once, sphere": "Pair task, a class token that asks once, at the end",
    "once, gaussian": "The same with Gaussian tokens, matrices for which choosing misses most",
    "gaussian": "Pair task, Gaussian tokens",
    "sphere": "Pair task, tokens of unit length",
    "triangle": "Triangle centre",
    "windows": "Four wells by two layers of one head, with and without positions",
    "routed": "Six maxima by two layers of one head, started near the network that solves them",
    "positions": "Maxima by two layers of one head, with and without positions",
    "positions, longer": "The same, trained longer",
}


def _shown(name: str, table: Mapping[str, Any]) -> Shown:
    pairs = name.removeprefix("once, ") in ("gaussian", "sphere")
    rows = tuple(_with_ratios(table["rows"]) if pairs else table["rows"])
    steps = " and ".join(f"{count:,}" for count in sorted({row.get("steps", table["steps"]) for row in rows}))
    measured = f"Best and median of {table['seeds']} seeds, {steps} steps of {table['batch']} sequences"
    measured += f" ({table['device']}, {table['date']})." if "device" in table else "."
    published = any(row["published"] is not None for row in rows)
    says = " ".join(part for part in (_short_says(rows) if pairs else "", _level_says(rows)) if part)
    return Shown(TITLES[name], measured, says, rows, published, pairs)


def _once(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table of `studies.infoflow.pair_table` as the others are written."""
    rows = [{**row, "nmse": row["best"], "cell": row["cell"].split(", draw")[0]} for row in table["rows"]]
    return {**table, "batch": 256, "rows": rows}


def _with_ratios(rows: Sequence[Row]) -> list[Row]:
    """Every row with its NMSE relative to the (D,D) row of the same D: the published one, and ours by the best."""
    with_ratios, full = [], None
    for row in rows:
        full = row if row["cell"].endswith("(D,D)") else full
        ratios = {f"{key} ratio": _ratio(row[key], full[key]) if full else None for key in ("published", "nmse")}
        with_ratios.append({**row, **ratios})
    return with_ratios


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _short_says(rows: Sequence[Row]) -> str:
    """How often a head too few came out worse, and by how much."""
    short = [row for row in rows if not row["cell"].endswith("(D,D)") and row["nmse ratio"] is not None]
    if not short:
        return ""
    worse = sum(row["nmse ratio"] > 1 for row in short)
    factor = median(row["nmse ratio"] for row in short)
    published = [row["published ratio"] for row in short if row["published ratio"] is not None]
    beside = f"; in the paper {sum(r > 1 for r in published)} of {len(published)} are" if published else ""
    return (
        f"{worse} of the {len(short)} cells with a head too few are worse than (D,D), "
        f"the middle one by a factor of {_factor(factor)}{beside}."
    )


def _level_says(rows: Sequence[Row]) -> str:
    """How far above or below the published level ours lies."""
    ratios = [row["nmse"] / row["published"] for row in rows if row["published"]]
    if not ratios:
        return "Nothing is published for these cells."
    low, middle, high = (_factor(find(ratios)) for find in (min, median, max))
    return f"Our best NMSE is {low} to {high} times the published one, {middle} times in the middle."


def _factor(value: float) -> str:
    """A factor in two digits, or whole.

    >>> _factor(0.437), _factor(27.6), _factor(3112.0)
    ('0.44', '28', '3,112')
    """
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"
