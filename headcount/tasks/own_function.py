"""`task`: a plain Python function as a task that samples itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.refusals import nearest
from headcount.structure import Retrieval, Structure
from headcount.tasks.lookups import LipschitzOuter, LookUp, Lookups
from headcount.tasks.ridges import Ridges
from headcount.tasks.sourced import SourcedFunction
from headcount.tasks.task import check_length, gaussian, uniform

TRIED = 7  # sequences on which it is seen what a function takes
DRAWN = {"gaussian": "tokens in R^d, sampled N(0, I)", "uniform": "tokens in [0,1]^d, sampled uniformly"}


@dataclass(frozen=True)
class FunctionTask:
    """A target that is known as a function of the tokens alone; `batched` where it takes many sequences at once."""

    function: SourcedFunction
    length: int
    token_dim: int
    retrievals: tuple[Retrieval, ...]
    tokens: str | SourcedFunction = "gaussian"
    batched: bool = False

    def __post_init__(self) -> None:
        check_length(self.length)
        _ = self.structure  # refused here, where the mistake was made

    @property
    def structure(self) -> Structure:
        return Structure(self.length, self.token_dim, self.retrievals)

    @property
    def domain(self) -> str:
        return DRAWN[self.tokens] if isinstance(self.tokens, str) else f"tokens as {self.tokens} draws them"

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        if self.batched:
            return torch.as_tensor(self.function(x)).to(x)
        return torch.stack([_number(self.function(one)).to(x) for one in x])

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        x = drawn(self.tokens, (batch, self.length, self.token_dim), generator).to(dtype)
        return x, self(x)


def task(
    function: Callable[..., Any] | Ridges,
    *,
    length: int,
    token_dim: int = 1,
    retrievals: int | Retrieval | Sequence[Retrieval] | Sequence[LookUp],
    sample: str | Callable[..., Tensor] = "uniform",
    lipschitz: float | None = None,
) -> FunctionTask | Lookups:
    """A task of a plain Python function.

    `retrievals` says what it looks up. A count, or `Retrieval`s, are what the theory reads, and `function` takes the
    tokens: one sequence (length, token_dim), or many at once. A list of look-ups (`MaxOf`, `WellOf`, `PlaceOf`,
    `RankOf`) is what it finds, and `function` takes those numbers, (batch, D): then `build` makes a network with a
    certificate, where the function is `Ridges` or moves at most by `lipschitz` times the sum of what they move by.
    `sample` is "uniform" on [0, 1]^d, "gaussian", or a function of (batch, generator) that returns tokens.

    >>> spread = task(lambda x: x.max() - x.min(), length=3, retrievals=2)
    >>> spread(torch.tensor([[[1.0], [4.0], [2.0]]])), spread.structure.count
    (tensor([3.]), 2)
    >>> from headcount.tasks.lookups import MaxOf
    >>> ends = [MaxOf((1.0,)), MaxOf((-1.0,))]
    >>> task(lambda z: z.sum(dim=1), length=3, retrievals=ends, lipschitz=1.0)(torch.tensor([[[1.0], [4.0], [2.0]]]))
    tensor([3.])
    """
    if isinstance(sample, str) and sample not in DRAWN:
        raise ValueError(f"no tokens are called {sample!r}; {nearest(sample, DRAWN)}")
    parts = [retrievals] if isinstance(retrievals, int | Retrieval) else list(retrievals)
    if parts and all(isinstance(part, LookUp) for part in parts):
        return _looked_up(function, parts, length, sample, lipschitz)
    if lipschitz is not None or isinstance(function, Ridges):
        raise ValueError(
            "lipschitz and Ridges speak of what look-ups find: give retrievals=[MaxOf(...), ...] with them"
        )
    known = tuple(Retrieval("look-ups", count=part) if isinstance(part, int) else part for part in parts)
    tokens = sample if isinstance(sample, str) else SourcedFunction.of(sample)
    function_task = FunctionTask(SourcedFunction.of(function), length, token_dim, known, tokens)  # type: ignore[arg-type]
    return FunctionTask(
        function_task.function, length, token_dim, function_task.retrievals, tokens, _takes_many(function_task)
    )


def _looked_up(
    function: Callable[..., Any] | Ridges, parts: list[Any], length: int, sample: Any, lipschitz: float | None
) -> Lookups:
    if not isinstance(sample, str):
        raise ValueError('look-ups are certified on "uniform" or "gaussian" tokens; give sample as one of these')
    if isinstance(function, Ridges):
        outer: Ridges | LipschitzOuter | SourcedFunction = function
    else:
        plain = SourcedFunction.of(function)
        outer = plain if lipschitz is None else LipschitzOuter(plain, lipschitz, len(parts))
    low, high = (0.0, 1.0) if sample == "uniform" else (-float("inf"), float("inf"))
    return Lookups(tuple(parts), length, outer, sample, low, high)  # type: ignore[arg-type]


def drawn(tokens: str | SourcedFunction, shape: tuple[int, int, int], generator: torch.Generator | None) -> Tensor:
    """Tokens in float64, as they are asked for."""
    if isinstance(tokens, str):
        return (gaussian if tokens == "gaussian" else uniform)(shape, generator=generator, dtype=torch.float64)
    x = torch.as_tensor(tokens(shape[0], generator)).double()
    if x.shape != shape:
        raise ValueError(f"sample must return tokens of shape {shape}, got {tuple(x.shape)}")
    return x


def _takes_many(function_task: FunctionTask) -> bool:
    """Whether the function takes a whole batch: an answer for each sequence, which follow when those are reordered.

    One that does not must take one sequence and give one number, and is refused otherwise.
    """
    x = drawn(
        function_task.tokens,
        (TRIED, function_task.length, function_task.token_dim),
        torch.Generator().manual_seed(0),
    )
    with contextlib.suppress(Exception):  # of a function that takes one sequence
        outputs, reordered = (torch.as_tensor(function_task.function(batch)) for batch in (x, x.flip(0)))
        if outputs.shape == (TRIED,) and torch.allclose(outputs.double(), reordered.flip(0).double(), equal_nan=True):
            return True
    _number(function_task.function(x[0]))
    return False


def _number(value: Any) -> Tensor:
    number = torch.as_tensor(value)
    if number.numel() != 1:
        raise ValueError(
            f"a task's function gives one number for a sequence (length, token_dim), or (batch,) for many; "
            f"got shape {tuple(number.shape)}"
        )
    return number.reshape(())
