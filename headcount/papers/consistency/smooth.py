"""Regression over tokens: labelled points of the unit cube and one point whose value is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.refusals import at_least_one, nearest, not_negative
from headcount.structure import Retrieval, Structure
from headcount.tasks.task import gaussian, uniform


@dataclass(frozen=True)
class SmoothFunction:
    """A function of the cube, its Lipschitz constant by the dimension, and how far apart its values lie at most."""

    value: Callable[[Tensor], Tensor]
    lipschitz: Callable[[int], float]
    span: Callable[[int], float]


FUNCTIONS = {
    "sine": SmoothFunction(
        lambda x: torch.sin(2 * x.sum(-1)), lambda d: 2 * math.sqrt(d), lambda d: 2.0 if d > 1 else 1.0
    ),
    "slope": SmoothFunction(lambda x: x.sum(-1) / math.sqrt(x.shape[-1]), lambda d: 1.0, math.sqrt),
}


@dataclass(frozen=True)
class Smooth:
    """Tokens (x_i, f(x_i) + noise), x_i uniform on [0, 1]^d, and at the end (q, 0): the answer is f(q).

    >>> task = Smooth("sine", examples=3, dimension=2)
    >>> x, y = task.sample(4, generator=torch.Generator().manual_seed(0))
    >>> x.shape, torch.equal(task(x), y)
    (torch.Size([4, 4, 3]), True)
    """

    function: str = "sine"
    examples: int = 64
    dimension: int = 1
    noise: float = 0.0

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise ValueError(f"unknown function {self.function!r}; {nearest(self.function, FUNCTIONS)}")
        at_least_one(examples=self.examples, dimension=self.dimension)
        not_negative(noise=self.noise)

    @property
    def length(self) -> int:
        return self.examples + 1

    @property
    def token_dim(self) -> int:
        return self.dimension + 1

    @property
    def lipschitz(self) -> float:
        """A constant L with |f(x) - f(z)| <= L |x - z|."""
        return FUNCTIONS[self.function].lipschitz(self.dimension)

    @property
    def span(self) -> float:
        """How far apart two values of f lie at most: a mean of labels is never farther off."""
        return FUNCTIONS[self.function].span(self.dimension)

    @property
    def structure(self) -> Structure:
        read = Retrieval("points", positions=tuple(range(self.examples)))
        return Structure(self.length, self.token_dim, (read,))

    @property
    def domain(self) -> str:
        return f"{self.examples} labelled points and one query, uniform on [0, 1]^{self.dimension}"

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return FUNCTIONS[self.function].value(x[:, -1, :-1])

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        points = uniform((batch, self.length, self.dimension), generator=generator, dtype=dtype)
        tokens = self.labelled(points)
        if self.noise:
            drawn = gaussian((batch, self.examples), generator=generator, dtype=dtype)
            tokens[:, :-1, -1] += self.noise * drawn
        return tokens, self(tokens)

    def labelled(self, points: Float[Tensor, "batch length dimension"]) -> Float[Tensor, "batch length token_dim"]:
        """Points as tokens with noiseless labels, 0 for the query at the end."""
        labels = FUNCTIONS[self.function].value(points)
        labels[:, -1] = 0
        return torch.cat([points, labels[..., None]], dim=-1)
