"""Order statistics: softmax finds the largest score, and the k-th largest takes layers or many heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.structure import Retrieval, Structure
from headcount.tasks.task import check_length, uniform


@dataclass(frozen=True)
class KthLargest:
    """The k-th largest of the tokens, which are numbers in [0, 1].

    Source: Yu et al. 2026 (InfoFlow), Theorem 2 (k-th largest retrieval).

    >>> KthLargest(rank=2, length=3)(torch.tensor([[[0.1], [0.9], [0.4]]]))
    tensor([0.4000])
    """

    rank: int
    length: int

    token_dim = 1
    domain = "tokens in [0, 1], sampled uniformly"

    def __post_init__(self) -> None:
        check_length(self.length)
        if not 1 <= self.rank <= self.length:
            raise ValueError(f"rank must lie in 1..{self.length} (the length), got {self.rank}")

    @property
    def structure(self) -> Structure:
        """One look-up; its rank counts from the nearer end, since the least token is the largest of -x."""
        nearer = min(self.rank, self.length - self.rank + 1)
        return Structure(self.length, 1, (Retrieval("k-th largest", rank=nearer, score="number"),))

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return x[:, :, 0].topk(self.rank, dim=1).values[:, -1]

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = uniform((batch, self.length, 1), generator=generator, dtype=dtype)
        return x, self(x)
