"""What is trained and counted: directions of W and of (K, Q), feasibility by dimension, ranks, infeasible draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from headcount.papers.attention_svm.descent import SelectionPath, select
from headcount.papers.attention_svm.direction import Offender, direction_gap, locally_optimal
from headcount.papers.attention_svm.margins import (
    MaxMargin,
    feasible,
    frobenius,
    nuclear,
    separating,
)
from headcount.papers.attention_svm.selection import Instances, Selection
from headcount.sources import Checked, Source, implements


@dataclass(frozen=True)
class Direction:
    """One trained instance: cosines to both solutions for the tokens it chose, and what its choice is worth."""

    instance: int
    to_frobenius: float
    to_nuclear: float
    best_tokens: float
    support: int
    offenders: tuple[Offender, ...]
    gaps: tuple[float, float]


@implements(
    Source("tarzanagh2023svm", "W goes to the Frobenius solution, (K, Q) to the nuclear one"),
    test="tests/test_attention_svm_directions.py::test_each_training_goes_to_its_own_solution",
    status="measured",
    hypotheses=(Checked("the tokens that training chose can be separated"), "the softmax has saturated"),
)
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
    one, other = (separating(x, z, chosen, norm) for norm in (frobenius, nuclear))
    return None if one is None or other is None else (one, other)


def _direction(data: Instances, path: SelectionPath, i: int, one: MaxMargin, other: MaxMargin) -> Direction:
    final = path.final[i].numpy()
    chosen = path.chosen[-1, i]
    near = [1 - float(direction_gap(final[None], each.weights)[0]) for each in (one, other)]
    return Direction(
        i,
        near[0],
        near[1],
        float((chosen == data.best[i]).double().mean()),
        len(one.support),
        tuple(locally_optimal(data, i, chosen.tolist(), one)),
        (one.gap, other.gap),
    )


def summary(training: str, rows: Sequence[Direction]) -> dict[str, object]:
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
    best = [(*data.arrays(i), data.best[i].numpy()) for i in range(instances)]
    one, other = ([s.rank for args in best if (s := separating(*args, norm))] for norm in (frobenius, nuclear))
    return one, other, instances - len(one)


@dataclass(frozen=True)
class InfeasibleChoices:
    """What training does where the best tokens cannot be separated: how many runs choose, and what they choose."""

    drawn: int
    trained: int
    saturated: int
    on_feasible: int
    locally_optimal: int


def infeasible_choices(
    sequences: int, length: int, token_dim: int, wanted: int = 50, *, steps: int = 8000, seed: int = 0
) -> InfeasibleChoices:
    """Draw until `wanted` instances have best tokens that no W puts first, train W on those, and see what it chose.

    A run is saturated when its least softmax peak is above 1 - 1e-6: before that, choices are still given up.
    """
    g = torch.Generator().manual_seed(seed)
    task = Selection(sequences, length, token_dim)
    infeasible: list[Instances] = []
    drawn = 0
    while sum(map(len, infeasible)) < wanted:
        data = task.sample(wanted, generator=g)
        best = data.best.numpy()
        none = [i for i in range(wanted) if not feasible(*data.arrays(i), best[i])]
        infeasible.append(data.at(torch.tensor(none, dtype=torch.long)))
        drawn += wanted
        if drawn >= 200 * wanted:
            raise ValueError(
                f"only {sum(map(len, infeasible))} of {drawn} draws are infeasible: take a smaller token_dim"
            )
    data = Instances(*(torch.cat([getattr(d, name) for d in infeasible])[:wanted] for name in FIELDS))
    return _choices(drawn, data, select(data, steps=steps, looks=1))


FIELDS = ("tokens", "queries", "labels", "read_out")


def _choices(drawn: int, data: Instances, path: SelectionPath) -> InfeasibleChoices:
    sure = [i for i in range(len(data)) if path.peaks[-1, i] > 1 - 1e-6]
    chosen = path.chosen[-1]
    solved = {i: separating(*data.arrays(i), chosen[i].numpy(), frobenius) for i in sure}
    separable = {i: s for i, s in solved.items() if s is not None}
    local = sum(not locally_optimal(data, i, chosen[i].tolist(), s) for i, s in separable.items())
    return InfeasibleChoices(drawn, len(data), len(sure), len(separable), local)
