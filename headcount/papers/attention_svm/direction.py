"""Where training went beside where the theory says: cosines, local optimality, and the nonlinear decomposition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headcount.papers.attention_svm.max_margin import MaxMargin, least_norm
from headcount.papers.attention_svm.selection import Instances

__all__ = ["Decomposition", "Offender", "decompose", "direction_gap", "locally_optimal"]

CHOSEN = 1e-3  # the softmax weight from which a token counts as one of those attended to
UNDECIDED = 1e-6  # weights between this and CHOSEN leave a run undecided


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


def locally_optimal(data: Instances, instance: int, chosen: Sequence[int], solution: MaxMargin) -> list[Offender]:
    """The support tokens that score higher than the chosen one of their sequence; none: the choice is locally optimal.

    Source: Tarzanagh et al. 2023, locally-optimal tokens.
    """
    scores = data.scores[instance].numpy()
    gaps = [(i, t, float(scores[i, t] - scores[i, chosen[i]])) for i, t in solution.support]
    return [Offender(i, t, by) for i, t, by in gaps if by > 0]


@dataclass(frozen=True, eq=False)
class Decomposition:
    """W ~ W_fin + R W_dir for a softmax that attends to several tokens, and how near W_dir alone and both come."""

    finite: Float[np.ndarray, "d e"]
    direction: Float[np.ndarray, "d e"]
    size: float
    gap_direction: float
    gap_both: float


def decompose(
    tokens: Float[np.ndarray, "sequences length d"],
    queries: Float[np.ndarray, "sequences e"],
    weights: Float[np.ndarray, "d e"],
) -> Decomposition | None:
    """The least-norm finite part and direction that the final softmax weights ask for; None where they are undecided.

    O_i are the tokens of sequence i with final weight at least 1e-3. W_fin has, inside each O_i, logit differences equal
    to the logarithms of the ratios of weights; W_dir has differences 0 inside O_i and every token of O_i above every other by
    at least 1. R minimises |W - W_fin - R W_dir|.
    Source: Tarzanagh et al. 2023, the general equivalence for nonlinear heads.
    """
    scores = np.einsum("std,de,se->st", tokens, weights, queries)
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    p = shifted / shifted.sum(axis=1, keepdims=True)
    if ((p > UNDECIDED) & (p < CHOSEN)).any():
        return None
    equal, ratios, above = _differences(tokens, queries, p)
    finite = _minimal(equal, ratios, weights)
    rows = np.concatenate([above, equal, -equal])
    sides = np.concatenate([np.ones(len(above)), np.zeros(2 * len(equal))])
    if not len(above):
        return None
    try:
        direction = least_norm(rows, sides)[0].reshape(weights.shape)
    except ValueError:
        return None
    size = float(((weights - finite) * direction).sum() / (direction**2).sum())
    gaps = [float(direction_gap(weights[None], each)[0]) for each in (direction, finite + size * direction)]
    return Decomposition(finite, direction, size, gaps[0], gaps[1])


def _differences(
    tokens: np.ndarray, queries: np.ndarray, p: Float[np.ndarray, "sequences length"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    equal: list[np.ndarray] = []
    ratios: list[float] = []
    above: list[np.ndarray] = []
    for x, z, q in zip(tokens, queries, p, strict=True):
        inside: Int[np.ndarray, " inside"] = np.flatnonzero(q >= CHOSEN)
        first = inside[0]
        for t in inside[1:]:
            equal.append(np.outer(x[t] - x[first], z).ravel())
            ratios.append(float(np.log(q[t] / q[first])))
        above += [np.outer(x[t] - x[s], z).ravel() for t in inside for s in np.flatnonzero(q < CHOSEN)]
    width = tokens.shape[2] * queries.shape[1]
    return np.array(equal).reshape(-1, width), np.array(ratios), np.array(above).reshape(-1, width)


def _minimal(rows: np.ndarray, sides: np.ndarray, like: np.ndarray) -> np.ndarray:
    if not len(rows):
        return np.zeros_like(like)
    return np.linalg.lstsq(rows, sides, rcond=None)[0].reshape(like.shape)
