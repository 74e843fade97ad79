"""Results of other benchmarks as records of the reproduction: pair and triangle tables, decoders by schedule.

    python -m studies.gathered_records --out docs/data/reproduction [--date 2026-11-15] FILE...

Takes what `studies.infoflow.pair_table`, `studies.infoflow.tables` and others wrote. Their tables keep the best and the
median of the seeds, so those two stand for the spread.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from headcount.files import write_text
from headcount.fits.agreement import comparisons
from headcount.numerals import today
from headcount.papers.allocation.reproduce import decoder_claims
from headcount.papers.born.reproduce import alternation_measured, scratch_measured
from headcount.papers.head_count.reproduce import cells_of
from headcount.papers.induction.experiments import ChainRun
from headcount.papers.induction.reproduce import curve_measured
from headcount.papers.infoflow.reproduce import TRIANGLE_TABLE, pair_claims, triangle_claims
from headcount.reproduction.index import named
from headcount.results import Study
from headcount.results.record import Measured, Record
from studies.infoflow.pair_page import ENTERED


def main() -> None:
    """Write a record for everything found in the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--date", default=today())
    options = parser.parse_args()
    for path in options.files:
        tables = json.loads(path.read_text())
        for name, command, seconds, measured in records(tables):
            device = "NVIDIA H200" if "cuda" in command else "CPU (x86_64)"
            record = Record(name, False, options.date, device, command, seconds, measured)
            write_text(options.out / named(name).file(quick=False), record.to_json())
            print(f"{name}: {[f'{c.verdict.word}: {c.verdict.reason}' for c in comparisons(record, named(name))]}")


def records(tables: dict[str, Any]) -> list[tuple[str, str, float, Measured]]:
    """(name, command, seconds, measured) of each table at hand."""
    gathered = []
    trained = "python -m studies.infoflow.tables --device cuda"
    if "triangle" in tables:
        cells = {(row["length"], row["cell"].split(" ", 1)[1]): _seeds(row) for row in tables["triangle"]["rows"]}
        table = tables["triangle"]
        reduced = f"{table['steps']:,} steps, {table['seeds']} seeds; short lengths undertrained"
        claims = triangle_claims(cells)
        measured = Measured({TRIANGLE_TABLE.title: cells}, claims, _setup(table), reduced=reduced)
        gathered.append(("infoflow:triangle", f"{trained} --only triangle", 0.0, measured))
    if {"short", "long"} & set(tables):
        seconds = sum(table["seconds"] for table in tables.values())
        gathered.append(("born:from-scratch", "python -m studies.born.table --device cuda", seconds,
                      scratch_measured(tables)))  # fmt: skip
    if {"lrs", "embed_dim"} <= set(tables):
        narrow = [part["rows"] for name, part in tables.items() if name.startswith("narrow")]
        measured = alternation_measured(tables["rows"], *narrow)
        gathered.append(("born:depth", "python -m studies.born.alternation --device cuda", tables["seconds"], measured))
    if "to_the_end" in tables:
        run = tables["to_the_end"]
        measured = curve_measured(run["rows"], ChainRun(training=run["training"], validation=run["validation"]))
        gathered.append(("induction:curve", "python -m studies.induction.study --long", run["seconds"], measured))
    if ENTERED in tables:
        table = tables[ENTERED]
        pairs = {
            "pair tasks": _pairs(table),
            "pair tasks, unit tokens through a feed-forward": _pairs(tables["sphere"]),
        }
        measured = Measured(pairs, pair_claims(pairs["pair tasks"]), _setup(table))
        gathered.append(("infoflow:pair", table["command"], table["seconds"], measured))
    if "spec" in tables:
        study = Study(tuple(row for row in tables["rows"] if row["heads"] <= 5), tables["spec"], tables["environment"])
        measured = Measured({"Table 2": cells_of(study)}, (), {"seeds": 10, "path": tables["environment"]["path"]})
        gathered.append(("head-count:table-2", "headcount sweep examples/head_count.toml --device cuda", 0.0, measured))
    if "summary" in tables:
        runs = tables["rows"]
        losses = {(run["schedule"], "validation loss"): [] for run in runs}
        for run in runs:
            losses[run["schedule"], "validation loss"].append(run["loss"])
        cells = {key: tuple(values) for key, values in losses.items()}
        setup = {**tables["settings"], "steps": tables["steps"], "seeds": tables["summary"][0]["seeds"]}
        reduced = f"{tables['steps']} steps, long before the losses level off"
        measured = Measured({"decoders": cells}, decoder_claims(cells), setup, reduced=reduced)
        gathered.append(("allocation:decoders", "python -m studies.decoder_schedules input.txt --device cuda",
                      tables["seconds"], measured))  # fmt: skip
    return gathered


def _pairs(table: dict[str, Any]) -> dict[tuple[int, str], tuple[float, ...]]:
    cells = {}
    for row in table["rows"]:
        _, D, shape = row["cell"].split(" ")
        cells[int(D.removeprefix("D=")), shape] = _seeds(row)
    return cells


def _seeds(row: dict[str, Any]) -> tuple[float, ...]:
    return row.get("best", row["nmse"]), row["median"]


def _setup(table: dict[str, Any]) -> dict[str, Any]:
    setup = {key: value for key, value in table.items() if key not in ("rows", "command", "seconds")}
    return setup | {"values": "best and median of the seeds"}


if __name__ == "__main__":
    main()
