"""Ask `measure` about every set, train plain encoders beside it, and keep every row as it comes.

    python -m studies.measure.bench --quick                        planted sets, one layer, 600 steps, five splits
    python -m studies.measure.bench --quick --draw 1               the same on other draws
    python -m studies.measure.bench --data DIR --cores 12 --gpu 2  everything, each run with two cores
    python -m studies.measure.bench --data DIR --busy              beside it, planted sets among four endless loops

DIR holds what `sets.py` names: files of six sets, and aeon's wheel unpacked there (`pip download --no-deps aeon`, then
`unzip aeon-*.whl 'aeon/datasets/data/*'`).

Resumable: a row that is kept is not made again. A run begins only if it ends before `--seconds` are over. `--only SET`
keeps to some sets; `--scale 0.1` asks for a tenth of every time and of the plain encoder's steps.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from headcount.measuring import StudyPlan, measure
from studies.measure.pool import Lane, Pool, read_rows
from studies.measure.runs import PLAIN_STEPS, QUICK, WORKERS, PlainWay, Row, Run, asked, plain_rows
from studies.measure.sets import PLANTED, REAL, BenchSet, sets_at

KEPT = Path(__file__).parents[2] / "docs/data/measure_bench.json"
REAL_SECONDS, PLANTED_SECONDS = 600.0, 120.0
LOOK_UPS = {"1 look-up": 300.0, "2 look-ups": 300.0, "3 look-ups": 300.0, "4 look-ups": 600.0}
SHORT_RUNS = (
    ("digits", 20.0), ("wine", 20.0), ("2 look-ups", 30.0), ("diabetes", 30.0), ("rare class", 60.0),
    ("breast cancer", 60.0),
)  # fmt: skip
BUSY_AT_ONCE, BUSY_CORES = 4, 2
PLAIN_RUNS = (((1, 2, 4, 8), 0), ((3, 6), 0), ((1, 2, 3, 4, 6, 8), 10), ((1, 2, 3, 4, 6, 8), 20))  # heads, first split


def runs_of(scale: float = 1.0) -> list[Run]:
    """Every run, the longest first: real sets, planted ones, look-ups for longer, and short times."""
    times = [(one.name, REAL_SECONDS) for one in REAL]
    times += [(one.name, PLANTED_SECONDS) for one in PLANTED]
    times += [*LOOK_UPS.items(), *SHORT_RUNS]
    timed = [Run(name, budget=max(2.0, seconds * scale)) for name, seconds in times]
    busy = [Run(one.name, "busy", budget=PLANTED_SECONDS * scale) for one in PLANTED]
    compared = [*(one.name for one in REAL), *LOOK_UPS]
    plain = [Run(name, "plain", heads=heads, first=first) for heads, first in PLAIN_RUNS for name in compared]
    return [*sorted(timed, key=lambda run: -(run.budget or 0.0)), *busy, *plain]


def main() -> None:
    """Every run that is not kept yet, written as it comes."""
    options = _arguments()
    sets, absent = sets_at(options.data)
    if options.one:
        _one(options, {one.name: one for one in sets})
    else:
        _all(options, sets, absent)


def _all(options: argparse.Namespace, sets: Sequence[BenchSet], absent: Sequence[str]) -> None:
    if absent:
        print(f"not run, for they are not there: {', '.join(absent)}")
    names = [one.name for one in sets if not options.only or one.name in options.only]
    wanted = runs_of(options.scale)
    if options.quick or options.steps:
        steps = options.steps or QUICK.steps
        some = sets if options.splits else PLANTED
        wanted = [Run(one.name, steps=steps, draw=options.draw, splits=options.splits) for one in some]
    wanted = [run for run in wanted if run.set in names]
    until = time.monotonic() + options.seconds
    print(f"a contest of 20 steps took {_warm():.1f} s", flush=True)
    with TemporaryDirectory() as folder:
        pool = Pool(options.kept, until, Path(folder), read_rows(options.kept))
        wanted.sort(key=lambda run: _plain_seconds(pool.rows, run))
        pool.run(_lanes(options), wanted)
    left = [f"{run.set} ({run.form})" for run in wanted if not pool.has(run)]
    print(f"{len(pool.rows)} rows in {options.kept}; left: {', '.join(left) or 'nothing'}")


def _plain_seconds(rows: Sequence[Row], run: Run) -> float:
    """What plain encoders took on a set before: the quick ones come first, and what is no plain encoder."""
    return sum(row["seconds"] for row in rows if run.kind == row["form"] == "plain" and run.set == row["set"])


def _warm() -> float:
    """Seconds of a first small contest, which compiles what the others find compiled."""
    began = time.monotonic()
    small = StudyPlan(heads=(1, 2), layers=1, steps=20, splits=2)
    for one in (PLANTED[1], PLANTED[9]):  # tokens of numbers, and of letters
        measure(one.make(), plan=small)
    return time.monotonic() - began


def _lanes(options: argparse.Namespace) -> list[Lane]:
    cores = sorted(os.sched_getaffinity(0))
    apart = cores[-BUSY_CORES:] if options.busy else []
    free = [core for core in cores if core not in apart] or cores
    data = ["--data", str(options.data)] if options.data else []
    lanes = [Lane("ask", max(WORKERS, options.cores), free, data)]
    if options.busy:
        lanes.append(Lane("busy", BUSY_AT_ONCE, apart, data))
    if options.gpu:
        steps = ["--steps", str(max(20, round(PLAIN_STEPS * options.scale))), "--device", options.device]
        graphs = ["--graphs"] if options.device == "cuda" and _graphs_work() else []
        lanes.append(Lane("plain", options.gpu, free, [*data, *steps, *graphs]))
    return lanes


def _graphs_work() -> bool:
    check = subprocess.run([sys.executable, "-m", "studies.measure.plain"], capture_output=True, text=True, timeout=120)
    print(f"CUDA graphs: {check.stdout.strip() or check.stderr[-300:]}", flush=True)
    return check.returncode == 0


def _one(options: argparse.Namespace, sets: dict[str, BenchSet]) -> None:
    """What a process of the pool does: one run, its rows appended as they come.

    Where a graph cannot be recorded, the process begins anew without graphs.
    """
    torch.set_num_threads(1)
    fields = json.loads(options.one)
    run = Run(**fields | {"heads": tuple(fields["heads"])})
    known = [*read_rows(options.kept), *map(json.loads, options.rows.read_text().splitlines())]
    plain_way = PlainWay(options.steps, options.device, options.graphs)
    try:
        with options.rows.open("a") as file:
            for row in (
                plain_rows(run, sets[run.set], known, plain_way) if run.kind == "plain" else [asked(run, sets[run.set])]
            ):
                file.write(json.dumps(row) + "\n")
                file.flush()
    except RuntimeError as problem:
        if not options.graphs:
            raise
        print(f"without graphs, for {problem}", flush=True)
        again = [word for word in sys.argv[1:] if word != "--graphs"]
        os.execv(sys.executable, [sys.executable, "-m", "studies.measure.bench", *again])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="this set alone")
    parser.add_argument("--quick", action="store_true", help="one layer, 600 steps, five splits")
    parser.add_argument("--steps", type=int, help="one layer, so many steps, five splits")
    parser.add_argument("--splits", type=int, help="with --steps: one and two layers of any set, on so many splits")
    parser.add_argument("--draw", type=int, default=0, help="planted sets of other seeds than those that rules saw")
    parser.add_argument("--data", type=Path, help="a folder with the sets that no wheel carries")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the file of rows")
    parser.add_argument("--seconds", type=float, default=math.inf, help="when to end")
    parser.add_argument("--scale", type=float, default=1.0, help="of every time and of the plain encoder's steps")
    parser.add_argument("--cores", type=int, default=1, help="cores to ask with, two for each run")
    parser.add_argument("--busy", action="store_true", help="keep two more cores busy, and ask there as well")
    parser.add_argument("--gpu", type=int, default=0, help="processes that train plain encoders at once")
    parser.add_argument("--device", default="cuda", help="where plain encoders are trained")
    hidden = argparse.SUPPRESS  # for processes of the pool
    parser.add_argument("--one", help=hidden)
    parser.add_argument("--rows", type=Path, help=hidden)
    parser.add_argument("--graphs", action="store_true", help=hidden)
    return parser.parse_args()


if __name__ == "__main__":
    main()
