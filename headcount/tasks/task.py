"""What every task answers: the exact target, fresh samples, what it looks up, and where it is defined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.structure import Structure

Matrix = tuple[tuple[float, ...], ...]
Table = Any  # what a field takes: nested lists, an array or a tensor; it is kept as nested tuples


@runtime_checkable
class Task(Protocol):
    """A frozen value: the true target as a call, and a sampler that takes its own generator."""

    @property
    def length(self) -> int: ...
    @property
    def token_dim(self) -> int: ...
    @property
    def structure(self) -> Structure: ...
    @property
    def domain(self) -> str: ...

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]: ...
    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]: ...


def matrix(rows: object, name: str) -> Matrix:
    """Rows of numbers as nested tuples, so that a task can be compared, hashed and written as JSON.

    >>> matrix([[1, 2], [3, 4]], "directions")
    ((1.0, 2.0), (3.0, 4.0))
    """
    try:
        table = torch.as_tensor(rows, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ValueError(f"{name} must be a non-empty table of numbers, rows of one length") from None
    if table.ndim != 2 or table.numel() == 0:
        raise ValueError(f"{name} must be a non-empty table of numbers, got shape {tuple(table.shape)}")
    if not torch.isfinite(table).all():
        raise ValueError(f"{name} holds a number that is not finite")
    return tuple(tuple(row) for row in table.tolist())


def check_length(length: int, least: int = 1) -> None:
    """Refuse a length below the least that the target needs."""
    if length < least:
        raise ValueError(f"length must be at least {least}, got {length}")


def by_parts(
    target: Callable[[Tensor], Tensor], x: Float[Tensor, "batch length token_dim"], numbers: int
) -> Float[Tensor, " batch"]:
    """The target of many sequences, a few at a time, where one needs `numbers` numbers on the way.

    Memory stays near the processor's caches, which for targets over pairs and triples is most of the speed.
    """
    return torch.cat([target(part) for part in x.split(max(1, 4_000_000 // max(1, numbers)))])


def gaussian(
    shape: tuple[int, ...], *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Independent N(0, 1) numbers, drawn in float64 so that every dtype sees the same sample."""
    device = generator.device if generator is not None else None
    return torch.randn(shape, generator=generator, dtype=torch.float64, device=device).to(dtype)


def uniform(
    shape: tuple[int, ...], *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Independent uniform numbers on [0, 1), drawn in float64 so that every dtype sees the same sample."""
    device = generator.device if generator is not None else None
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=device).to(dtype)
