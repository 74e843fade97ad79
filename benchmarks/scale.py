"""What a bank costs besides its training, and how a sweep scales: `python -m benchmarks.scale`.

Measured: seconds of a sweep by one process, one worker and two workers, on tiny banks (the overhead) and on longer
ones (the scaling), in turns, so that a busy machine hits all alike; and seconds until a finished bank is on the disk.
docs/data/scale.json keeps every turn, with what else the processors did meanwhile, and the load of the machine.
Simulated: 8 to 1,000 GPUs taking banks from one list, the longest first, while one driver adds every finished bank to
the store. Assumptions stand beside the numbers in docs/scale.md.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headcount.nets import Architecture
from headcount.results import Store
from headcount.tasks import KthLargest
from headcount.training import Recipe, Sweep
from headcount.training.bank_jobs import BankJob, train_bank_job
from headcount.training.sweeps import add_rows, banks, run
from headcount.training.workers import LocalWorkers


def asked(banks: int, epochs: int) -> Sweep:
    """A sweep of so many banks of four small networks."""
    recipe = Recipe(samples=512, validation=64, epochs=epochs, batch=64)
    lengths = list(range(4, 4 + banks))
    return Sweep.of([KthLargest(1, n) for n in lengths], [Architecture(layers=((2, 4),), width=16)], 4, recipe)


def spent(sweep: Sweep, workers: int) -> tuple[float, float]:
    """Seconds of the sweep by the clock, and of processors in all processes; with 0 workers this process trains."""
    with tempfile.TemporaryDirectory() as folder:
        began, used = time.monotonic(), processors()
        make_workers = (lambda: LocalWorkers(workers)) if workers else None
        run(sweep, Store.open(folder, create=True), workers=make_workers)
        return time.monotonic() - began, processors() - used


def processors() -> float:
    """Seconds of processor that this process and those it has waited for have used."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def simulated(gpus: int, banks: Sequence[float], start: float, writing: float) -> float:
    """Seconds until the last row is kept: each GPU needs `start`, and the driver `writing` seconds for every bank."""
    free = [start] * gpus
    driver = 0.0
    ends: list[float] = []
    for bank in sorted(banks, reverse=True):
        begun = heapq.heappop(free)
        heapq.heappush(free, begun + bank)
        ends.append(begun + bank)
    for end in sorted(ends):
        driver = max(driver, end) + writing
    return driver


def transactions(count: int = 40) -> dict[str, float]:
    """Seconds until the store has a bank of four networks on the disk: the median of many, the best and the worst."""
    asked_for = asked(count, 1)
    groups = list(banks(asked_for, "cpu"))
    taken = []
    with tempfile.TemporaryDirectory(dir=DATA.parent) as folder:  # a disk, where the usual place may be memory
        store = Store.open(folder, create=True)
        store.state("x", {}, [member.run(asked_for.recipe) for member in asked_for.members])
        for bank in groups:
            trained = train_bank_job(BankJob(tuple(bank), asked_for.recipe))
            began = time.monotonic()
            add_rows(store, bank, asked_for.recipe, trained.rows, {"device": "cpu"})
            taken.append(time.monotonic() - began)
    spread = {"median_s": statistics.median(taken), "best_s": min(taken), "worst_s": max(taken)}
    return {"banks": len(groups), "load": loads()[0], **{name: round(seconds, 4) for name, seconds in spread.items()}}


def clusters() -> list[dict[str, float]]:
    """Hours and efficiency of 10,000 banks on 1 to 1,000 GPUs, simulated."""
    rng = random.Random(0)
    lasting = [60 * rng.lognormvariate(0, 0.7) * 10 for _ in range(10_000)]
    rows = []
    for gpus in (1, 8, 64, 256, 1000):
        seconds = simulated(gpus, lasting, start=20, writing=0.02)
        efficiency = sum(lasting) / gpus / seconds
        rows.append({"gpus": gpus, "hours": round(seconds / 3600, 2), "efficiency": round(efficiency, 3)})
    return rows


DATA = Path(__file__).parents[1] / "docs" / "data" / "scale.json"
SWEEPS = {"24 banks of 8 steps": (24, 1), "8 banks of 800 steps": (8, 100)}


def busy() -> float:
    """Seconds that all processors have worked since the machine began, for whomever."""
    user, nice, system, _idle, _waiting, *rest = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")


def loads() -> list[float]:
    """How many processes wanted a processor, in the mean of the last 1, 5 and 15 minutes."""
    return [round(load, 2) for load in os.getloadavg()]


def turn(name: str, workers: int) -> dict[str, Any]:
    """One sweep: seconds by the clock and of processor, and how many processors others kept busy meanwhile."""
    before = busy()
    clock, used = spent(asked(*SWEEPS[name]), workers)
    others = max(0.0, busy() - before - used) / clock
    return {
        "sweep": name,
        "workers": workers,
        "clock_s": round(clock, 2),
        "processor_s": round(used, 2),
        "others": round(others, 2),
    }


def medians(turns: list[dict[str, Any]], name: str, workers: int) -> str:
    """The medians of a sweep's turns in one line, the best beside them."""
    of_kind = [one for one in turns if (one["sweep"], one["workers"]) == (name, workers)]
    clock, used, others = (
        statistics.median(one[key] for one in of_kind) for key in ("clock_s", "processor_s", "others")
    )
    best = min(one["clock_s"] for one in of_kind)
    what = f"{name}, {workers} workers: median {clock:.1f} s, best {best:.1f} s"
    return f"{what}, {used:.1f} s of processor, others kept {others:.1f} processors busy"


def measured(turns: int) -> list[dict[str, Any]]:
    """So many turns of every sweep by every number of workers."""
    spent(asked(1, 1), 0)
    measured_turns = []
    for _ in range(turns):
        for name in SWEEPS:
            measured_turns += [turn(name, workers) for workers in (0, 1, 2)]
    return measured_turns


def main(turns: int = 5) -> None:
    """Measure, keep every turn, and print the two tables."""
    began = loads()
    measured_turns = measured(turns)
    machine = {"cores": os.cpu_count(), "threads": os.environ.get("OMP_NUM_THREADS")}
    about = {**machine, "load_at_begin": began, "load_at_end": loads(), "turns": measured_turns}
    about |= {"transaction": transactions(), "simulated": clusters()}
    DATA.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    for name in SWEEPS:
        for workers in (0, 1, 2):
            print(medians(measured_turns, name, workers), flush=True)
    print(about["transaction"])
    for cluster in about["simulated"]:
        print("{gpus} GPUs: {hours} h, efficiency {efficiency}".format(**cluster))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
