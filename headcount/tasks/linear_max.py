"""The synthetic task of the head-count paper: a sum of maxima of linear scores."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.structure import Retrieval, Structure
from headcount.tasks.intrinsic import merged_directions
from headcount.tasks.task import Table, check_length, gaussian, matrix


@dataclass(frozen=True)
class LinearMax:
    """Sum of D maxima: y = sum_i max_t <a_i, x_t>, tokens x_t ~ N(0, I).

    Source: Yu et al. 2025 (heads), Section 5 (D = 4, token_dim 4).

    >>> task = LinearMax(directions=[[1, 0], [0, 1]], length=3)
    >>> x = torch.tensor([[[1.0, 0.0], [0.0, 5.0], [-1.0, -1.0]]])
    >>> task(x)
    tensor([6.])
    """

    directions: Table
    length: int

    domain = "tokens in R^d, sampled N(0, I)"

    def __post_init__(self) -> None:
        object.__setattr__(self, "directions", matrix(self.directions, "directions"))
        check_length(self.length)

    @classmethod
    def random(cls, retrievals: int, token_dim: int, length: int, seed: int = 0) -> LinearMax:
        """Directions drawn uniformly from the unit sphere, so that every maximum carries the same variance."""
        if retrievals < 1 or token_dim < 1:
            raise ValueError(f"retrievals and token_dim must be at least 1, got {retrievals} and {token_dim}")
        a = gaussian((retrievals, token_dim), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return cls(matrix(a / a.norm(dim=1, keepdim=True), "directions"), length)

    @property
    def token_dim(self) -> int:
        return len(self.directions[0])

    @property
    def structure(self) -> Structure:
        """What it looks up, counted on the intrinsic form."""
        count = len(merged_directions(self.directions, self.length))
        return Structure(self.length, self.token_dim, (Retrieval("maxima", count=count, score="linear"),))

    def intrinsic(self) -> LinearMax:
        """The same target with as few maxima as can be: zero directions dropped, positive multiples added up.

        >>> LinearMax([[1, 0], [3, 0], [0, 0]], 8).intrinsic()
        LinearMax(directions=((4.0, 0.0),), length=8)
        """
        return LinearMax(merged_directions(self.directions, self.length), self.length)

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        a = torch.tensor(self.directions, dtype=x.dtype, device=x.device)
        return (x @ a.T).amax(dim=1).sum(dim=1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = gaussian((batch, self.length, self.token_dim), generator=generator, dtype=dtype)
        return x, self(x)
