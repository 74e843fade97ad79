"""Ask `measure` about every set and keep what it says.

    python -m studies.measure.bench --quick             the planted sets, one layer, 600 steps, three splits
    python -m studies.measure.bench --budget 120        everything, so many seconds a set
    python -m studies.measure.bench --data DIR          the real sets that lie in a folder too
    python -m studies.measure.bench --plain             beside an encoder of torch alone, on real sets

Seconds are CPU seconds of this one-threaded process, so that a busy machine gives the same rows. Resumable: a set that
is kept with the same form is not asked again.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headcount.files import whole
from headcount.measuring import Measurement, Sequences, StudyPlan
from headcount.measuring.contest import Clock, Contest
from headcount.measuring.measure import one_thread
from studies.measure.plain import plain_table
from studies.measure.sets import BenchSet, sets_at

__all__ = ["main", "measured_set"]

KEPT = Path(__file__).parents[2] / "docs/data/measure_bench.json"
QUICK = StudyPlan(layers=1, steps=600, splits=3)


def measured_set(one: BenchSet, form: str, plan: StudyPlan, budget: float | None, plain: bool) -> dict[str, Any]:
    """What `measure` says of a set, beside the truth, or, if wanted, beside a plain encoder where nobody knows it."""
    began = time.process_time()
    data = one.make()
    with one_thread():
        found = contest_on(data, plan, budget)
    answer, counts = found.answer, {count.layers: count for count in found.answer.counts}
    row = {
        "set": one.name,
        "form": form,
        "terms": one.terms,
        "worth": one.worth,
        "truth": one.heads,
        "steps": found.study.spec["steps"],
        "splits": len(found.study.spec["complete"]),
        **{k: v for k, v in answer.to_json().items() if k != "claims"},
        "one_layer": None if 1 not in counts else [counts[1].heads, counts[1].low, counts[1].high],
        "advice": found.advice,
        "levels": {name: round(level, 5) for name, level in found.levels.items()},
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    return row | {"plain": plain_table(data)} if plain and one.worth is None else row


def contest_on(data: Sequences, plan: StudyPlan, budget: float | None) -> Measurement:
    """The contest by a clock that counts this process' seconds alone."""
    clock = Clock(budget, time.process_time(), time.process_time)
    with TemporaryDirectory() as folder:
        return Measurement(Contest.of(data, plan, Path(folder), clock, lambda line: None, "cpu").run())


def main() -> None:
    """Every set that is not kept yet, written as it comes."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--only", action="append", help="this set alone")
    ask.add_argument("--quick", action="store_true", help="one layer, 600 steps, three splits")
    ask.add_argument("--steps", type=int, help="one layer, so many steps, three splits")
    ask.add_argument("--budget", type=float, default=120.0, help="CPU seconds for a set")
    ask.add_argument(
        "--draw", type=int, default=0, help="planted sets of other seeds than those that rules were tried on"
    )
    ask.add_argument("--plain", action="store_true", help="train a plain encoder beside ours on real sets")
    ask.add_argument("--data", type=Path, help="a folder with the sets that no wheel carries")
    given = ask.parse_args()
    form = "quick" if given.quick else f"{given.steps} steps" if given.steps else f"{given.budget:g} s"
    form += f", draw {given.draw}" if given.draw else ""
    here, absent = sets_at(given.data)
    if given.draw:
        here = [replace(one, make=partial(one.make, draw=given.draw)) for one in here if one.worth is not None]
    if absent:
        print(f"not run, for they are not there: {', '.join(absent)}")
    for one in here:
        kept = any((row["set"], row["form"]) == (one.name, form) for row in _rows())
        if kept or (given.only and one.name not in given.only) or (given.quick and one.worth is None):
            continue
        fixed = QUICK if given.quick else replace(QUICK, steps=given.steps) if given.steps else None
        plan, budget = (StudyPlan(), given.budget) if fixed is None else (fixed, None)
        row = measured_set(one, form, plan, budget, given.plain)
        rows = [*_rows(), row]  # another process may have added some
        with whole(KEPT) as scratch:
            Path(scratch).write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{one.name} ({row['cpu_seconds']} s): {row['advice']}", flush=True)


def _rows() -> list[dict[str, Any]]:
    return json.loads(KEPT.read_text()) if KEPT.exists() else []


if __name__ == "__main__":
    main()
