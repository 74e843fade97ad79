"""Cells that a GPU trained, once more on a CPU: `python -m studies.infoflow.published_again`.

Which cells, fixed before looking: the triangle centre at lengths 8 and 16 in all its shapes, and of the battery every
fifth deep cell that a GPU trained. The same seeds, samples, rates and steps; the CPU's path shares no kernel with the
GPU's. Rounding parts two trainings after some thousand steps, so seeds differ; what must agree is the level.
Adds to docs/data/published_again.json as cells finish, leaves out what is there, and begins none after `--seconds`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headcount.numerals import today
from headcount.papers.infoflow.experiments import triangle_cells
from headcount.papers.infoflow.trained_cells import Entry, train_cells
from studies.infoflow.battery import battery
from studies.stored import DATA, of_steps, stored, written

EVERY = 5


class Published(NamedTuple):
    """A cell, its stored row, and how it was trained."""

    entry: Entry
    row: dict[str, Any]
    run: dict[str, Any]
    decay: float


def published() -> Iterator[Published]:
    """The cells of the rule."""
    table = stored(DATA / "infoflow_tables.json")["triangle"]
    rows = {row["cell"]: row for row in table["rows"]}
    for cell in triangle_cells():
        if cell.task.length in (8, 16):
            yield Published(cell, rows[cell.name], table, 1e-2)
    known = stored(DATA / "infoflow_battery.json")
    rows = {row["cell"]: row for row in known["rows"]}
    groups = {name: run for name, run in known["runs"].items() if run["device"] != "cpu"}
    deep = [(c, run) for name, run in groups.items() for c in battery(run["length"])[name] if c.arch.depth > 1]
    for cell, run in deep[::EVERY]:
        yield Published(cell, rows[cell.name], run, 1e-4)


def again(one: Published, tiny: bool) -> dict[str, Any]:
    """The cell as a CPU trains it, beside the row that was published."""
    steps, samples, batch = (4, 64, 16) if tiny else (one.run["steps"], one.run["samples"], one.run["batch"])
    recipe = of_steps(steps, samples, batch, 16 if tiny else 4096)
    (trained,) = train_cells([one.entry], recipe, seeds=1 if tiny else one.run["seeds"], weight_decay=one.decay)
    row = trained.as_row()
    ratio = {f"{kind} ratio": round(row[kind] / one.row[kind], 3) for kind in ("nmse", "median")}
    printed = {"published": one.row["nmse"], "published median": one.row["median"], "published on": one.run["device"]}
    return {**row, **printed, **ratio, "steps": recipe.steps, "date": today()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1200.0, help="begin no cell after so many seconds")
    parser.add_argument("--out", type=Path, default=DATA / "published_again.json")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    rows, began = stored(options.out).get("rows", []), time.perf_counter()
    for one in published():
        if any(row["cell"] == one.entry.name for row in rows) or time.perf_counter() - began > options.seconds:
            continue
        rows.append(again(one, options.tiny))
        written(options.out, {"rows": rows, "command": "python -m studies.infoflow.published_again"})
        last = rows[-1]
        print(
            f"{last['cell']:<40} {last['published']:.3g} again {last['nmse']:.3g}; medians ratio {last['median ratio']}"
        )


if __name__ == "__main__":
    main()
