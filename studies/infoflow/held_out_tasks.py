"""Tasks that no rule of the calculus was tuned to: two hops, sums of ranks, products, a place beside maxima."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.structure import Retrieval, Structure
from headcount.tasks.task import gaussian, uniform


@dataclass(frozen=True)
class TwoHops:
    """The letter after the latest copy of the letter after the latest copy of the last one, over `vocab` - 1.

    Letters are one-hot; 0 where a hop finds no earlier copy.

    >>> letters = torch.nn.functional.one_hot(torch.tensor([[1, 2, 0, 1, 0]]), 3).double()
    >>> TwoHops(3, 5)(letters)  # after 0 came 1, after the 1 before that came 2
    tensor([1.], dtype=torch.float64)
    """

    vocab: int
    length: int

    @property
    def token_dim(self) -> int:
        return self.vocab

    @property
    def domain(self) -> str:
        return "one-hot letters, sampled uniformly"

    @property
    def structure(self) -> Structure:
        last = Retrieval("last letter", positions=(self.length - 1,))
        first = Retrieval("first hop", after=("last letter",), offset=1)
        return Structure(
            self.length, self.vocab, (last, first, Retrieval("second hop", after=("first hop",), offset=1))
        )

    def __call__(self, x: Tensor) -> Tensor:
        letters = x.argmax(dim=-1)
        place = torch.full_like(letters[:, :1], self.length - 1)
        for _ in range(2):
            place = self._hop(letters, place)
        letter = letters.gather(1, place.clamp(min=0))[:, 0]
        return torch.where(place[:, 0] >= 0, letter.to(x.dtype) / (self.vocab - 1), torch.zeros_like(x[:, 0, 0]))

    def _hop(self, letters: Tensor, place: Tensor) -> Tensor:
        """The place after the latest copy before `place` of the letter there; -1 where there is none."""
        order = torch.arange(self.length, device=letters.device)
        same = (letters == letters.gather(1, place.clamp(min=0))) & (order < place)
        latest = torch.where(same, order + 1, 0).amax(dim=1, keepdim=True)
        return torch.where((latest > 0) & (place >= 0), latest, -1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        device = generator.device if generator is not None else None
        letters = torch.randint(self.vocab, (batch, self.length), generator=generator, device=device)
        x = torch.nn.functional.one_hot(letters, self.vocab).to(dtype)
        return x, self(x)


@dataclass(frozen=True)
class RankSum:
    """The sum of order statistics of numbers in [0, 1].

    >>> RankSum((1, 2), 3)(torch.tensor([[[0.1], [0.9], [0.4]]]))
    tensor([1.3000])
    """

    ranks: tuple[int, ...]
    length: int

    @property
    def token_dim(self) -> int:
        return 1

    @property
    def domain(self) -> str:
        return "tokens in [0, 1], sampled uniformly"

    @property
    def structure(self) -> Structure:
        parts = (Retrieval(f"rank {k}", rank=min(k, self.length - k + 1), score="number") for k in self.ranks)
        return Structure(self.length, 1, tuple(parts))

    def __call__(self, x: Tensor) -> Tensor:
        return x[:, :, 0].sort(dim=1, descending=True).values[:, [k - 1 for k in self.ranks]].sum(dim=1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        x = uniform((batch, self.length, 1), generator=generator, dtype=dtype)
        return x, self(x)


@dataclass(frozen=True)
class ProductOfMaxima:
    """The product of the largest first, second, ... coordinates of tokens in [0, 1]^d.

    >>> ProductOfMaxima(2, 2)(torch.tensor([[[0.5, 0.1], [0.2, 0.4]]]))
    tensor([0.2000])
    """

    factors: int
    length: int

    @property
    def token_dim(self) -> int:
        return self.factors

    @property
    def domain(self) -> str:
        return "tokens in [0, 1]^d, sampled uniformly"

    @property
    def structure(self) -> Structure:
        return Structure(self.length, self.factors, (Retrieval("maxima", count=self.factors, score="other"),))

    def __call__(self, x: Tensor) -> Tensor:
        return x.amax(dim=1).prod(dim=1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        x = uniform((batch, self.length, self.factors), generator=generator, dtype=dtype).square()
        return x, self(x)


@dataclass(frozen=True)
class PlaceAndMaxima:
    """What stands at the first place, its coordinates added, and the largest of each coordinate: tokens N(0, I).

    >>> PlaceAndMaxima(2, 2)(torch.tensor([[[1.0, 2.0], [3.0, 0.0]]]))
    tensor([8.])
    """

    maxima: int
    length: int

    @property
    def token_dim(self) -> int:
        return self.maxima

    @property
    def domain(self) -> str:
        return "tokens in R^d, sampled N(0, I)"

    @property
    def structure(self) -> Structure:
        place = Retrieval("first token", positions=(0,), summed=1)
        return Structure(self.length, self.maxima, (place, Retrieval("maxima", count=self.maxima, score="other")))

    def __call__(self, x: Tensor) -> Tensor:
        return x[:, 0].sum(dim=1) + x.amax(dim=1).sum(dim=1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        x = gaussian((batch, self.length, self.maxima), generator=generator, dtype=dtype)
        return x, self(x)
