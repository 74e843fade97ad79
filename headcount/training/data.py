"""The samples of a bank, resident on the device: one set for each task and data seed among the members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.tasks import Task
from headcount.training.backends.plain import Batch, with_positions
from headcount.training.member import Member, Recipe
from headcount.training.shuffling import seed_of

__all__ = ["Pack", "Resident", "Samples", "SampleSource", "as_it_lies", "drawn_part", "target_scale"]

Pack = Callable[[Tensor], Tensor | None]


class SampleSource(Protocol):
    """What the loop asks of its samples; the factors turn a mean loss into a share of the constant predictor's."""

    y: Float[Tensor, "sets samples ..."]
    which: Int[Tensor, " models"]
    to_nmse: Float[Tensor, " models"]
    to_train_nmse: float

    def begin(self, epoch: int) -> None: ...
    def seen(self, rows: Tensor) -> Batch: ...
    def batch(self, rows: Tensor) -> tuple[Batch, Tensor]: ...
    def held_out(self, rows: Tensor) -> tuple[Batch, Tensor]: ...


Samples = Callable[[Sequence[Member], Recipe, torch.dtype, torch.device | str, Pack], SampleSource]


def as_it_lies(data: Tensor) -> None:
    """No second copy of the data: a path that reads it as it is."""


def target_scale(task: Task, data_seed: int, samples: int) -> tuple[float, float]:
    """The mean and the spread that the targets of a member's training set have."""
    _, y = drawn_part(task, data_seed, "train", samples)
    return float(y.mean()), float(y.std().clamp(min=1e-12))


def drawn_part(task: Task, seed: int, part: str, count: int, epoch: int = 0) -> tuple[Tensor, Tensor]:
    """A part of the data of a task and a seed, in float64: "train" or "validation"."""
    generator = torch.Generator().manual_seed(seed_of(part, seed, task.length, epoch))
    return task.sample(count, generator=generator, dtype=torch.float64)


class Resident:
    """Training and validation sets, targets scaled to mean 0 and variance 1 by the first training set.

    A set belongs to a (task, data seed): members that share both share the memory, and see the same numbers in
    any bank on any device, because samples are drawn on the CPU from the data seed alone.
    """

    to_train_nmse = 1.0  # the training targets have variance 1, noise aside

    def __init__(
        self,
        members: Sequence[Member],
        recipe: Recipe,
        dtype: torch.dtype,
        device: torch.device | str,
        pack: Pack = as_it_lies,
    ) -> None:
        self.recipe, self.dtype, self.device, self.pack = recipe, dtype, device, pack
        self.keys = list(dict.fromkeys((m.drawn, m.data_seed) for m in members))
        self.length = max(task.length for task, _ in self.keys)
        self.positions = members[0].arch.positions
        self.which: Int[Tensor, " models"] = torch.tensor(
            [self.keys.index((m.drawn, m.data_seed)) for m in members], device=device
        )
        self.present = self._present(members)
        first = [self._draw(task, seed, "train", recipe.samples, epoch=0) for task, seed in self.keys]
        self.mean = [y.mean() for _, y in first]
        self.spread = [y.std().clamp(min=1e-12) for _, y in first]
        self.x, self.y = self._place(first)
        self.y += self._noise(0)
        validation = [self._draw(task, seed, "validation", recipe.validation) for task, seed in self.keys]
        self.validation_x, self.validation_y = self._place(validation)
        self.packed, self.validation_packed = pack(self.x), pack(self.validation_x)
        variance = [y.var(unbiased=False).clamp(min=1e-24) for _, y in validation]
        ratio = [s**2 / v for s, v in zip(self.spread, variance, strict=True)]
        self.to_nmse: Float[Tensor, " models"] = torch.stack(ratio).to(device=device, dtype=dtype)[self.which]

    def begin(self, epoch: int) -> None:
        """Make the samples of `epoch` the resident ones: drawn anew when the recipe asks for fresh ones."""
        if self.recipe.fresh and epoch > 0:
            drawn = [self._draw(task, seed, "train", self.recipe.samples, epoch) for task, seed in self.keys]
            x, y = self._place(drawn)
            self.x.copy_(x)
            self.y.copy_(y + self._noise(epoch))
            if self.packed is not None and (packed := self.pack(x)) is not None:
                self.packed.copy_(packed)

    def seen(self, rows: Int[Tensor, "models batch"]) -> Batch:
        """The samples at `rows` of each member's training set."""
        return Batch(self.x, self.which, rows, self.present, self.packed)

    def batch(self, rows: Int[Tensor, "models batch"]) -> tuple[Batch, Float[Tensor, "models batch"]]:
        """The same with their targets."""
        return self.seen(rows), self.y[self.which[:, None], rows]

    def held_out(self, rows: Int[Tensor, "models batch"]) -> tuple[Batch, Float[Tensor, "models batch"]]:
        """The samples at `rows` of the validation sets, and their targets."""
        return (
            Batch(self.validation_x, self.which, rows, self.present, self.validation_packed),
            self.validation_y[self.which[:, None], rows],
        )

    def _draw(self, task: Task, seed: int, part: str, count: int, epoch: int = 0) -> tuple[Tensor, Tensor]:
        return drawn_part(task, seed, part, count, epoch)

    def _noise(self, epoch: int) -> Tensor | float:
        """What is added to the scaled training targets of an epoch: normal, from the data seed alone."""
        if self.recipe.noise == 0:
            return 0.0
        seeds = [seed_of("noise", seed, task.length, epoch) for task, seed in self.keys]
        size = (self.recipe.samples,)
        drawn = [torch.randn(size, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in seeds]
        return self.recipe.noise * torch.stack(drawn).to(device=self.device, dtype=self.dtype)

    def _place(self, drawn: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        xs = [with_positions(x, self.length, self.positions) for x, _ in drawn]
        ys = [(y - m) / s for (_, y), m, s in zip(drawn, self.mean, self.spread, strict=True)]
        return (
            torch.stack(xs).to(device=self.device, dtype=self.dtype),
            torch.stack(ys).to(device=self.device, dtype=self.dtype),
        )

    def _present(self, members: Sequence[Member]) -> Bool[Tensor, "models length"] | None:
        lengths = torch.tensor([m.task.length for m in members], device=self.device)
        if bool((lengths == self.length).all()):
            return None
        return torch.arange(self.length, device=self.device) < lengths[:, None]
