"""The second battery, rule fixed before training: `python -m studies.infoflow.held_out_battery --device cuda --jobs 8`.

Lengths 16 and 48, neither of which a rule was tuned to. Every task has a reference (the least shape that `predict`
calls cheap), shapes one head short and one head over, and where it reads by place the reference without positions;
all of one task have as many parameters. Four seeds, two learning rates in turn, 8,192 steps.

- A shape has solved its task by best (by median) when its best (median) NMSE is within a factor of 5 of the reference's
  best (median), or below 3e-5, and not above 0.3: `studies.infoflow.solved`.
- The reference is not counted. A reference whose best NMSE is not below 1e-2 is trained again with four times the
  steps, its whole task with it; if it is still not below, the task at this length counts as unlearned and is left out,
  and the page names it.
- Agreement: solved and predicted cheap, or not solved and predicted costly. A disagreement is shown with its warrant.

What a share of tasks gave is written as it finishes, and what stands in the file is not trained again. `--judge` trains
nothing: it asks `predict` of today about the cells that stand there and writes the count as `now`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from headcount.numerals import today
from headcount.papers.infoflow import predict
from headcount.papers.infoflow.trained_cells import Entry
from headcount.tasks import Induction, KthLargest, LinearMax, OppositePair, PairMax, PositionSum, UnitSphere, Wells
from headcount.training.bank_jobs import environment
from studies.infoflow.battery import Group, P, entries, tiny
from studies.infoflow.held_out_tasks import PlaceAndMaxima, ProductOfMaxima, RankSum, TwoHops
from studies.infoflow.solved import solved
from studies.infoflow.trained_battery import Rows, trained_shares
from studies.stored import DATA, of_steps, stored, written

LENGTHS = (16, 48)
LEARNED = 1e-2  # a reference above this is trained again, then left out
LONGER = 4


def groups_of(length: int) -> list[Group]:
    """Every task with its reference and the shapes around it."""
    repeated = LinearMax([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 2]], length)
    return [
        ("2 maxima", LinearMax.random(2, 4, length), "2x8", 0, (("1x8", 0), ("3x8", 0))),
        ("3 maxima", LinearMax.random(3, 4, length), "3x8", 0, (("2x8", 0), ("4x8", 0))),
        ("4 maxima", LinearMax.random(4, 4, length), "4x8", 0, (("3x8", 0), ("5x8", 0))),
        ("5 maxima in 3 directions", repeated, "3x8", 0, (("2x8", 0), ("4x8", 0), ("5x8", 0))),
        ("product of 3 maxima", ProductOfMaxima(3, length), "3x8", 0, (("2x8", 0), ("4x8", 0))),
        ("2 wells", Wells.random(2, 2, length), "2x8", 0, (("1x8", 0), ("3x8", 0))),
        (
            "3 wells in halves",
            Wells.random(3, 2, length, windows=True),
            "3x8",
            P,
            (("2x8", P), ("4x8", P), ("3x8", 0)),
        ),
        ("a place and 3 maxima", PlaceAndMaxima(3, length), "4x8", P, (("3x8", P), ("5x8", P), ("4x8", 0))),
        ("first three", PositionSum((0, 1, 2), length), "1x8", P, (("2x8", P), ("1x8", 0))),
        ("second largest", KthLargest(2, length), "1x8+1x8", P, (("1x8", P), ("2x8+2x8", P))),
        ("third largest", KthLargest(3, length), "1x8+1x8+1x8", P, (("1x8+1x8", P), ("2x8+2x8+2x8", P))),
        ("two largest", RankSum((1, 2), length), "1x8+1x8", P, (("1x8", P), ("2x8+2x8", P))),
        (
            "1 pair",
            PairMax.random(1, 3, length, tokens=UnitSphere()),
            "1x8+1x8",
            0,
            (("1x8", 0), ("2x8", 0), ("2x8+2x8", 0)),
        ),
        (
            "2 pairs",
            PairMax.random(2, 3, length, tokens=UnitSphere()),
            "2x8+2x8",
            0,
            (("1x8+2x8", 0), ("2x8+1x8", 0), ("3x8+3x8", 0)),
        ),
        ("opposite pair", OppositePair(length), "1x8+1x8", 0, (("1x8", 0), ("2x8+2x8", 0))),
        ("induction", Induction(4, length), "1x8+1x8", P, (("1x8", P), ("2x8+2x8", P), ("1x8+1x8", 0))),
        ("two hops", TwoHops(4, length), "1x8+1x8+1x8", P, (("1x8+1x8", P), ("2x8+2x8+2x8", P), ("1x8+1x8+1x8", 0))),
    ]


def held_out(width: int = 128) -> dict[str, list[Entry]]:
    """The cells of every task at both lengths.

    >>> groups = held_out()
    >>> len(groups), sum(len(cells) - 1 for cells in groups.values())
    (34, 82)
    >>> from headcount.papers.infoflow import predict
    >>> all(predict(cells[0].task, cells[0].arch).cheap for cells in groups.values())
    True
    """
    return {
        f"{name}, length {length}": cells
        for length in LENGTHS
        for name, cells in entries(groups_of(length), width).items()
    }


def agreement(rows: Rows) -> dict[str, Any]:
    """The count by best and by median over the groups whose reference learned, and the groups left out."""
    learned, left = _by_learning(rows)
    count = [row for row in learned if row["cell"] != row["reference"]]
    by_best = sum(row["agree"] for row in count)
    by_median = sum(row["agree_by_median"] for row in count)
    against = [row for row in count if not row["agree"]]
    return {
        "cells": len(count),
        "by_best": by_best,
        "by_median": by_median,
        "unlearned": left,
        "against": [
            {k: row[k] for k in ("group", "cell", "predicted", "warrant", "trained", "ratio")} for row in against
        ],
    }


def _by_learning(rows: Rows) -> tuple[Rows, list[str]]:
    references = {row["group"]: row for row in rows if row["cell"] == row["reference"]}
    left = [name for name, row in references.items() if row["nmse"] > LEARNED]
    return [row for row in rows if row["group"] not in left], left


def with_medians(rows: Rows) -> Rows:
    """One group's rows, the reference first: also judged by the median over seeds."""
    of_reference = rows[0]["median"]
    return [r | {"agree_by_median": solved(r["median"], of_reference) == (r["predicted"] == "cheap")} for r in rows]


