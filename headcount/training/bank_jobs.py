"""A bank to train as a value that travels: to this process, to another one, to another machine; its rows come back."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headcount.nets.saved import net_bytes
from headcount.results.store import address
from headcount.results.study import Row
from headcount.training.backends.choice import choose
from headcount.training.checkpoints import EVERY, Checkpoint, Terminated, Termination
from headcount.training.kept_networks import Save, saved_members
from headcount.training.loop import Outcome, StepsMade, train
from headcount.training.member import Member, Recipe

__all__ = ["BankJob", "TrainedBank", "environment", "train_bank_job"]


@dataclass(frozen=True)
class BankJob:
    """Members to train as one bank, where, and what to keep beside the rows.

    With `checkpoints`, a folder, the state is kept there every so many seconds. `threads` (0: as they are) is part of
    the job because sums on a CPU depend on it.
    """

    members: tuple[Member, ...]
    recipe: Recipe
    device: str = "cpu"
    checkpoints: Path | None = None
    every: float = EVERY
    save: Save = "none"
    threads: int = 0

    def checkpoint(self, termination: Termination) -> Checkpoint | None:
        """The file of its state, named by what is trained."""
        if self.checkpoints is None:
            return None
        name = address({"runs": [member.run(self.recipe) for member in self.members]})
        return Checkpoint(self.checkpoints / f"{name}.safetensors", self.every, termination)

    def halves(self) -> tuple[BankJob, BankJob]:
        """The same members in two banks."""
        middle = len(self.members) // 2
        first, second = self.members[:middle], self.members[middle:]
        return replace(self, members=first), replace(self, members=second)


@dataclass(frozen=True)
class TrainedBank:
    """What comes back: rows in the order of the members, networks by run, and files of states that are done with."""

    rows: tuple[Row, ...]
    path: str
    environment: dict[str, Any]
    networks: dict[str, bytes]
    states: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()

    def plus(self, other: TrainedBank) -> TrainedBank:
        """Two banks as one."""
        return replace(
            self,
            rows=self.rows + other.rows,
            networks=self.networks | other.networks,
            states=self.states + other.states,
            notes=self.notes + other.notes,
        )


def train_bank_job(
    job: BankJob, steps_made: StepsMade = lambda steps: None, termination: Termination | None = None
) -> TrainedBank:
    """Train the bank; where it does not fit the memory, each half of it.

    >>> from headcount.nets import Architecture
    >>> from headcount.tasks import KthLargest
    >>> member = Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8))
    >>> job = BankJob((member,), Recipe(samples=64, validation=32, epochs=2, batch=32), save="all")
    >>> trained = train_bank_job(job)
    >>> len(trained.rows), list(trained.networks) == [trained.rows[0]["run"]]
    (1, True)
    """
    termination = termination or Termination()
    if job.threads:
        torch.set_num_threads(job.threads)
    try:
        return _trained(job, steps_made, termination)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as problem:
        if len(job.members) == 1 or not _out_of_memory(problem):
            raise
    # Outside the handler: the traceback holds the tensors that did not fit.
    if torch.device(job.device).type == "cuda":
        torch.cuda.empty_cache()
    first, second = job.halves()
    note = f"out of memory: a bank of {len(job.members)} is trained as {len(first.members)} and {len(second.members)}"
    both = train_bank_job(first, steps_made, termination).plus(train_bank_job(second, steps_made, termination))
    return replace(both, notes=(note, *both.notes))


def _trained(job: BankJob, steps_made: StepsMade, termination: Termination) -> TrainedBank:
    checkpoint = job.checkpoint(termination)

    def heard(steps: int) -> None:
        steps_made(steps)
        if termination.came and checkpoint is None:
            raise Terminated

    path = choose(job.members, job.device, job.recipe.dtype)
    outcome = train(job.members, job.recipe, device=job.device, path=path, on_progress=heard, checkpoint=checkpoint)
    where = environment(job.device, outcome.path)
    states = () if checkpoint is None else (checkpoint.path,)
    return TrainedBank(outcome.rows, outcome.path, where, _networks(job, outcome), states)


def _networks(job: BankJob, outcome: Outcome) -> dict[str, bytes]:
    chosen: Sequence[int] = saved_members(job.members, outcome.rows, job.save)
    return {outcome.rows[k]["run"]: net_bytes(outcome.net(k)) for k in chosen}


def _out_of_memory(problem: BaseException) -> bool:
    return isinstance(problem, torch.OutOfMemoryError | MemoryError) or "not enough memory" in str(problem)


def environment(device: str, path: str) -> dict[str, Any]:
    """Where rows were made: enough to understand a difference between two machines."""
    from headcount import __version__

    name = torch.cuda.get_device_name() if torch.device(device).type == "cuda" else platform.processor() or "cpu"
    return {
        "headcount": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": name,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(terse=True),
        "path": path,
    }
