"""Where training went beside where the theory says: cosines, local optimality, and when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.papers.attention_svm.descent import SelectionPath
from headcount.papers.attention_svm.margins import MaxMargin
from headcount.papers.attention_svm.selection import Instances
from headcount.sources import Source, implements


def direction_gap(path: Float[np.ndarray, "... d e"], weights: Float[np.ndarray, "d e"]) -> Float[np.ndarray, ...]:
    """1 - cosine of every matrix along a path with one matrix.

    >>> direction_gap(np.eye(2)[None], np.array([[2.0, 0.0], [0.0, 0.0]])).round(4).tolist()
    [0.2929]
    """
    inner = (path * weights).sum(axis=(-2, -1))
    return 1 - inner / (np.linalg.norm(path, axis=(-2, -1)) * np.linalg.norm(weights))


@dataclass(frozen=True)
class Offender:
    """A support token that scores higher than the chosen one: (sequence, token) and by how much."""

    sequence: int
    token: int
    by: float


@implements(
    Source("tarzanagh2023svm", "the tokens that training chooses are locally optimal"),
    test="tests/test_attention_svm_directions.py::test_where_the_best_tokens_are_infeasible_training_chooses_feasible_ones",
    status="measured",
    hypotheses=("trained long enough: about one run in sixty still holds a choice that it will give up",),
)
def locally_optimal(data: Instances, instance: int, chosen: Sequence[int], solution: MaxMargin) -> list[Offender]:
    """The support tokens that score higher than the chosen one of their sequence; none: the choice is locally optimal.

    Source: Tarzanagh et al. 2023, locally-optimal tokens.
    """
    scores = data.scores[instance].numpy()
    gaps = [(i, t, float(scores[i, t] - scores[i, chosen[i]])) for i, t in solution.support]
    return [Offender(i, t, by) for i, t, by in gaps if by > 0]


def settled(path: SelectionPath, rate: float, instance: int) -> int:
    """The look before which |W| stops growing by half the rate a step: later steps of a plain gradient are noise.

    Once a softmax's tail is below what float64 resolves, |W| no longer grows with its steps, and its direction drifts.
    """
    sizes = path.weights[:, instance].flatten(1).norm(dim=1).tolist()
    steps = path.steps
    for k in range(1, len(steps)):
        if sizes[k] - sizes[k - 1] < rate / 2 * (steps[k] - steps[k - 1]):
            return k - 1
    return len(steps) - 1


def largest_rise(path: SelectionPath, instance: int, weights: Float[np.ndarray, "d e"]) -> float:
    """How much 1 - cosine rises at most between looks once the chosen tokens no longer change."""
    chosen = path.chosen[:, instance]
    same = (chosen == chosen[-1]).all(dim=-1)
    last = max((k + 1 for k, stays in enumerate(same.tolist()) if not stays), default=0)
    gaps = direction_gap(path.weights[last:, instance].numpy(), weights)
    return float(np.diff(gaps).max()) if len(gaps) > 1 else 0.0
