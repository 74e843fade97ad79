"""Ask `measure` about every set and keep what it says: `python -m studies.measure.bench [--only NAME] [--steps N]`.

Resumable: a set that stands in docs/data/measure_bench.json with the same steps and splits is not asked again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from headcount.files import whole
from headcount.measuring import measure
from studies.measure.sets import SETS, BenchSet

__all__ = ["main", "measured_set"]

KEPT = Path(__file__).parents[2] / "docs/data/measure_bench.json"


def measured_set(one: BenchSet, steps: int, splits: int) -> dict[str, Any]:
    """What `measure` says of a set, beside the truth."""
    began, cpu = time.monotonic(), time.process_time()
    found = measure(one.make(), steps=steps, splits=splits)
    answer = found.answer
    return {
        "set": one.name,
        "terms": one.terms,
        "worth": one.worth,
        "truth": one.heads,
        "steps": steps,
        "splits": splits,
        **answer.to_json(),
        "advice": found.advice,
        "levels": found.levels,
        "cpu_seconds": round(time.process_time() - cpu, 1),
        "seconds": round(time.monotonic() - began, 1),
    }


def main() -> None:
    """Every set that is not kept yet, written as it comes."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--only", action="append", help="this set alone")
    ask.add_argument("--steps", type=int, default=400)
    ask.add_argument("--splits", type=int, default=3)
    given = ask.parse_args()
    rows = json.loads(KEPT.read_text()) if KEPT.exists() else []
    for one in SETS:
        alike = {"set": one.name, "steps": given.steps, "splits": given.splits}
        if (given.only and one.name not in given.only) or any(alike.items() <= row.items() for row in rows):
            continue
        rows = [*(row for row in rows if row["set"] != one.name), measured_set(one, given.steps, given.splits)]
        with whole(KEPT) as scratch:
            Path(scratch).write_text(json.dumps(rows, indent=1) + "\n")
        print(f"{one.name}: {rows[-1]['advice']}", flush=True)


if __name__ == "__main__":
    main()
