"""Look-ups put together: each finds one number in the sequence, and an outer function makes the target of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.structure import Retrieval, Structure
from headcount.tasks.sourced import SourcedFunction
from headcount.tasks.task import check_length, gaussian, uniform


@runtime_checkable
class LookUp(Protocol):
    """One number of a sequence, and what the theory should know of how it is found."""

    @property
    def token_dim(self) -> int: ...

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]: ...
    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None: ...
    def retrieval(self, name: str, length: int) -> Retrieval: ...


@runtime_checkable
class OuterFunction(Protocol):
    """What makes the target of the numbers found: (batch, D) to (batch,)."""

    def __call__(self, z: Tensor) -> Tensor: ...


class _Along:
    """What look-ups along a direction share: it is kept as numbers, and says the dimension of the tokens."""

    direction: Sequence[float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", _direction(self.direction))

    @property
    def token_dim(self) -> int:
        return len(self.direction)


@dataclass(frozen=True)
class MaxOf(_Along):
    """max_t <direction, x_t>.

    >>> MaxOf((1.0,))(torch.tensor([[[1.0], [4.0], [2.0]]]))
    tensor([4.])
    """

    direction: Sequence[float]

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return _along(x, self.direction).amax(dim=1)

    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None:
        """Refuse a direction of another dimension."""
        _refuse_dimension(self.direction, token_dim)

    def retrieval(self, name: str, length: int) -> Retrieval:
        """A maximum of linear scores."""
        return Retrieval(name, score="other")


@dataclass(frozen=True)
class WellOf:
    """min_t |x_t - centre|^2 / d, tokens in [0, 1]^d.

    >>> WellOf((0.5,))(torch.tensor([[[0.0], [0.25]]]))
    tensor([0.0625])
    """

    centre: Sequence[float]

    @property
    def token_dim(self) -> int:
        return len(self.centre)

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", tuple(map(float, self.centre)))

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return (x - torch.tensor(self.centre, dtype=x.dtype, device=x.device)).square().mean(dim=-1).amin(dim=1)

    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None:
        """Refuse a centre of another dimension, and tokens that leave the unit cube."""
        _refuse_dimension(self.centre, token_dim)
        if box != (0.0, 1.0) or not all(0 <= v <= 1 for v in self.centre):
            raise ValueError(
                f"a well needs its centre and the tokens in [0, 1]^{token_dim}, got {self.centre} in {box}"
            )

    def retrieval(self, name: str, length: int) -> Retrieval:
        """The deepest visit to a well."""
        return Retrieval(name, score="other")


@dataclass(frozen=True)
class PlaceOf(_Along):
    """<direction, x_p>: what stands at position p, counted from 0.

    >>> PlaceOf(1, (1.0, 2.0))(torch.tensor([[[9.0, 9.0], [1.0, 3.0]]]))
    tensor([7.])
    """

    position: int
    direction: Sequence[float]

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return _along(x, self.direction)[:, self.position]

    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None:
        """Refuse a direction of another dimension and a position that is not there."""
        _refuse_dimension(self.direction, token_dim)
        if not 0 <= self.position < length:
            raise ValueError(f"position {self.position} is outside 0..{length - 1}")

    def retrieval(self, name: str, length: int) -> Retrieval:
        """A fixed position, of which one number is read."""
        return Retrieval(name, positions=(self.position,), summed=1)


@dataclass(frozen=True)
class RankOf(_Along):
    """The k-th largest of <direction, x_t>; rank 1 is the largest, rank T the smallest.

    >>> RankOf(2, (1.0,))(torch.tensor([[[1.0], [4.0], [2.0]]]))
    tensor([2.])
    """

    rank: int
    direction: Sequence[float]

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return _along(x, self.direction).topk(self.rank, dim=1).values[:, -1]

    def check(self, length: int, token_dim: int, box: tuple[float, float]) -> None:
        """Refuse a direction of another dimension and a rank that the sequence has not."""
        _refuse_dimension(self.direction, token_dim)
        if not 1 <= self.rank <= length:
            raise ValueError(f"rank must lie in 1..{length} (the length), got {self.rank}")

    def retrieval(self, name: str, length: int) -> Retrieval:
        """A rank, counted from the nearer end."""
        return Retrieval(name, rank=min(self.rank, length - self.rank + 1), score="other")


@dataclass(frozen=True)
class LipschitzOuter:
    """An outer function F of which only |F(z) - F(w)| <= constant (|z_1 - w_1| + ... + |z_D - w_D|) is known.

    >>> larger = LipschitzOuter(SourcedFunction.of(lambda z: z.amax(dim=1)), 1.0, 2)
    >>> larger(torch.tensor([[1.0, 3.0]])), larger.partial_bounds()
    (tensor([3.]), (1.0, 1.0))
    """

    function: SourcedFunction
    constant: float
    arguments: int

    def __post_init__(self) -> None:
        if not 0 < self.constant < float("inf"):
            raise ValueError(f"lipschitz must be a finite number above 0, got {self.constant}")

    def __call__(self, z: Float[Tensor, "batch arguments"]) -> Float[Tensor, " batch"]:
        return self.function(z)

    def partial_bounds(self) -> tuple[float, ...]:
        """An upper bound of how fast F moves with each z_i."""
        return (self.constant,) * self.arguments


@dataclass(frozen=True)
class Lookups:
    """y = F(z_1, ..., z_D), each z_i a look-up of `parts`, tokens uniform on [0, 1]^d or N(0, I).

    `outer` is F: a sum of ridges, or any function with a known Lipschitz constant; a plain `SourcedFunction`, of which
    nothing is known, is a target all the same and has no certified network.

    >>> from headcount.tasks.ridges import Ridges
    >>> task = Lookups((MaxOf((1.0,)), PlaceOf(0, (1.0,))), length=3, outer=Ridges.sum(2))
    >>> task(torch.tensor([[[0.5], [0.75], [0.25]]]))
    tensor([1.2500])
    >>> task.structure.count  # by comparison
    1
    """

    parts: Sequence[LookUp]
    length: int
    outer: OuterFunction
    tokens: Literal["uniform", "gaussian"] = "uniform"
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        check_length(self.length)
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise ValueError("parts is empty: a task must look up something")
        for part in self.parts:
            part.check(self.length, self.token_dim, (self.low, self.high))
        arguments = getattr(self.outer, "arguments", len(self.parts))
        if arguments != len(self.parts):
            raise ValueError(f"the outer function takes {arguments} numbers but there are {len(self.parts)} look-ups")

    @property
    def token_dim(self) -> int:
        return self.parts[0].token_dim

    @property
    def structure(self) -> Structure:
        kinds = [type(part).__name__.removesuffix("Of").lower() for part in self.parts]
        names = [f"{kind} {i + 1}" for i, kind in enumerate(kinds)]
        retrievals = (part.retrieval(name, self.length) for part, name in zip(self.parts, names, strict=True))
        return Structure(self.length, self.token_dim, tuple(retrievals))

    @property
    def domain(self) -> str:
        return "tokens in [0,1]^d, sampled uniformly" if self.tokens == "uniform" else "tokens in R^d, sampled N(0, I)"

    def found(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch retrievals"]:
        """The numbers z_i themselves."""
        return torch.stack([part(x) for part in self.parts], dim=1)

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return self.outer(self.found(x))

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        draw = uniform if self.tokens == "uniform" else gaussian
        x = draw((batch, self.length, self.token_dim), generator=generator, dtype=dtype)
        return x, self(x)


def _direction(values: Any) -> tuple[float, ...]:
    direction = tuple(map(float, values))
    if not direction or not any(direction):
        raise ValueError(f"a direction needs a number that is not zero, got {direction}")
    return direction


def _along(x: Tensor, direction: Sequence[float]) -> Tensor:
    return x @ torch.tensor(direction, dtype=x.dtype, device=x.device)


def _refuse_dimension(vector: Sequence[float], token_dim: int) -> None:
    if len(vector) != token_dim:
        raise ValueError(f"tokens have dimension {token_dim}, and {vector} has {len(vector)}")
