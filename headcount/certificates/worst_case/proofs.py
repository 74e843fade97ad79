"""A bank proved: what was met and what is proved of every member, as columns."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.certificates.worst_case.branching import Leaves, Progress, Search, SearchLimits
from headcount.certificates.worst_case.error_bounds import Provable
from headcount.certificates.worst_case.met_errors import ascend, meet
from headcount.certificates.worst_case.sloped_targets import SlopedTarget


@dataclass(frozen=True, eq=False)
class Proofs:
    """For every member: the largest error met and where, the bound proved, boxes looked at and boxes left open."""

    lower: Float[Tensor, " models"]
    upper: Float[Tensor, " models"]
    worst: Float[Tensor, "models length token_dim"]
    boxes: Int[Tensor, " models"]
    open: Int[Tensor, " models"]
    seconds: float
    compiled: bool  # whether boxes were bounded by compiled code, or by batched products


def prove(
    net: Provable,
    target: SlopedTarget,
    low: float,
    high: float,
    *,
    ratio: float = 1.5,
    budget: SearchLimits | None = None,
    leaves: Leaves | None = None,
    sort: bool | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Proofs:
    """Bound |network - target| over [low, high]^(length x token_dim) for every member of a bank.

    Errors are met first by trying, then in the middles of boxes, at last by ascent from where they were largest.

    >>> from headcount.certificates.worst_case.folded import fold
    >>> from headcount.certificates.worst_case.sloped_targets import sloped
    >>> from headcount.nets import Architecture, Transformer
    >>> from headcount.tasks import Wells
    >>> arch, task = Architecture(layers=((1, 2),), width=4), Wells([[0.5]], 2)
    >>> nets = [Transformer(arch, token_dim=1, seed=seed) for seed in (0, 1)]
    >>> found = prove(fold(nets, 2), sloped([task, task]), 0.0, 1.0, ratio=1.2)
    >>> bool((found.lower <= found.upper).all()), bool((found.upper <= 1.2 * found.lower).all()), found.open.tolist()
    (True, True, [0, 0])
    """
    if not ratio > 1:
        raise ValueError(f"ratio must be above 1: a bound cannot fall below the largest error met, got {ratio}")
    start = time.perf_counter()
    first = meet(net, target, low, high, seed=seed)
    search = Search(net, target, (low, high), first, ratio=ratio, leaves=leaves, sort=sort)
    search.run(budget or SearchLimits(), on_progress)
    last = ascend(net, target, search.worst[:, None], low, high, 20)
    better = last.error[:, 0] > search.lower
    worst = torch.where(better[:, None, None], last.x[:, 0], search.worst)
    seconds = time.perf_counter() - start
    met = (torch.maximum(search.lower, last.error[:, 0]) - net.slack).clamp_min(0)  # what rounding cannot have made
    return Proofs(met, search.upper, worst, search.looked, search.open, seconds, search.compiled is not None)
