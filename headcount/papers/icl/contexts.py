"""In-context tasks: examples (x, y) of a map drawn anew for every context, and a query whose answer is asked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.refusals import at_least, at_least_one, not_negative
from headcount.structure import Retrieval, Structure
from headcount.tasks.task import gaussian

HIDDEN = 8  # units of a two-layer teacher


@dataclass(frozen=True)
class Spectrum:
    """The covariance of the inputs: eigenvalues i^(-decay), in fixed axes or `rotated` anew in every context.

    >>> Spectrum(decay=1.0).values(3)
    (1.0, 0.5, 0.3333333333333333)
    """

    decay: float = 0.0
    rotated: bool = False

    def __post_init__(self) -> None:
        not_negative(decay=self.decay)

    def values(self, dimension: int) -> tuple[float, ...]:
        """The eigenvalues, largest first."""
        return tuple((i + 1) ** -self.decay for i in range(dimension))

    @property
    def name(self) -> str:
        """isotropic, fixed or rotated: the three settings of deep linear regression in context."""
        return "isotropic" if self.decay == 0 else "rotated" if self.rotated else "fixed"


@dataclass(frozen=True)
class InContext:
    """Tokens (x_i, y_i, 0) for the examples and (x_q, 0, 1) for the query; the answer is f(x_q), f new in each context.

    `levels` is the depth of the teacher beyond a linear map: 0 is <w, x> with w ~ N(0, I/d), 1 a two-layer map, m
    the composition of m of them. Labels bear `noise`, the answer of `sample` bears none. The call is the best answer to
    a context, which only the linear teacher has in closed form: the posterior mean, ridge of weight d noise^2 on the
    sum of squares; without noise least squares, of smallest norm where examples are few.

    >>> task = InContext(examples=4, dimension=2)
    >>> x, y = task.sample(3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> x.shape, bool((task(x) - y).abs().max() < 1e-9)
    (torch.Size([3, 5, 4]), True)
    """

    examples: int = 64
    dimension: int = 16
    spectrum: Spectrum = field(default_factory=Spectrum)
    levels: int = 0
    noise: float = 0.0

    def __post_init__(self) -> None:
        at_least_one(examples=self.examples, dimension=self.dimension)
        at_least(0, levels=self.levels)
        not_negative(noise=self.noise)

    @property
    def length(self) -> int:
        return self.examples + 1

    @property
    def token_dim(self) -> int:
        return self.dimension + 2

    @property
    def structure(self) -> Structure:
        """What is read: every example, none of them compared."""
        read = Retrieval("examples", positions=tuple(range(self.examples)))
        return Structure(self.length, self.token_dim, (read,))

    @property
    def domain(self) -> str:
        return f"contexts of {self.examples} examples of {self.spectrum.name} inputs, as `sample` draws them"

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        if self.levels:
            raise ValueError(f"a teacher of {self.levels} levels has no closed best answer: compare with `sample`")
        d = self.dimension
        w = best_linear(x[:, :-1, :d], x[:, :-1, d], d * self.noise**2)
        return (w * x[:, -1, :d]).sum(-1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        tokens, truth = self.draw(batch, 1, generator=generator, dtype=dtype)
        return tokens, truth[:, 0]

    def draw(
        self, batch: int, queries: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch all token_dim"], Float[Tensor, "batch queries"]]:
        """Contexts with several queries each, at the end, and their noiseless answers."""
        total = self.examples + queries
        x = self._inputs(batch, total, generator, dtype)
        truth = self._teach(x, generator)
        labels = truth.clone()
        if self.noise:
            labels = labels + self.noise * gaussian(tuple(truth.shape), generator=generator, dtype=dtype)
        labels[:, self.examples :] = 0
        query_mask = torch.zeros_like(labels)
        query_mask[:, self.examples :] = 1
        tokens = torch.cat([x, labels[..., None], query_mask[..., None]], dim=-1)
        return tokens, truth[:, self.examples :]

    def _inputs(self, batch: int, total: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        x = gaussian((batch, total, self.dimension), generator=generator, dtype=dtype)
        if self.spectrum.decay == 0:  # a rotation of the isotropic inputs is the isotropic inputs
            return x
        x = x * torch.tensor(self.spectrum.values(self.dimension), dtype=dtype, device=x.device).sqrt()
        if not self.spectrum.rotated:
            return x
        drawn = gaussian((batch, self.dimension, self.dimension), generator=generator, dtype=dtype)
        return x @ torch.linalg.qr(drawn)[0].mT

    def _teach(self, x: Float[Tensor, "batch all dimension"], generator: torch.Generator | None) -> Tensor:
        """The noiseless labels by a teacher drawn for each context; rectified layers keep the variance near 1."""
        z = x
        for level in range(self.levels):
            out = 1 if level == self.levels - 1 else self.dimension
            inner = self._weights(len(x), z.shape[-1], HIDDEN, generator, x.dtype)
            outer = self._weights(len(x), HIDDEN, out, generator, x.dtype)
            z = math.sqrt(2.0) * (z @ inner).relu() @ outer
        return z[..., 0] if self.levels else (z @ self._weights(len(x), self.dimension, 1, generator, x.dtype))[..., 0]

    def _weights(self, batch: int, into: int, out: int, generator: torch.Generator | None, dtype: torch.dtype):
        return gaussian((batch, into, out), generator=generator, dtype=dtype) / math.sqrt(into)


def best_linear(
    x: Float[Tensor, "batch examples dimension"], y: Float[Tensor, "batch examples"], weight: float
) -> Float[Tensor, "batch dimension"]:
    """The minimiser of sum (y - <w, x>)^2 + weight |w|^2; of smallest norm where the weight is 0.

    >>> x, y = torch.tensor([[[1.0], [1.0]]]).double(), torch.tensor([[1.0, 3.0]]).double()
    >>> round(best_linear(x, y, 0.0).item(), 9), best_linear(x, y, 2.0).item()
    (2.0, 1.0)
    """
    if weight == 0:
        return (torch.linalg.pinv(x) @ y[..., None])[..., 0]
    gram = x.mT @ x + weight * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return torch.linalg.solve(gram, (x.mT @ y[..., None]))[..., 0]
