"""Token selection: sequences with a query, a label and a fixed read-out, drawn as values, many instances at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.refusals import at_least_one


@dataclass(frozen=True, eq=False)
class Instances:
    """Instances of the problem f(X_i) = v^T X_i^T softmax(X_i W z_i): tokens X, queries z, labels +-1, read-out v."""

    tokens: Float[Tensor, "instances sequences length token_dim"]
    queries: Float[Tensor, "instances sequences token_dim"]
    labels: Float[Tensor, "instances sequences"]
    read_out: Float[Tensor, "instances token_dim"]

    @property
    def scores(self) -> Float[Tensor, "instances sequences length"]:
        """gamma_it = Y_i v.x_it: how much attending to a token helps its sequence."""
        return self.labels[..., None] * torch.einsum("istd,id->ist", self.tokens, self.read_out)

    @property
    def best(self) -> Int[Tensor, "instances sequences"]:
        """The token of the largest score."""
        return self.scores.argmax(dim=-1)

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, rows: Int[Tensor, " chosen"] | slice) -> Instances:
        """Some of the instances."""
        return Instances(self.tokens[rows], self.queries[rows], self.labels[rows], self.read_out[rows])

    def arrays(self, instance: int) -> tuple[np.ndarray, np.ndarray]:
        """Tokens and queries of one instance, as `max_margin` takes them."""
        return self.tokens[instance].numpy(), self.queries[instance].numpy()


@dataclass(frozen=True)
class Selection:
    """n sequences of T tokens in R^d: tokens, queries and read-out uniform on the unit sphere, labels fair coins.

    >>> drawn = Selection(sequences=6, length=8, token_dim=10).sample(3, generator=torch.Generator().manual_seed(0))
    >>> drawn.best.shape
    torch.Size([3, 6])
    """

    sequences: int
    length: int
    token_dim: int

    def __post_init__(self) -> None:
        at_least_one(sequences=self.sequences, length=self.length, token_dim=self.token_dim)

    def sample(self, instances: int, *, generator: torch.Generator | None = None) -> Instances:
        """Independent instances in float64."""
        n, T, d = self.sequences, self.length, self.token_dim
        coins = torch.randint(2, (instances, n), generator=generator, dtype=torch.float64)
        return Instances(
            _on_sphere((instances, n, T, d), generator),
            _on_sphere((instances, n, d), generator),
            2 * coins - 1,
            _on_sphere((instances, d), generator),
        )


def _on_sphere(size: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    return x / x.norm(dim=-1, keepdim=True)
