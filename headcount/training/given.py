"""Given data as the samples of a bank: arrays of sequences with their lengths and targets, resident on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.kernels.loss import Loss, squared
from headcount.kernels.plain import with_positions
from headcount.training.data import Sampled, Visited, position_features_of
from headcount.training.member import Member, Recipe


@dataclass(frozen=True, eq=False)
class Part:
    """Sequences padded with zeros to the longest, how many tokens of each exist, and the targets as trained."""

    x: Float[np.ndarray, "samples length token_dim"] | Int[np.ndarray, "samples length"]  # vectors, or ids
    lengths: Int[np.ndarray, " samples"]
    y: Float[np.ndarray, "samples ..."]

    def __len__(self) -> int:
        return len(self.x)

    def at(self, rows: Int[np.ndarray, " chosen"]) -> Part:
        """The sequences at `rows`."""
        return Part(self.x[rows], self.lengths[rows], self.y[rows])


@dataclass(frozen=True, eq=False)
class Parts:
    """A training and a validation part, what the best constant loses on each, and the loss that the target asks for.

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
    loss: Loss = squared

    def resident(
        self, members: Sequence[Member], recipe: Recipe, dtype: torch.dtype, device: torch.device | str
    ) -> GivenSamples:
        """The samples on the device, the same for every member."""
        sizes = (len(self.training), len(self.validation))
        if (recipe.samples, recipe.validation) != sizes:
            expected = f"{recipe.samples} samples and {recipe.validation} for validation"
            raise ValueError(f"the recipe asks for {expected}; the data hold {sizes[0]} and {sizes[1]}")
        if recipe.noise:
            raise ValueError(f"noise is added to drawn targets alone, and these data are given; got {recipe.noise}")
        return GivenSamples(self, members, recipe, dtype, device)


class GivenSamples(Visited):
    """The parts as the loop asks for them; a sample's absent tokens are masked, its positions are its own."""

    def __init__(
        self,
        parts: Parts,
        members: Sequence[Member],
        recipe: Recipe,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        positions = position_features_of(members[0])
        self.which = torch.zeros(len(members), dtype=torch.int64, device=device)
        self.train, self.validation = (
            _Placed(part, positions, dtype, device) for part in (parts.training, parts.validation)
        )
        self.y: Float[Tensor, "1 samples ..."] = self.train.y[None]
        self.to_training_level = 1 / parts.constant[0]
        self.to_level: Float[Tensor, " models"] = torch.full((len(members),), 1 / parts.constant[1]).to(self.train.y)
        self.visit(members, recipe, device, parts.loss)

    def at(self, rows: Int[Tensor, "models batch"], part: str = "training", step: int | None = None) -> Sampled:
        """The samples at `rows` of the training or the validation part, with their targets."""
        placed = self.validation if part == "validation" else self.train
        present = None if placed.present is None else placed.present[rows]
        return self.sampled(placed.x, placed.y[None], rows, step, present)


class _Placed:
    def __init__(self, part: Part, positions: int, dtype: torch.dtype, device: torch.device | str) -> None:
        longest = part.x.shape[1]
        lengths = torch.as_tensor(part.lengths)
        if part.x.ndim == 2:
            self.x = torch.as_tensor(part.x, dtype=torch.int64)[None].to(device)
        else:
            self.x = self._vectors(part, lengths, positions, dtype).to(device)
        self.y: Float[Tensor, "samples ..."] = torch.as_tensor(part.y).to(device=device, dtype=dtype)
        ragged = bool((lengths < longest).any())
        self.present: Bool[Tensor, "samples length"] | None = (
            (torch.arange(longest) < lengths[:, None]).to(device) if ragged else None
        )

    @staticmethod
    def _vectors(
        part: Part, lengths: Tensor, positions: int, dtype: torch.dtype
    ) -> Float[Tensor, "1 samples length features"]:
        longest = part.x.shape[1]
        x = torch.zeros(*part.x.shape[:2], part.x.shape[2] + positions, dtype=dtype)
        for length in lengths.unique().tolist():  # position t of T is t/T of the sequence's own T
            rows = lengths == length
            tokens = torch.as_tensor(part.x[rows.numpy(), :length]).to(dtype)
            x[rows] = with_positions(tokens, longest, positions)
        return x[None]
