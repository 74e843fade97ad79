"""The narrow network: attention over a set of tokens and feed-forward layers of at most four neurons, with skips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.nets.weighing import hardmax_within, softmax

TOLERANCE = 1e-9  # of the largest product: what counts as a tie
MIXING = ("average", "attend")


@dataclass(frozen=True)
class NarrowStage:
    """So many layers of one kind: `average` (attention, B = 0), `attend`, `feed` of `neurons` neurons, or `hats`."""

    kind: Literal["average", "attend", "feed", "hats"]
    layers: int = 1
    neurons: int = 4


@dataclass(frozen=True)
class NarrowShape:
    """What a narrow network is but for its numbers; temperature 0 is hardmax, above it softmax of <Bz_i, z_j>/t."""

    token_dim: int
    stages: tuple[NarrowStage, ...]
    temperature: float = 0.0

    @property
    def layers(self) -> int:
        return sum(stage.layers for stage in self.stages)

    @property
    def blocks(self) -> int:
        """An attention and the feed-forward layer after it are one block."""
        mixes = [stage.kind in MIXING for stage in self.stages]
        return self.layers - sum(a and not b for a, b in pairwise(mixes))

    @property
    def parameters(self) -> int:
        """All numbers of dense layers, zeros included: U, b and W; B and V; one skip a layer."""
        d = self.token_dim
        sizes = (2 * d * d if s.kind in MIXING else s.neurons * (2 * d + 1) for s in self.stages)
        return sum(s.layers * (size + 1) for s, size in zip(self.stages, sizes, strict=True))


class Attend(nn.Module):
    """z_i <- rho z_i + value mean_{j in C_i} z_j, C_i = argmax_j product <z_i, z_j> among the tokens present."""

    numbers: Tensor

    def __init__(self, rho: float = 0.0, value: float = 0.0, product: float = 0.0, *, even: bool = False) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.tensor([rho, value, product], dtype=torch.float64))
        self.even = even  # B = 0: every token ties with every other, so that no product is needed

    def forward(
        self, z: Float[Tensor, "batch length dim"], present: Bool[Tensor, "batch length"], temperature: float
    ) -> Float[Tensor, "batch length dim"]:
        rho, value, product = self.numbers.to(z.dtype)
        if self.even:
            mask = present[..., None].to(z.dtype)
            return rho * z + value * ((z * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True))
        weigh = softmax(1 / temperature) if temperature else hardmax_within(TOLERANCE)
        scores = (product * z @ z.mT).masked_fill(~present[:, None, :], -torch.inf)
        return rho * z + value * (weigh(scores) @ z)


class Feed(nn.Module):
    """z <- z + W relu(U z + b), one after the other."""

    def __init__(self, U: Tensor, b: Tensor, W: Tensor) -> None:
        super().__init__()
        for name, number in (("U", U), ("b", b), ("W", W)):
            self.register_buffer(name, number.to(torch.float64))

    def forward(self, z: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        U, b, W = (getattr(self, name).to(z.dtype) for name in "UbW")
        for i in range(len(U)):
            z = z + torch.relu(z @ U[i].T + b[i]) @ W[i].T
        return z


class Hats(nn.Module):
    """z <- z + v hat(key.z), four neurons with one key: W = v (1, -1, -1, 1), kept as its two factors.

    The difference of the four is taken before v: where thresholds are short numbers it is exact, 1 on the flat top
    and 0 outside, whatever the rounding of the key.
    """

    keys: Tensor
    thresholds: Tensor
    moves: Tensor

    def __init__(self, keys: Tensor, thresholds: Tensor, moves: Tensor) -> None:
        super().__init__()
        for name, number in (("keys", keys), ("thresholds", thresholds), ("moves", moves)):
            self.register_buffer(name, number.to(torch.float64))

    def forward(self, z: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length dim"]:
        keys, thresholds, moves = (getattr(self, name).to(z.dtype) for name in ("keys", "thresholds", "moves"))
        for i in range(len(keys)):
            r = torch.relu((z * keys[i]).sum(-1, keepdim=True) - thresholds[i])
            hat = (r[..., 0:1] - r[..., 1:2]) - (r[..., 2:3] - r[..., 3:4])
            z = z + hat * moves[i]
        return z


class NarrowNet(nn.Module):
    """Attention and narrow feed-forward layers over sets of tokens, without positions.

    Keys lie as near to each other as float64 can tell apart, so coarser numbers are refused.
    Called with a list of sequences it gives a list; with a padded batch and `present`, or with absent tokens as NaN,
    a batch of the same form.
    """

    def __init__(self, shape: NarrowShape, stages: Sequence[nn.Module] | None = None) -> None:
        super().__init__()
        self.shape = shape
        modules = [_empty(stage, shape.token_dim) for stage in shape.stages] if stages is None else stages
        self.stages = nn.ModuleList(modules)

    def forward(
        self, x: Tensor | Sequence[Tensor], present: Bool[Tensor, "batch length"] | None = None
    ) -> Tensor | list[Tensor]:
        if not isinstance(x, Tensor):
            return [row[: len(s)] for row, s in zip(self._batch(padded(x), None), x, strict=True)]
        return self._batch(x, present)

    def _batch(self, x: Float[Tensor, "batch length dim"], present: Bool[Tensor, "batch length"] | None) -> Tensor:
        coarse = next((t.dtype for t in (x, *self.buffers()) if t.dtype != torch.float64), None)
        if coarse is not None:
            raise ValueError(f"interpolation is exact in float64 and false in {str(coarse)[6:]}: call net.double()")
        present = ~torch.isnan(x).any(dim=-1) if present is None else present
        z = torch.where(present[..., None], x, 0.0)
        for stage in self.stages:
            z = stage(z, present, self.shape.temperature) if isinstance(stage, Attend) else stage(z)
        return torch.where(present[..., None], z, torch.nan)

    def with_softmax(self, temperature: float = 1.0) -> NarrowNet:
        """The same weights with softmax attention at this temperature."""
        if not temperature > 0:
            raise ValueError(f"softmax needs a temperature above 0, got {temperature}")
        return NarrowNet(replace(self.shape, temperature=temperature), list(self.stages))

    @property
    def feedforward_parameters(self) -> int:
        """Weights and biases of the feed-forwards, attention and skips not counted."""
        attends = sum(s.layers for s in self.shape.stages if s.kind in MIXING)
        return self.shape.parameters - 2 * self.shape.token_dim**2 * attends - self.shape.layers


def padded(sequences: Sequence[Any], length: int = 0) -> Float[Tensor, "batch length dim"]:
    """Sequences below each other, absent tokens as NaN.

    >>> padded([torch.ones(1, 2), torch.ones(2, 2)])[0, 1]
    tensor([nan, nan], dtype=torch.float64)
    """
    rows = [torch.as_tensor(s, dtype=torch.float64) for s in sequences]
    longest = max(length, *(len(r) for r in rows)) if rows else length
    batch = torch.full((len(rows), longest, rows[0].shape[1]), torch.nan, dtype=torch.float64)
    for place, row in zip(batch, rows, strict=True):
        place[: len(row)] = row
    return batch


def _empty(stage: NarrowStage, dim: int) -> nn.Module:
    n, h = stage.layers, stage.neurons
    zeros = torch.zeros
    if stage.kind in MIXING:
        return Attend(even=stage.kind == "average")
    if stage.kind == "feed":
        return Feed(zeros(n, h, dim), zeros(n, h), zeros(n, dim, h))
    return Hats(zeros(n, dim), zeros(n, 4), zeros(n, dim))
