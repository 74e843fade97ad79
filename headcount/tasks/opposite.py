"""The target of the depth separation: the pair of tokens that comes nearest to cancelling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.structure import Retrieval, Structure
from headcount.tasks.task import by_parts, check_length, uniform


@dataclass(frozen=True)
class OppositePair:
    """The most opposite pair: y = min_{s,t} |x_s + x_t| (s = t allowed), tokens in [-1,1]^d.

    Source: Yu et al. 2026 (InfoFlow), the depth separation; the target is reconstructed from its abstract.

    >>> OppositePair(length=3)(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]]]))
    tensor([0.5000])
    """

    length: int
    token_dim: int = 2

    domain = "tokens in [-1,1]^d, sampled uniformly"

    def __post_init__(self) -> None:
        check_length(self.length)
        if self.token_dim < 1:
            raise ValueError(f"token_dim must be at least 1, got {self.token_dim}")

    @property
    def structure(self) -> Structure:
        """One look-up of a pair; its lower bound needs a plane of tokens."""
        score = "opposite" if self.token_dim > 1 else "other"
        return Structure(self.length, self.token_dim, (Retrieval("pair", order=2, score=score),))

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return by_parts(self._smallest, x, self.length**2 * self.token_dim)

    def _smallest(self, x: Tensor) -> Tensor:
        sums = x[:, :, None, :] + x[:, None, :, :]
        return sums.square().sum(dim=-1).flatten(1).amin(dim=1).sqrt()

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = 2 * uniform((batch, self.length, self.token_dim), generator=generator, dtype=dtype) - 1
        return x, self(x)
