"""Where a bank's batches come from: what the loop asks of a source, and samples resident on the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.kernels.backend import Pack, Problem, as_it_lies
from headcount.kernels.class_token import ClassToken
from headcount.kernels.dropping import dropping_keys
from headcount.kernels.encoding import EncoderBatch, Encoding
from headcount.kernels.loss import Loss, squared
from headcount.kernels.plain import Batch, with_positions
from headcount.nets import Architecture
from headcount.nets.standard import EncoderShape
from headcount.tasks import Task
from headcount.training.member import Member, Recipe
from headcount.training.shuffling import Orders, seed_of

Means = Callable[[str], Mapping[str, Tensor]]  # a part of the data -> the mean of every score on it, by member


class Evaluation(NamedTuple):
    """An evaluation on the way: after which step, and every level and score by member."""

    step: int
    levels: Mapping[str, list[float]]


Curve = Sequence[Evaluation]


@runtime_checkable
class BatchSource(Protocol):
    """What the loop asks of its data: `rounds` of `chunks` of `chunk` steps each.

    A bank may be evaluated and its state kept between rounds; the steps of a chunk are made ready by `begin` and are
    recorded together, so `step` gives the same tensors every time. `first` gives the first batch, its data packed.
    """

    @property
    def problem(self) -> Problem: ...
    @property
    def rounds(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def chunk(self) -> int: ...

    def first(self, pack: Pack) -> Any: ...
    def begin(self, number: int, chunk: int) -> None: ...
    def step(self, number: int) -> Any: ...
    def held_out(self, part: str) -> Iterator[Any]: ...
    def levels(self, means: Means) -> dict[str, Tensor]:
        """What an evaluation finds of each member: the "level" to make small, "training", "right" where it may end."""
        ...

    def columns(self, final: dict[str, list[float]], means: Means, curve: Curve) -> list[dict[str, object]]:
        """What a member's row says of its training: from what was kept of its levels, or measured now."""
        ...


Samples = Callable[[Sequence[Member], Recipe, torch.dtype, torch.device | str], BatchSource]


def longest_chunk(steps: int, longest: int = 32) -> int:
    """Steps recorded together: the largest divisor of a round's steps that is not too long to record.

    >>> longest_chunk(100)
    25
    """
    return max(n for n in range(1, longest + 1) if steps % n == 0)


Sampled = Batch | EncoderBatch


def position_features_of(member: Member) -> int:
    """Position features beside a member's tokens: networks that learn their places need none."""
    return member.net.positions if isinstance(member.net, Architecture) else 0


class Visited:
    """Resident sets whose samples every member visits in its own order: what drawn and given data share.

    A member's level is its mean loss on the validation part over what the best constant loses there: its NMSE, where
    the loss is squared.
    """

    x: Float[Tensor, "sets samples length features"]
    y: Float[Tensor, "sets samples ..."]
    which: Int[Tensor, " models"]
    to_level: Float[Tensor, " models"]
    to_training_level: float

    def visit(
        self, members: Sequence[Member], recipe: Recipe, device: torch.device | str, loss: Loss = squared
    ) -> None:
        """Make the orders and the places that a chunk's samples and targets are copied to."""
        self.recipe, self.encoders = recipe, isinstance(members[0].net, EncoderShape)
        self.problem: ClassToken | Encoding = Encoding(loss) if self.encoders else ClassToken(loss)
        self.seeds = torch.tensor([m.seed for m in members], device=device)
        self.rounds, self.chunk = recipe.epochs, longest_chunk(recipe.steps_per_epoch)
        self.chunks = recipe.steps_per_epoch // self.chunk
        streams = [seed_of("order", m.seed, m.data_seed) for m in members]
        self.orders = Orders(torch.tensor(streams, device=device), recipe.samples, recipe.epochs)
        size = (self.chunk, len(members), recipe.batch)
        self.rows: Int[Tensor, "chunk models batch"] = torch.zeros(size, dtype=torch.int64, device=device)
        self.targets: Float[Tensor, "chunk models batch ..."] = self.y.new_zeros((*size, *self.y.shape[2:]))
        self.mask_keys: Int[Tensor, "chunk models"] = torch.zeros(size[:2], dtype=torch.int64, device=device)

    def renew(self, epoch: int) -> None:
        """Make the samples of this epoch the resident ones."""

    def at(self, rows: Int[Tensor, "models batch"], part: str = "training", step: int | None = None) -> Sampled:
        """The samples at `rows` of each member's training or validation set, with their targets.

        Those of a `step` of the chunk have their targets copied already, and its masks of dropout.
        """
        raise NotImplementedError

    def sampled(
        self,
        x: Tensor,
        y: Tensor,
        rows: Tensor,
        step: int | None,
        present: Tensor | None = None,
        packed: Tensor | None = None,
    ) -> Sampled:
        """Samples of resident sets as the members' kind of network reads them."""
        target = y[self.which[:, None], rows] if step is None else self.targets[step]
        if not self.encoders:
            return Batch(x, self.which, rows, target, present, packed)
        if present is not None and present.ndim == 2:  # of a member
            present = present[:, None].expand(-1, rows.shape[1], -1)
        return EncoderBatch(x, self.which, rows, target, present, None if step is None else self.mask_keys[step])

    def pack(self, pack: Pack) -> None:
        """Prepare the resident samples as a backend wants to read them."""

    def first(self, pack: Pack) -> Sampled:
        """The first samples of every set, in their order."""
        self.pack(pack)
        rows = torch.arange(self.recipe.batch, device=self.rows.device).expand(len(self.which), -1)
        return self.at(rows.contiguous())

    def begin(self, number: int, chunk: int) -> None:
        """Every member's next samples, in its own order."""
        if chunk == 0:
            self.renew(number)
        visited = self.chunk * self.recipe.batch
        rows = self.orders[number][:, chunk * visited : (chunk + 1) * visited]
        self.rows.copy_(rows.view(len(self.which), self.chunk, -1).transpose(0, 1))
        self.targets.copy_(self.y[self.which[:, None], self.rows])
        if self.encoders:
            before = (number * self.chunks + chunk) * self.chunk
            for i in range(self.chunk):
                self.mask_keys[i] = dropping_keys(self.seeds, before + i)

    def step(self, number: int) -> Sampled:
        """The samples of one step."""
        return self.at(self.rows[number], step=number)

    def held_out(self, part: str) -> Iterator[Sampled]:
        """The validation part, or as many of the training samples, several batches at a time."""
        count = self.recipe.validation
        count = min(count, self.recipe.samples) if part == "training" else count
        rows = torch.arange(count, device=self.rows.device).expand(len(self.which), -1)
        for some in rows.split(4 * self.recipe.batch, dim=1):
            yield self.at(some, part)

    def levels(self, means: Means) -> dict[str, Tensor]:
        """The validation level, and that of the training samples."""
        training = means("training")["loss"] * self.to_training_level
        return {"level": means("validation")["loss"] * self.to_level, "training": training}

    def columns(self, final: dict[str, list[float]], means: Means, curve: Curve) -> list[dict[str, object]]:
        """The smallest level, the last one, and the training level at the smallest."""
        names = {"nmse": "best", "final_nmse": "final", "train_nmse": "training"}
        return [{column: final[name][k] for column, name in names.items()} for k in range(len(self.which))]


