"""Processes that train contestants side by side: each row is the one that this process would have trained."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace

import torch

from headcount.measuring.clock import Clock
from headcount.measuring.contest_trials import Trials
from headcount.measuring.contestants import Contestant
from headcount.results.study import Row

__all__ = ["ContestWorkers"]


class ContestWorkers:
    """So many processes for a contest, or none of its own where one is enough."""

    def __init__(self, trials: Trials, count: int) -> None:
        self.trials, self.pool = trials, None
        if count > 1:
            copy = replace(trials, clock=Clock(trials.clock.budget, trials.clock.began))
            self.pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin, (copy,))

    def rows(self, units: Sequence[tuple[Contestant, int]]) -> Iterator[Row | None]:
        """The row of each in their order; None where its time is over."""
        if self.pool is None:
            yield from (self.trials.row(*unit) for unit in units)
            return
        away: list[Future[Row | None]] = [self.pool.submit(_row, *unit) for unit in units]
        yield from (one.result() for one in away)

    def close(self) -> None:
        """End them; nobody waits for what is not wanted any more."""
        if self.pool is not None:
            for process in list((self.pool._processes or {}).values()):  # pyright: ignore[reportPrivateUsage]
                process.terminate()
            self.pool.shutdown(wait=False, cancel_futures=True)


@dataclass
class _Worker:
    """What this process is, where it is a worker: its trials, and when it had done the last of them."""

    trials: Trials
    done: float


_worker: _Worker | None = None


def _begin(trials: Trials) -> None:
    """Take the trials over. Ctrl-C is the business of the process that asked."""
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    clock = Clock(trials.clock.budget, trials.clock.began, used=time.process_time)
    _worker = _Worker(replace(trials, clock=clock), clock.now())


def _row(contestant: Contestant, number: int) -> Row | None:
    assert _worker is not None
    clock = _worker.trials.clock
    clock.rested(clock.now() - _worker.done)
    row = _worker.trials.row(contestant, number)
    _worker.done = clock.now()
    return row
