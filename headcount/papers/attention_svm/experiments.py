"""What is trained and counted: directions of W and of (K, Q), feasibility by dimension, ranks, and nonlinear heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch

from headcount.papers.attention_svm.descent import Head, SelectionPath, head_gradient, select
from headcount.papers.attention_svm.direction import Offender, decompose, direction_gap, locally_optimal
from headcount.papers.attention_svm.max_margin import (
    InfeasibleError,
    MaxMargin,
    feasible,
    frobenius,
    max_margin,
    nuclear,
)
from headcount.papers.attention_svm.selection import Instances, Selection

__all__ = ["Direction", "directions", "feasible_share", "nonlinear_study", "rank_study", "summary"]


@dataclass(frozen=True)
class Direction:
    """One trained instance: cosines to both solutions for the tokens it chose, and what its choice is worth."""

    instance: int
    to_frobenius: float
    to_nuclear: float
    best_tokens: float
    peak: float
    support: int
    offenders: tuple[Offender, ...]
    gaps: tuple[float, float]


def directions(data: Instances, path: SelectionPath) -> list[Direction]:
    """Every instance whose chosen tokens can be separated, beside the two solutions for these very tokens."""
    rows = []
    for i in range(len(data)):
        solved = solutions(data, path, i)
        if solved is not None:
            rows.append(_direction(data, path, i, *solved))
    return rows


def solutions(data: Instances, path: SelectionPath, instance: int) -> tuple[MaxMargin, MaxMargin] | None:
    """The Frobenius and the nuclear solution for the tokens that training chose; None where there is none."""
    x, z = data.arrays(instance)
    chosen = path.chosen[-1, instance].numpy()
    try:
        return max_margin(x, z, chosen, frobenius), max_margin(x, z, chosen, nuclear)
    except InfeasibleError:
        return None


def _direction(data: Instances, path: SelectionPath, i: int, one: MaxMargin, other: MaxMargin) -> Direction:
    final = path.final[i].numpy()
    chosen = path.chosen[-1, i]
    near = [1 - float(direction_gap(final[None], each.weights)[0]) for each in (one, other)]
    return Direction(
        i,
        near[0],
        near[1],
        float((chosen == data.best[i]).double().mean()),
        float(path.peaks[-1, i]),
        len(one.support),
        tuple(locally_optimal(data, i, chosen.tolist(), one)),
        (one.gap, other.gap),
    )


def summary(training: str, rows: Sequence[Direction]) -> dict[str, Any]:
    """Means over instances, with the smallest cosine, and how many lie nearer to which solution."""
    return {
        "training": training,
        "instances": len(rows),
        "cosine to Frobenius": fmean(r.to_frobenius for r in rows),
        "cosine to nuclear": fmean(r.to_nuclear for r in rows),
        "least": min(max(r.to_frobenius, r.to_nuclear) for r in rows),
        "nearer to Frobenius": sum(r.to_frobenius > r.to_nuclear for r in rows),
        "chosen = best token": fmean(r.best_tokens for r in rows),
        "not locally optimal": sum(bool(r.offenders) for r in rows),
        "largest gap": max(max(r.gaps) for r in rows),
    }


def feasible_share(sequences: int, length: int, token_dim: int, instances: int = 60, seed: int = 0) -> float:
    """The share of random instances whose best tokens can be separated.

    Departs: the published rank study counts infeasible problems as rank 1; here feasibility is counted first.
    """
    data = Selection(sequences, length, token_dim).sample(instances, generator=torch.Generator().manual_seed(seed))
    return fmean(feasible(*data.arrays(i), data.best[i].numpy()) for i in range(instances))


def rank_study(
    sequences: int, length: int, token_dim: int, instances: int = 12, seed: int = 0
) -> tuple[list[int], list[int], int]:
    """Ranks of the Frobenius and of the nuclear solution over feasible instances, and how many were infeasible."""
    data = Selection(sequences, length, token_dim).sample(instances, generator=torch.Generator().manual_seed(seed))
    ranks: tuple[list[int], list[int]] = ([], [])
    lost = 0
    for i in range(instances):
        x, z = data.arrays(i)
        try:
            for kept, norm in zip(ranks, (frobenius, nuclear), strict=True):
                kept.append(max_margin(x, z, data.best[i].numpy(), norm).rank)
        except InfeasibleError:
            lost += 1
    return *ranks, lost


def nonlinear_study(
    token_dim: int, instances: int = 200, *, sequences: int = 3, length: int = 4, steps: int = 2000, seed: int = 0
) -> dict[str, Any]:
    """A ReLU head: how near the trained W comes to W_dir alone and to W_fin + R W_dir, on runs that decided.

    A run is set aside when a final weight lies between 1e-6 and 1e-3, as published, and counted apart when it attends to
    one token per sequence, where W_fin is 0 and there is nothing to add.
    """
    g = torch.Generator().manual_seed(seed)
    data = Selection(sequences, length, token_dim).sample(instances, generator=g)
    path = select(data, steps=steps, looks=1, slope=head_gradient(_relu_head(instances, token_dim, 50, g)))
    parts = [decompose(*data.arrays(i), path.final[i].numpy()) for i in range(instances)]
    decided = [part for part in parts if part is not None]
    mixed = [part for part in decided if np.abs(part.finite).max() > 0]
    return {
        "token_dim": token_dim,
        "kept": len(decided),
        "set aside": instances - len(decided),
        "mixing tokens": len(mixed),
        "gap of W_dir": float(np.median([p.gap_direction for p in mixed])) if mixed else None,
        "gap of both": float(np.median([p.gap_both for p in mixed])) if mixed else None,
        "both nearer": sum(p.gap_both < p.gap_direction for p in mixed),
    }


def _relu_head(instances: int, token_dim: int, hidden: int, g: torch.Generator) -> Head:
    inner = torch.randn((instances, hidden, token_dim), generator=g, dtype=torch.float64) / token_dim**0.5
    outer = torch.randn((instances, hidden), generator=g, dtype=torch.float64) / hidden**0.5
    return lambda mixed: torch.einsum("ih,ish->is", outer, torch.relu(torch.einsum("ihd,isd->ish", inner, mixed)))
