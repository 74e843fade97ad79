"""What is predicted for every stored InfoFlow measurement, said again without training.

`python -m studies.infoflow.predictions` prints every cell whose prediction changed;
the measurements stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headcount.papers.infoflow import predict
from headcount.papers.infoflow.experiments import (
    AS_PUBLISHED,
    pair_cells,
    position_cells,
    triangle_cells,
    window_cells,
)
from headcount.papers.infoflow.trained_cells import Entry
from studies.infoflow.battery import battery, confusion
from studies.infoflow.pair_page import ENTERED
from studies.stored import DATA, stored, written

TABLES = {
    "sphere": pair_cells("sphere"),
    "triangle": triangle_cells(),
    "positions": position_cells(),
    "windows": window_cells(),
}


def main() -> None:
    files = [DATA / name for name in ("infoflow_battery.json", "infoflow_tables.json", "pair_table.json")]
    trained, tables, pairs = (stored(file) for file in files)
    once = {"sphere": pair_cells("sphere", head_dim=16, class_token="last")}
    once[ENTERED] = pair_cells("gaussian", head_dim=16, width=256, **AS_PUBLISHED)
    changes = [*_battery(trained), *_tables(tables, TABLES), *_tables(pairs, once)]
    for file, data in zip(files, (trained, tables, pairs), strict=True):
        written(file, data)
    print(*changes, f"{len(changes)} cells changed", sep="\n")


def _battery(data: dict[str, Any]) -> Iterator[str]:
    for group, run in data["runs"].items():
        rows = [row for row in data["rows"] if row["group"] == group]
        for row, cell in zip(rows, battery(run["length"])[group], strict=True):
            yield from _updated(row, cell, digits=3)
            prediction = predict(cell.task, cell.arch)
            row["limiting"], row["warrant"] = prediction.limiting, prediction.warrant
            row["agree"] = (row["trained"] == "solved") == prediction.cheap
    data["confusion"] = confusion(data["rows"])


def _tables(data: dict[str, Any], tables: dict[str, list[Entry]]) -> Iterator[str]:
    for name, cells in tables.items():
        known = {cell.name: cell for cell in cells}
        for row in data.get(name, {"rows": []})["rows"]:
            if row["cell"] in known:
                yield from _updated(row, known[row["cell"]], digits=None)


def _updated(row: dict[str, Any], cell: Entry, digits: int | None) -> Iterator[str]:
    prediction = predict(cell.task, cell.arch)
    exponent = prediction.exponent if prediction.feasible else None
    rounded = exponent if exponent is None or digits is None else round(exponent, digits)
    before = (row["predicted"], row["exponent"])
    row["predicted"], row["exponent"] = prediction.verdict, rounded
    if before != (prediction.verdict, rounded):
        yield f"{row['cell']}: {before} -> {(prediction.verdict, rounded)} ({prediction.warrant})"


if __name__ == "__main__":
    main()
