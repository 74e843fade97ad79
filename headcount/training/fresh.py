"""Fresh samples drawn where the bank trains: a long run on a GPU never waits for the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.tasks import Task
from headcount.training.data import Resident
from headcount.training.shuffling import seed_of


class OnDevice(Resident):
    """`Resident`, but every epoch after the first is drawn, and its targets are computed, on the device of the bank.

    The first training set and the validation set still come from the CPU, so scales and errors mean the same as
    everywhere. What an epoch draws depends on the data seed, the epoch and the kind of device alone: the same on every
    run of one kind of device, and other numbers on another kind.

    >>> from headcount.nets import Architecture
    >>> from headcount.tasks import KthLargest
    >>> from headcount.training import Member, Recipe, train
    >>> member = Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8))
    >>> recipe = Recipe(samples=64, validation=32, epochs=2, batch=32, fresh=True)
    >>> train([member], recipe, data=OnDevice).rows[0]["status"]
    'done'
    """

    def _draw(self, task: Task, seed: int, part: str, count: int, epoch: int = 0) -> tuple[Tensor, Tensor]:
        if epoch == 0:
            return super()._draw(task, seed, part, count, epoch)
        generator = torch.Generator(self.device).manual_seed(seed_of(part, seed, task.length, epoch))
        return task.sample(count, generator=generator, dtype=torch.float64)

    def _place(self, drawn: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        where = drawn[0][0].device
        self.mean, self.spread = [m.to(where) for m in self.mean], [s.to(where) for s in self.spread]
        return super()._place(drawn)
