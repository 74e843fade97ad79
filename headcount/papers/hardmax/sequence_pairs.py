"""Given sequences with given outputs as a task: the finite set on which interpolation is exact, and its attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.certificates.attack import Trial
from headcount.certificates.domains import drawable
from headcount.papers.hardmax.narrow import padded
from headcount.structure import Retrieval, Structure
from headcount.tasks.task import Matrix, Table, matrix


@dataclass(frozen=True)
class SequencePairs:
    """Sequences of tokens, each with a set of output tokens; samples are given ones, in any order of their tokens.

    A batch is padded with NaN. The target of a sequence is a set, padded alike, and `apart` measures from a network's
    outputs to it and back (Hausdorff).

    >>> pairs = SequencePairs([[[1.0, 0.0], [3.0, 0.0]]], [[[5.0, 5.0]]])
    >>> pairs(torch.tensor([[[3.0, 0.0], [1.0, 0.0]]], dtype=torch.float64)).flatten().tolist()
    [5.0, 5.0]
    """

    sequences: Table
    outputs: Table

    def __post_init__(self) -> None:
        for name in ("sequences", "outputs"):
            if not isinstance(getattr(self, name), Sequence) or not len(getattr(self, name)):
                raise ValueError(f"{name} must be a list of tables of numbers, at least one")
            rows = tuple(matrix(rows, f"{name}[{i}]") for i, rows in enumerate(getattr(self, name)))
            object.__setattr__(self, name, rows)
        if len(self.sequences) != len(self.outputs):
            raise ValueError(f"{len(self.sequences)} sequences have {len(self.outputs)} sets of outputs")

    def __repr__(self) -> str:
        sizes = f"{len(self.sequences)} sequences of {self.token_dim} x up to {self.length}"
        return f"SequencePairs({sizes}, {sum(map(len, self.outputs))} outputs)"

    @property
    def length(self) -> int:
        return max(map(len, self.sequences))

    @property
    def token_dim(self) -> int:
        return len(self.sequences[0][0])

    @property
    def structure(self) -> Structure:
        """Every token is read; nothing is compared."""
        return Structure(self.length, self.token_dim, (Retrieval("all tokens", positions=tuple(range(self.length))),))

    @property
    def domain(self) -> str:
        return f"the {len(self.sequences)} given sequences, tokens in any order"

    @cached_property
    def batch(self) -> Float[Tensor, "count length token_dim"]:
        """All sequences, padded."""
        return padded([torch.tensor(s, dtype=torch.float64) for s in self.sequences])

    @cached_property
    def targets(self) -> Float[Tensor, "count most token_dim"]:
        """All sets of outputs, padded."""
        return padded([torch.tensor(s, dtype=torch.float64) for s in self.outputs])

    @cached_property
    def _places(self) -> dict[tuple[tuple[float, ...], ...], int]:
        return {tuple(sorted(rows)): i for i, rows in enumerate(self.sequences)}

    def find(self, x: Float[Tensor, "batch length token_dim"]) -> list[int | None]:
        """The number of the given sequence that each row is, in whatever order its tokens stand; None for others."""
        rows = [[tuple(t) for t in row if t[0] == t[0]] for row in x.double().tolist()]
        return [self._places.get(tuple(sorted(row))) for row in rows]

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch most token_dim"]:
        places = self.find(x)
        if None in places:
            raise ValueError(f"row {places.index(None)} is none of the {len(self.sequences)} given sequences")
        return self.targets[[p for p in places if p is not None]]

    def covers(self, x: Float[Tensor, "batch length token_dim"]) -> Bool[Tensor, " batch"]:
        """Which rows are given sequences."""
        return torch.tensor([place is not None for place in self.find(x)])

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Given sequences at random, their tokens shuffled among all places of the batch."""
        which = torch.randint(len(self.sequences), (batch,), generator=generator)
        order = torch.rand(batch, self.length, generator=generator).argsort(dim=1)
        x = self.batch[which].gather(1, order[..., None].expand(-1, -1, self.token_dim))
        return x.to(dtype), self.targets[which].to(dtype)

    def apart(
        self, found: Float[Tensor, "batch length token_dim"], x: Float[Tensor, "batch length token_dim"]
    ) -> Float[Tensor, " batch"]:
        """The Hausdorff distance of the outputs found from those given."""
        return hausdorff(found, self(x))


@drawable.register
def _(task: SequencePairs, x: Tensor) -> Tensor:
    """Given sequences, their tokens in any order."""
    return task.covers(x)


@dataclass(frozen=True)
class EverySequence:
    """Each given sequence once, as it stands and backwards."""

    name: str = "every sequence, also backwards"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        task = trial.target
        assert isinstance(task, SequencePairs)
        return torch.cat([task.batch, task.batch.flip(1)])


def hausdorff(
    one: Float[Tensor, "batch length dim"], other: Float[Tensor, "batch most dim"]
) -> Float[Tensor, " batch"]:
    """The largest distance of a member of one set from the nearest of the other, either way; NaN rows are absent.

    >>> hausdorff(torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[0.0, 0.0], [3.0, 4.0]]])).item()
    5.0
    """
    absent, other_absent = torch.isnan(one).any(-1), torch.isnan(other).any(-1)
    far = (one.nan_to_num()[:, :, None] - other.nan_to_num()[:, None]).norm(dim=-1)
    out = far.masked_fill(other_absent[:, None, :], torch.inf).amin(2).masked_fill(absent, 0.0).amax(1)
    back = far.masked_fill(absent[:, :, None], torch.inf).amin(1).masked_fill(other_absent, 0.0).amax(1)
    return torch.maximum(out, back)


def as_pairs(sequences: Any, outputs: Any) -> SequencePairs:
    """Sequences and outputs as a task; one row, or a flat row of numbers, is one output."""
    for name, value in (("sequences", sequences), ("outputs", outputs)):
        if not hasattr(value, "__len__") or isinstance(value, str):
            raise ValueError(f"{name} must be a list of tables of numbers, got {type(value).__name__}")
    return SequencePairs(tuple(_rows(s) for s in sequences), tuple(_rows(y) for y in outputs))


def _rows(rows: object) -> Matrix:
    try:
        table = torch.as_tensor(rows, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"a sequence or output must be rows of equally many numbers, got {str(rows)[:60]}") from None
    table = table[None] if table.ndim == 1 else table
    return tuple(tuple(row) for row in table[~torch.isnan(table).all(dim=-1)].tolist())
