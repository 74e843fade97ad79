"""Processes that train contestants side by side: each row is the one that this process would have trained."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

import torch

from headcount.measuring.clock import Clock
from headcount.measuring.contest_trials import Trials
from headcount.measuring.contestants import Contestant
from headcount.results.study import Row
from headcount.training.checkpoints import Termination
from headcount.training.workers import ProcessPool

Unit = tuple[Contestant, int]  # who, and the number of a split


def contest_pool(trials: Trials, count: int) -> ProcessPool[Unit, Row | None]:
    """So many processes that are ended at once when the contest is over, or none where this one is enough."""
    copy = replace(trials, clock=Clock(trials.clock.budget, trials.clock.began))
    return ProcessPool(partial(_Trainer.begun, copy), [{}] * count if count > 1 else [], parting=0.0)


@dataclass
class _Trainer:
    """What a process of the pool does with a unit: its trials, and when it had done the last of them."""

    trials: Trials
    done: float

    @classmethod
    def begun(cls, trials: Trials) -> _Trainer:
        """Take the trials over, by a clock that counts what the processor gives to this process."""
        torch.set_num_threads(1)
        clock = Clock(trials.clock.budget, trials.clock.began, used=time.process_time)
        return cls(replace(trials, clock=clock), clock.now())

    def __call__(self, unit: Unit, termination: Termination) -> Row | None:
        clock = self.trials.clock
        clock.rested(clock.now() - self.done)
        row = self.trials.row(*unit)
        self.done = clock.now()
        return row
