"""Given data as the samples of a bank: arrays of sequences with their lengths and targets, resident on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.training.backends.plain import Batch, with_positions
from headcount.training.data import Pack
from headcount.training.member import Member, Recipe

__all__ = ["GivenSamples", "Part", "Parts"]


@dataclass(frozen=True, eq=False)
class Part:
    """Sequences padded with zeros to the longest, how many tokens of each exist, and the targets as trained."""

    x: Float[np.ndarray, "samples length token_dim"]
    lengths: Int[np.ndarray, " samples"]
    y: Float[np.ndarray, "samples ..."]

    def __len__(self) -> int:
        return len(self.x)

    def at(self, rows: Int[np.ndarray, " chosen"]) -> Part:
        """The sequences at `rows`."""
        return Part(self.x[rows], self.lengths[rows], self.y[rows])


@dataclass(frozen=True, eq=False)
class Parts:
    """A training and a validation part, and what the best constant loses on each.

    Its `resident` is what `train(members, recipe, data=...)` takes.

    >>> from headcount.nets import Architecture
    >>> from headcount.training import Given, Member, Recipe, train
    >>> x = np.random.default_rng(0).standard_normal((96, 4, 1))
    >>> part = Part(x, np.full(96, 4), x.max(axis=(1, 2)) - 1)
    >>> parts = Parts(part.at(np.arange(64)), part.at(np.arange(64, 96)), (1.0, 1.0))
    >>> member = Member(Given("example", length=4, token_dim=1), Architecture(layers=((1, 4),), width=8), lr=1e-2)
    >>> outcome = train([member], Recipe(samples=64, validation=32, epochs=2, batch=32), data=parts.resident)
    >>> outcome.rows[0]["status"], len(outcome.rows)
    ('done', 1)
    """

    training: Part
    validation: Part
    constant: tuple[float, float]

    def resident(
        self, members: Sequence[Member], recipe: Recipe, dtype: torch.dtype, device: torch.device | str, pack: Pack
    ) -> GivenSamples:
        """The samples on the device, the same for every member."""
        sizes = (len(self.training), len(self.validation))
        if (recipe.samples, recipe.validation) != sizes:
            asked = f"{recipe.samples} samples and {recipe.validation} for validation"
            raise ValueError(f"the recipe asks for {asked}; the data hold {sizes[0]} and {sizes[1]}")
        if recipe.noise:
            raise ValueError(f"noise is added to drawn targets alone, and these data are given; got {recipe.noise}")
        return GivenSamples(self, members, dtype, device)


class GivenSamples:
    """The parts as the loop asks for them; a sample's absent tokens are masked, its positions are its own."""

    def __init__(self, parts: Parts, members: Sequence[Member], dtype: torch.dtype, device: torch.device | str) -> None:
        positions = members[0].arch.positions
        self.which = torch.zeros(len(members), dtype=torch.int64, device=device)
        self.train, self.validation = (
            _Placed(part, positions, dtype, device) for part in (parts.training, parts.validation)
        )
        self.y: Float[Tensor, "1 samples ..."] = self.train.y[None]
        self.to_train_nmse = 1 / parts.constant[0]
        self.to_nmse: Float[Tensor, " models"] = torch.full((len(members),), 1 / parts.constant[1]).to(self.train.y)

    def begin(self, epoch: int) -> None:
        """Nothing is drawn: every epoch sees the same samples."""

    def seen(self, rows: Int[Tensor, "models batch"]) -> Batch:
        """The training samples at `rows`."""
        return self.train.at(self.which, rows)

    def batch(self, rows: Int[Tensor, "models batch"]) -> tuple[Batch, Float[Tensor, "models batch ..."]]:
        """The same with their targets."""
        return self.seen(rows), self.train.y[rows]

    def held_out(self, rows: Int[Tensor, "models batch"]) -> tuple[Batch, Float[Tensor, "models batch ..."]]:
        """The samples at `rows` of the validation part, and their targets."""
        return self.validation.at(self.which, rows), self.validation.y[rows]


class _Placed:
    def __init__(self, part: Part, positions: int, dtype: torch.dtype, device: torch.device | str) -> None:
        longest = part.x.shape[1]
        lengths = torch.as_tensor(part.lengths)
        x = torch.zeros(*part.x.shape[:2], part.x.shape[2] + positions, dtype=dtype)
        for length in lengths.unique().tolist():  # position t of T is t/T of the sequence's own T
            rows = lengths == length
            tokens = torch.as_tensor(part.x[rows.numpy(), :length]).to(dtype)
            x[rows] = with_positions(tokens, longest, positions)
        self.x: Float[Tensor, "1 samples length features"] = x[None].to(device)
        self.y: Float[Tensor, "samples ..."] = torch.as_tensor(part.y).to(device=device, dtype=dtype)
        ragged = bool((lengths < longest).any())
        self.present: Bool[Tensor, "samples length"] | None = (
            (torch.arange(longest) < lengths[:, None]).to(device) if ragged else None
        )

    def at(self, which: Tensor, rows: Tensor) -> Batch:
        present = None if self.present is None else self.present[rows]
        return Batch(self.x, which, rows, present)
