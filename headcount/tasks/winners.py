"""Which token each retrieval of a task finds: the positions that a head should look at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.tasks.linear_max import LinearMax
from headcount.tasks.lookups import LookUp, Lookups, MaxOf, PlaceOf, RankOf, WellOf
from headcount.tasks.places import PositionSum
from headcount.tasks.ranks import KthLargest
from headcount.tasks.wells import Wells


@singledispatch
def winners(task: object, x: Float[Tensor, "batch length token_dim"]) -> dict[str, Int[Tensor, " batch"]]:
    """The position that each retrieval finds, by its name; a task that does not say it token by token is refused.

    >>> winners(LinearMax([[1.0], [-1.0]], 3), torch.tensor([[[0.0], [5.0], [-2.0]]]))
    {'max 1': tensor([1]), 'max 2': tensor([2])}
    """
    raise ValueError(
        f"which tokens {type(task).__name__} finds is not stated one by one; tasks that say it are LinearMax, Wells, "
        "KthLargest, PositionSum and task(..., retrievals=[MaxOf(...), ...])"
    )


@winners.register
def _(task: LinearMax, x: Tensor) -> dict[str, Tensor]:
    places = (x @ torch.tensor(task.directions, dtype=x.dtype).T).argmax(dim=1)
    return {f"max {i + 1}": places[:, i] for i in range(places.shape[1])}


@winners.register
def _(task: Wells, x: Tensor) -> dict[str, Tensor]:
    depths = (x[:, :, None, :] - torch.tensor(task.centres, dtype=x.dtype)).square().mean(dim=-1)
    return {f"well {i + 1}": _inside(depths[:, :, i], w) for i, w in enumerate(task.windows or ())}


@winners.register
def _(task: KthLargest, x: Tensor) -> dict[str, Tensor]:
    return {f"rank {task.rank}": x[:, :, 0].topk(task.rank, dim=1).indices[:, -1]}


@winners.register
def _(task: PositionSum, x: Tensor) -> dict[str, Tensor]:
    return {f"position {p + 1}": torch.full((len(x),), p) for p in task.positions}


@winners.register
def _(task: Lookups, x: Tensor) -> dict[str, Tensor]:
    names = [retrieval.name for retrieval in task.structure.retrievals]
    return {name: _place(part, x) for name, part in zip(names, task.parts, strict=True)}


def _place(part: LookUp, x: Tensor) -> Tensor:
    if isinstance(part, PlaceOf):
        return torch.full((len(x),), part.position)
    if isinstance(part, WellOf):
        return (x - torch.tensor(part.centre, dtype=x.dtype)).square().mean(dim=-1).argmin(dim=1)
    assert isinstance(part, MaxOf | RankOf)
    along = x @ torch.tensor(part.direction, dtype=x.dtype)
    return along.topk(part.rank if isinstance(part, RankOf) else 1, dim=1).indices[:, -1]


def _inside(depth: Tensor, window: Sequence[int]) -> Tensor:
    places = torch.tensor(window)
    return places[depth[:, places].argmin(dim=1)]
