"""Look-ups of the study beyond those of the package: maxima in a window, over pairs, and of neighbours."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headcount.structure import Retrieval
from headcount.tasks import Lookups, MaxOf, PlaceOf, RankOf, Ridges

SAMPLES = 20_000  # from which a look-up's deviation is taken
Vector = tuple[float, ...]


@dataclass(frozen=True)
class WindowOf:
    """max over the first `window` tokens of <direction, x_t>.

    >>> WindowOf(2, (1.0,))(torch.tensor([[[1.0], [2.0], [9.0]]]))
    tensor([2.])
    """

    window: int
    direction: Vector

    @property
    def token_dim(self) -> int:
        return len(self.direction)

    def __call__(self, x: Tensor) -> Tensor:
        return (x[:, : self.window] @ x.new_tensor(self.direction)).amax(dim=1)

    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None:
        """Refuse a window that is longer than the sequence."""
        if not 1 <= self.window <= length:
            raise ValueError(f"a window of {self.window} positions does not lie in {length}")

    def retrieval(self, name: str, length: int) -> Retrieval:
        """A maximum over fewer positions."""
        return Retrieval(name, window=self.window, score="other")


@dataclass(frozen=True)
class PairOf:
    """max over s, t of x_s^T A x_t.

    >>> PairOf(((1.0,),))(torch.tensor([[[1.0], [-3.0]]]))
    tensor([9.])
    """

    form: tuple[Vector, ...]

    @property
    def token_dim(self) -> int:
        return len(self.form)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.einsum("bsi,ij,btj->bst", x, x.new_tensor(self.form), x).flatten(1).amax(dim=1)

    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None:
        """Refuse a form of another dimension."""
        if any(len(row) != token_dim for row in self.form):
            raise ValueError(f"tokens have dimension {token_dim}, and the form is {self.form}")

    def retrieval(self, name: str, length: int) -> Retrieval:
        """A comparison of pairs."""
        return Retrieval(name, order=2, score="other")


@dataclass(frozen=True)
class BesideOf:
    """max over t of <direction, x_t> + <other, x_(t+1)>, t from the first token to the last but one.

    >>> BesideOf((1.0,), (1.0,))(torch.tensor([[[1.0], [5.0], [4.0], [4.5]]]))
    tensor([9.])
    """

    direction: Vector
    other: Vector

    @property
    def token_dim(self) -> int:
        return len(self.direction)

    def __call__(self, x: Tensor) -> Tensor:
        scores = x[:, :-1] @ x.new_tensor(self.direction) + x[:, 1:] @ x.new_tensor(self.other)
        return scores.amax(dim=1)

    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None:
        """Refuse a sequence without neighbours."""
        if length < 2:
            raise ValueError("one token has no neighbour")

    def retrieval(self, name: str, length: int) -> Retrieval:
        """A comparison of tokens together with what stands after them, of which one number is needed."""
        return Retrieval(name, beside=(1,), summed=1, score="other")


def drawn_task(rng: random.Random) -> Lookups:
    """One to three look-ups of random kinds, each of variance one, and their sum as the target."""
    length, token_dim = rng.randint(6, 12), rng.randint(2, 3)
    kinds = [rng.choice(KINDS) for _ in range(rng.randint(1, 3))]
    parts = tuple(_of_variance_one(kind(rng, length, token_dim), length) for kind in kinds)
    return Lookups(parts, length, Ridges.sum(len(parts)), tokens="gaussian", low=-math.inf, high=math.inf)


def _unit(rng: random.Random, token_dim: int) -> Vector:
    values = [rng.gauss(0, 1) for _ in range(token_dim)]
    return tuple(v / math.hypot(*values) for v in values)


def _form(rng: random.Random, token_dim: int) -> tuple[Vector, ...]:
    return tuple(tuple(rng.gauss(0, 1) for _ in range(token_dim)) for _ in range(token_dim))


KINDS: tuple[Callable[[random.Random, int, int], Any], ...] = (
    lambda rng, length, d: MaxOf(_unit(rng, d)),
    lambda rng, length, d: RankOf(rng.randint(2, 3), _unit(rng, d)),
    lambda rng, length, d: PlaceOf(rng.randrange(length), _unit(rng, d)),
    lambda rng, length, d: WindowOf(rng.randint(3, length - 1), _unit(rng, d)),
    lambda rng, length, d: PairOf(_form(rng, d)),
    lambda rng, length, d: BesideOf(_unit(rng, d), _unit(rng, d)),
)


def _of_variance_one(part: Any, length: int) -> Any:
    """The look-up with its direction or form scaled, so that no part of a target drowns the others."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(SAMPLES, length, part.token_dim, generator=generator, dtype=torch.float64)
    scale = 1 / float(part(x).std())
    if isinstance(part, PairOf):
        return PairOf(tuple(tuple(scale * v for v in row) for row in part.form))
    scaled = tuple(scale * v for v in part.direction)
    if isinstance(part, BesideOf):
        return BesideOf(scaled, tuple(scale * v for v in part.other))
    return replace(part, direction=scaled)
