"""Two heads that share one key: what it saves, and the best shared key in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from headcount.papers.allocation.lowrank import Factors, shared_factors
from headcount.papers.allocation.moments import diagonal_block
from headcount.papers.allocation.units import Survey, Unit


@dataclass(frozen=True)
class Grouping:
    """Key groups `keys` of one layer become one of the given rank; `gain` is the predicted error it saves."""

    layer: int
    keys: tuple[int, ...]
    heads: tuple[int, ...]
    rank: int
    cost: int
    gain: float
    factors: Factors


def best_grouping(layer: int, units: Sequence[tuple[Unit, int]], survey: Survey) -> Grouping | None:
    """The pair of heads that gains most by sharing a key at no more parameters than it has now, if any gains."""
    if not survey.moments:
        return None
    trials = [_shared(layer, a, b, survey) for a, b in combinations(units, 2)]
    best = max(trials, key=lambda g: g.gain, default=None)
    return best if best is not None and best.gain > 0 else None


def _shared(layer: int, a: tuple[Unit, int], b: tuple[Unit, int], survey: Survey) -> Grouping:
    """One key of rank r read by both: the products q_i' K_i, i = 1, 2, factored with the right factor in common."""
    pair, ranks = (a[0], b[0]), (a[1], b[1])
    dim = pair[0].full
    now = sum(u.cost * r for u, r in zip(pair, ranks, strict=True))
    each = pair[0].cost - pair[0].embed  # one query row with its bias
    cost = pair[0].embed + 2 * each
    rank = min(now // cost, dim)
    moments = survey.moments[layer]
    where = torch.cat([torch.arange(u.index * dim, (u.index + 1) * dim) for u in pair])
    worth = [_exchange(u, r, moments.query[u.heads[0]], diagonal_block(moments.key, u.index, dim)) for u, r in (a, b)]
    left = torch.stack([moments.query[u.heads[0]] * w for u, w in zip(pair, worth, strict=True)])
    factors = shared_factors(left, moments.key[where][:, where], torch.eye(2 * dim, dtype=left.dtype))
    apart = sum(u.errors[r] for u, r in zip(pair, ranks, strict=True))
    heads = (pair[0].heads[0], pair[1].heads[0])
    gain = float(apart - factors.errors[rank]) if rank else -float("inf")
    return Grouping(layer, (pair[0].index, pair[1].index), heads, rank, rank * cost, gain, factors)


def _exchange(unit: Unit, rank: int, query: Tensor, key: Tensor) -> float:
    """The predicted error that one unit of mean-square logit costs in this head, at its planned rank."""
    gone = torch.eye(unit.full, dtype=query.dtype) - unit.factors.product(rank)
    logits = float((query @ gone @ key @ gone.mT).diagonal().sum())
    full_logits = float((query @ key).diagonal().sum())
    if logits > 1e-9 * full_logits:
        return unit.errors[rank] / logits
    return unit.errors[0] / max(full_logits, torch.finfo(query.dtype).tiny)
