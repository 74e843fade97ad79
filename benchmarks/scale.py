"""What a bank costs besides its training, and how a sweep scales: `python -m benchmarks.scale`.

Measured: seconds of a sweep by one process, one worker and two workers, on tiny banks (the overhead) and on longer
ones (the scaling). Simulated: 8 to 1,000 GPUs taking banks from one list, the longest first, while one driver adds
every finished bank to the store. Assumptions stand beside the numbers in docs/scale.md.
"""

from __future__ import annotations

import heapq
import os
import random
import resource
import tempfile
import time
from collections.abc import Sequence

from headcount.nets import Architecture
from headcount.results import Store
from headcount.tasks import KthLargest
from headcount.training import Recipe, Sweep
from headcount.training.sweeps import run
from headcount.training.workers import LocalWorkers


def asked(banks: int, epochs: int) -> Sweep:
    """A sweep of so many banks of four small networks."""
    recipe = Recipe(samples=512, validation=64, epochs=epochs, batch=64)
    lengths = list(range(4, 4 + banks))
    return Sweep.of(KthLargest(1, 4), [Architecture(layers=((2, 4),), width=16)], lengths, 4, recipe)


def spent(sweep: Sweep, workers: int) -> tuple[float, float]:
    """Seconds of the sweep by the clock, and of processors in all processes; with 0 workers this process trains."""
    with tempfile.TemporaryDirectory() as folder:
        began, used = time.monotonic(), processors()
        made = (lambda: LocalWorkers(workers)) if workers else None
        run(sweep, Store.open(folder, create=True), workers=made)
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


def main() -> None:
    """Print the two tables."""
    spent(asked(1, 1), 0)
    for name, sweep in (("24 tiny banks", asked(24, 1)), ("8 longer banks", asked(8, 100))):
        for workers in (0, 1, 2):
            clock, used = spent(sweep, workers)
            load = os.getloadavg()[0]
            print(f"{name}, {workers} workers: {clock:.2f} s, {used:.2f} s of processor, load {load:.1f}", flush=True)
    rng = random.Random(0)
    banks = [60 * rng.lognormvariate(0, 0.7) * 10 for _ in range(10_000)]
    for gpus in (1, 8, 64, 256, 1000):
        seconds = simulated(gpus, banks, start=20, writing=0.02)
        print(f"{gpus} GPUs: {seconds / 3600:.2f} h, efficiency {sum(banks) / gpus / seconds:.3f}")


if __name__ == "__main__":
    main()
