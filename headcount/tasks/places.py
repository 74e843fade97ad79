"""Targets that read by place: fixed positions, and the token that followed an earlier copy of the last one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.structure import Retrieval, Structure
from headcount.tasks.task import check_length, gaussian


@dataclass(frozen=True)
class PositionSum:
    """What stands at fixed positions: y = sum over p in P of the coordinates of x_p, tokens N(0, I).

    Source: Yu et al. 2026 (InfoFlow), the probe of specific-position aggregation (P = first three of ten).
    Departs: the source sums vectors; the sum of their coordinates is a number and asks the same of attention.

    >>> PositionSum(positions=(0, 2), length=3)(torch.tensor([[[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]]]))
    tensor([10.])
    """

    positions: tuple[int, ...]
    length: int
    token_dim: int = 2

    domain = "tokens in R^d, sampled N(0, I)"

    def __post_init__(self) -> None:
        check_length(self.length)
        object.__setattr__(self, "positions", tuple(self.positions))
        if not self.positions or len(set(self.positions)) < len(self.positions):
            raise ValueError(f"positions must be distinct and at least one, got {self.positions}")
        if not all(0 <= p < self.length for p in self.positions):
            raise ValueError(f"positions must lie in 0..{self.length - 1}, got {self.positions}")

    @property
    def structure(self) -> Structure:
        return Structure(self.length, self.token_dim, (Retrieval("places", positions=self.positions, summed=1),))

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return x[:, list(self.positions)].sum(dim=(1, 2))

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = gaussian((batch, self.length, self.token_dim), generator=generator, dtype=dtype)
        return x, self(x)


@dataclass(frozen=True)
class Induction:
    """What followed last time: the letter after the latest earlier copy of the last letter.

    Letters are one-hot tokens of dimension `vocab`; y = (number of that letter) / (vocab - 1), and 0 where the
    last letter has no earlier copy with a successor. Samples always have one.
    Source: Yu et al. 2026 (InfoFlow) and Sanford et al. 2024 (induction heads need two layers).

    >>> letters = torch.nn.functional.one_hot(torch.tensor([[2, 1, 0, 2]]), 3).float()
    >>> Induction(vocab=3, length=4)(letters)
    tensor([0.5000])
    """

    vocab: int
    length: int

    domain = "one-hot letters whose last one occurred before, sampled uniformly"

    def __post_init__(self) -> None:
        check_length(self.length, least=3)
        if self.vocab < 2:
            raise ValueError(f"vocab must be at least 2, got {self.vocab}")

    @property
    def token_dim(self) -> int:
        return self.vocab

    @property
    def structure(self) -> Structure:
        last = Retrieval("last letter", positions=(self.length - 1,))
        copy = Retrieval("its earlier copy", after=("last letter",), offset=1)
        return Structure(self.length, self.vocab, (last, copy))

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        letters = x.argmax(dim=-1)
        successors, earlier = letters[:, 1:], letters[:, :-1]
        # Position t counts t + 1 where it holds a copy of the last letter, so the largest is the latest copy.
        order = torch.arange(1, self.length, device=x.device)
        latest = (order * (earlier == letters[:, -1:])).max(dim=1)
        successor = successors.gather(1, latest.indices[:, None])[:, 0]
        return torch.where(latest.values > 0, successor.to(x.dtype) / (self.vocab - 1), torch.zeros_like(x[:, 0, 0]))

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        device = generator.device if generator is not None else None
        letters = torch.randint(self.vocab, (batch, self.length), generator=generator, device=device)
        source = torch.randint(self.length - 1, (batch, 1), generator=generator, device=device)
        letters[:, -1:] = letters.gather(1, source)
        x = torch.nn.functional.one_hot(letters, self.vocab).to(dtype)
        return x, self(x)