def judged_now(found: dict[str, Rows], width: int = 128) -> dict[str, Any]:
    """The agreement of what was trained with what `predict` says today, in cells whose shapes are those of the file."""
    rows = []
    for name, cells in held_out(width).items():
        verdicts = {cell.name: predict(cell.task, cell.arch).verdict for cell in cells}
        now = [row | {"predicted": verdicts[row["cell"]]} for row in found.get(name, [])]
        agreed = [row | {"agree": (row["trained"] == "solved") == (row["predicted"] == "cheap")} for row in now]
        rows += with_medians(agreed) if agreed else []
    return agreement(rows)


def main() -> None:
    options = _arguments()
    if options.judge:
        table = stored(options.out)
        table["now"] = judged_now(table["groups"], options.width) | {"date": today()}
        written(options.out, table)
        print(_line(table["now"]))
        return
    trained: dict[str, Rows] = stored(options.out).get("groups", {})
    groups = {
        k: tiny(c) if options.tiny else c for k, c in held_out(options.width).items() if k in (options.only or [k])
    }
    _train({k: c for k, c in groups.items() if k not in trained}, options.steps, trained, options)
    again = [k for k in groups if trained[k][0]["nmse"] > LEARNED and trained[k][0]["steps"] == options.steps]
    _train({k: groups[k] for k in again}, LONGER * options.steps, trained, options)


def _train(groups: dict[str, list[Entry]], steps: int, trained: dict[str, Rows], options: argparse.Namespace) -> None:
    """Train what is given and write what stands after every share."""
    samples, batch = (64, 16) if options.tiny else (options.samples, options.batch)
    recipe = of_steps(4 if options.tiny else steps, samples, batch, 16 if options.tiny else 4096)
    about = {"date": today(), "device": environment(options.device, "bank")["device"], "steps": steps}
    start, seeds = time.perf_counter(), 1 if options.tiny else options.seeds
    for names, by_group in trained_shares(groups, recipe, seeds, options.device, options.jobs):
        trained |= {name: [about | row for row in with_medians(rows)] for name, rows in by_group.items()}
        so_far = agreement([row for rows in trained.values() for row in rows])
        written(options.out, {"agreement": so_far, "groups": trained})
        print(f"{', '.join(names)}: {time.perf_counter() - start:.0f} s; so far {_line(so_far)}", flush=True)


def _line(agreed: dict[str, Any]) -> str:
    best, median, cells = agreed["by_best"], agreed["by_median"], agreed["cells"]
    return f"{best} of {cells} agree by best, {median} by median, {len(agreed['unlearned'])} unlearned"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8192)
    parser.add_argument("--samples", type=int, default=65536)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--judge", action="store_true", help="train nothing, ask today's rules")
    parser.add_argument("--only", nargs="*", help="groups by name")
    parser.add_argument("--out", type=Path, default=DATA / "held_out_battery.json")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