def target_scale(task: Task, data_seed: int, samples: int) -> tuple[float, float]:
    """The mean and the spread that the targets of a member's training set have."""
    _, y = drawn_part(task, data_seed, "train", samples)
    return float(y.mean()), float(y.std().clamp(min=1e-12))


def drawn_part(task: Task, seed: int, part: str, count: int, epoch: int = 0) -> tuple[Tensor, Tensor]:
    """A part of the data of a task and a seed, in float64: "train" or "validation"."""
    generator = torch.Generator().manual_seed(seed_of(part, seed, task.length, epoch))
    return task.sample(count, generator=generator, dtype=torch.float64)


class Resident(Visited):
    """Training and validation sets, targets scaled to mean 0 and variance 1 by the first training set.

    A set belongs to a (task, data seed): members that share both share the memory, and see the same numbers in
    any bank on any device, because samples are drawn on the CPU from the data seed alone.
    """

    to_training_level = 1.0  # the training targets have variance 1, noise aside

    def __init__(
        self,
        members: Sequence[Member],
        recipe: Recipe,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.recipe, self.dtype, self.device = recipe, dtype, device
        self.keys = list(dict.fromkeys((m.drawn, m.data_seed) for m in members))
        self.length = max(task.length for task, _ in self.keys)
        self.positions = position_features_of(members[0])
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
        self.pack(as_it_lies)
        variance = [y.var(unbiased=False).clamp(min=1e-24) for _, y in validation]
        ratio = [s**2 / v for s, v in zip(self.spread, variance, strict=True)]
        self.to_level: Float[Tensor, " models"] = torch.stack(ratio).to(device=device, dtype=dtype)[self.which]
        self.visit(members, recipe, device)

    def pack(self, pack: Pack) -> None:
        """Keep a second copy of both parts, as a backend wants to read them."""
        self.packing = pack
        self.packed, self.validation_packed = pack(self.x), pack(self.validation_x)

    def renew(self, epoch: int) -> None:
        """Make the samples of `epoch` the resident ones: drawn anew when the recipe asks for fresh ones."""
        if self.recipe.fresh and epoch > 0:
            drawn = [self._draw(task, seed, "train", self.recipe.samples, epoch) for task, seed in self.keys]
            x, y = self._place(drawn)
            self.x.copy_(x)
            self.y.copy_(y + self._noise(epoch))
            if self.packed is not None and (packed := self.packing(x)) is not None:
                self.packed.copy_(packed)

    def at(self, rows: Int[Tensor, "models batch"], part: str = "training", step: int | None = None) -> Sampled:
        """The samples at `rows` of each member's training or validation set, with their targets."""
        validating = part == "validation"
        x, y, packed = (self.validation_x, self.validation_y, self.validation_packed) if validating else (
            self.x, self.y, self.packed)  # fmt: skip
        return self.sampled(x, y, rows, step, self.present, packed)

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
