"""A bank to train as a value that travels: to this process, to another one, to another machine; its rows come back."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypedDict

import torch
from torch import nn

from headcount._version import __version__
from headcount.limits import is_refused_memory
from headcount.nets import Architecture, Transformer
from headcount.nets.saved import net_bytes
from headcount.results.store import address
from headcount.results.study import Row
from headcount.tasks import Task
from headcount.training.checkpoints import EVERY, Checkpoint, Terminated, Termination
from headcount.training.data import target_scale
from headcount.training.kept_networks import Save, saved_members
from headcount.training.loop import Outcome, StepsMade, train
from headcount.training.member import Member, Recipe

Start = Callable[[Task, Architecture], Transformer | None]  # a network in the units of the target, where one is known


@dataclass(frozen=True)
class BankJob:
    """Members to train as one bank, where, and what to keep beside the rows.

    With `checkpoints`, a folder, the state is kept there every so many seconds. `threads` (0: as they are) is part of
    the job because sums on a CPU depend on it. `start` finds the network that a member with a `start` begins from.
    """

    members: tuple[Member, ...]
    recipe: Recipe
    device: str = "cpu"
    checkpoints: Path | None = None
    every: float = EVERY
    save: Save = "none"
    threads: int = 0
    start: Start | None = None

    def checkpoint(self, termination: Termination) -> Checkpoint | None:
        """The file of its state, named by what is trained."""
        if self.checkpoints is None or self.start is not None:
            return None
        name = address({"runs": [member.run(self.recipe) for member in self.members]})
        return Checkpoint(self.checkpoints / f"{name}.safetensors", self.every, termination)

    def halves(self) -> tuple[BankJob, BankJob]:
        """The same members in two banks."""
        middle = len(self.members) // 2
        first, second = self.members[:middle], self.members[middle:]
        return replace(self, members=first), replace(self, members=second)


class RowEnvironment(TypedDict):
    """Where rows were made, under the names that stores have kept since the first version."""

    headcount: str
    python: str
    torch: str
    device: str
    threads: int
    platform: str
    path: str


@dataclass(frozen=True)
class TrainedBank:
    """What comes back: rows in the order of the members, networks by run, and files of states that are done with."""

    rows: tuple[Row, ...]
    environment: RowEnvironment
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
        if len(job.members) == 1 or not is_refused_memory(problem):
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

    def report_steps(steps: int) -> None:
        steps_made(steps)
        if termination.came and checkpoint is None:
            raise Terminated

    outcome = train(
        job.members, job.recipe, device=job.device, start=_starts(job), on_progress=report_steps, checkpoint=checkpoint
    )
    where = environment(job.device, outcome.backend.name)
    states = () if checkpoint is None else (checkpoint.path,)
    return TrainedBank(outcome.rows, where, _networks(job, outcome), states)


def _networks(job: BankJob, outcome: Outcome) -> dict[str, bytes]:
    chosen: Sequence[int] = saved_members(job.members, outcome.rows, job.save)
    return {outcome.rows[k]["run"]: net_bytes(outcome.net(k), _scale(job.members[k], job.recipe)) for k in chosen}


_scale_of = lru_cache(256)(target_scale)


def _scale(member: Member, recipe: Recipe) -> tuple[float, float] | None:
    """The units of the target; letters have none."""
    if not isinstance(member.net, Architecture):
        return None
    return _scale_of(member.drawn, member.data_seed, recipe.samples)


def _starts(job: BankJob) -> list[nn.Module] | None:
    """Where each member begins: a network in scaled units, or the random one of its seed; None where all are random."""
    if job.start is None or not any(member.start for member in job.members):
        return None
    return [_begun(member, job) for member in job.members]


def _begun(member: Member, job: BankJob) -> nn.Module:
    if not member.start or job.start is None:
        return member.shape.module(member.seed)
    net = job.start(member.drawn, member.arch)
    if net is None:
        raise ValueError(f"there is no network to start {member.arch.name} from")
    mean, spread = _scale_of(member.drawn, member.data_seed, job.recipe.samples)
    net = deepcopy(net)
    with torch.no_grad():
        net.read_out.outer.weight.div_(spread)
        net.read_out.outer.bias.sub_(mean).div_(spread)
    return net


def environment(device: str, backend: str) -> RowEnvironment:
    """Where rows were made: enough to understand a difference between two machines."""
    name = torch.cuda.get_device_name() if torch.device(device).type == "cuda" else platform.processor() or "cpu"
    return {
        "headcount": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": name,
        "threads": torch.get_num_threads(),
        "platform": platform.platform(terse=True),
        "path": backend,  # the name under which stores have kept it
    }
