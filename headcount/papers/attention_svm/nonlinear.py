"""Nonlinear heads: attention that ends by mixing tokens, its weights a finite part and a growing direction.

    f(X_i) = head(X_i^T softmax(X_i W z_i)),      W ~ W_fin + R W_dir

A linear read-out is best served by one token. A concave head whose best point lies inside the hull of the tokens wants
a mixture. Minimising loss + ridge |W|^2 / 2 with a vanishing ridge follows W there: normalised descent does not, its
steps never shrinking about the finite part. (The published ReLU head and its descent are in `relu_heads`.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from headcount.papers.attention_svm.direction import direction_gap
from headcount.papers.attention_svm.margins import least_norm
from headcount.papers.attention_svm.selection import Selection
from headcount.refusals import at_least_one
from headcount.sources import Checked, Source, implements

CHOSEN = 1e-3  # the softmax weight from which a token counts as one of those attended to
UNDECIDED = 1e-6  # weights between this and CHOSEN leave a run undecided
RIDGES = tuple(10.0**-k for k in range(2, 14))

NonlinearHead = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From mixtures (sequences, d) to their values (sequences,) and the gradients (sequences, d)."""
HeadDraw = Callable[[int, np.random.Generator], NonlinearHead]


def concave_head(token_dim: int, g: np.random.Generator) -> NonlinearHead:
    """4 (v.m - |m|^2), v uniform on the sphere: best at v / 2, inside or near the hull of unit tokens."""
    v = g.standard_normal(token_dim)
    v /= np.linalg.norm(v)
    return lambda m: (4 * (m @ v - (m**2).sum(axis=1)), 4 * (v - 2 * m))


def vanishing_ridge(
    tokens: Float[np.ndarray, "sequences length d"],
    queries: Float[np.ndarray, "sequences e"],
    labels: Float[np.ndarray, " sequences"],
    head: NonlinearHead,
    ridges: Sequence[float] = RIDGES,
) -> Float[np.ndarray, "d e"]:
    """W that minimises mean log(1 + exp(-Y f)) + ridge |W|^2 / 2, from ridge to smaller ridge, each from the last."""
    from scipy.optimize import minimize

    shape = (tokens.shape[2], queries.shape[1])
    w = np.zeros(shape[0] * shape[1])
    for ridge in ridges:
        scale = 1 / ridge  # the same minimum, with gradients that a solver can see
        solution = minimize(
            lambda u, r=ridge, c=scale: tuple(c * part for part in _ridged(u, tokens, queries, labels, head, r, shape)),
            w, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-6, "maxcor": 30},
        )  # fmt: skip
        w = solution.x
    return w.reshape(shape)


def _ridged(
    w: np.ndarray, x: np.ndarray, z: np.ndarray, y: np.ndarray, head: NonlinearHead, ridge: float,
    shape: tuple[int, int],
) -> tuple[Any, Any]:  # fmt: skip
    """The loss with its ridge, and the gradient by hand: d f / d logit_t = p_t (x_t - m).grad head(m)."""
    scores = np.einsum("std,sd->st", x, z @ w.reshape(shape).T)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    value, slope = head(np.einsum("st,std->sd", p, x))
    pulled = np.einsum("std,sd->st", x, slope)
    pull = p * (pulled - (p * pulled).sum(axis=1, keepdims=True))
    outer = -y / (1 + np.exp(y * value)) / len(x)
    g = np.einsum("s,sd,se->de", outer, np.einsum("st,std->sd", pull, x), z).ravel()
    return np.logaddexp(0, -y * value).mean() + ridge / 2 * w @ w, g + ridge * w


@dataclass(frozen=True, eq=False)
class Decomposition:
    """W ~ W_fin + R W_dir for a softmax that attends to several tokens, and how near W_dir alone and both come.

    `gap_rest` is 1 - cosine of W - W_fin with W_dir: 0 where W grows as the statement says.
    """

    finite: Float[np.ndarray, "d e"]
    direction: Float[np.ndarray, "d e"]
    size: float
    gap_direction: float
    gap_both: float
    gap_rest: float


@implements(
    Source("tarzanagh2023svm", "W goes like W_fin + R W_dir for nonlinear heads"),
    test="tests/test_attention_svm_directions.py::test_nonlinear_heads_need_the_finite_part",
    status="measured",
    hypotheses=(Checked("no final weight lies between 1e-6 and 1e-3"),),
)
def decompose(
    tokens: Float[np.ndarray, "sequences length d"],
    queries: Float[np.ndarray, "sequences e"],
    weights: Float[np.ndarray, "d e"],
) -> Decomposition | None:
    """The least-norm finite part and direction that the final softmax weights ask for; None where they are undecided.

    O_i are the tokens of sequence i with final weight at least 1e-3. W_fin has, inside each O_i, logit differences
    equal to the logarithms of the ratios of weights; W_dir has differences 0 inside O_i and every token of O_i above
    every other by at least 1. R minimises |W - W_fin - R W_dir|.
    Source: Tarzanagh et al. 2023, the general equivalence for nonlinear heads.
    Departs: that both parts come nearer than W_dir alone proves nothing. The ratios are those of W itself, so W_fin is
    the projection of W on the differences inside the O_i, to which W_dir is orthogonal: cos^2(W, both) is
    cos^2(W, W_dir) + |W_fin|^2 / |W|^2 for every W. What can fail is that W - W_fin has the direction W_dir.
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
    rest = float(direction_gap((weights - finite)[None], direction)[0])
    return Decomposition(finite, direction, size, gaps[0], gaps[1], rest)


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


def nonlinear_study(
    token_dim: int, instances: int = 50, draw: HeadDraw = concave_head, *, sequences: int = 3, length: int = 5,
    seed: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """How near the trained W comes to W_dir alone and to W_fin + R W_dir, on the runs that decided.

    A run is set aside when a final weight lies between 1e-6 and 1e-3, as published, or when every token of every
    sequence is attended to; runs that attend to one token per sequence, where W_fin is 0, are counted apart.
    Departs: five tokens, not four: of four a mixture often leaves one out, where W_fin + R W_dir has no more freedom
    than W and fits it exactly.
    """
    at_least_one(token_dim=token_dim, instances=instances)
    g = np.random.default_rng(seed)
    data = Selection(sequences, length, token_dim).sample(instances, generator=torch.Generator().manual_seed(seed))
    parts = []
    for i in range(instances):
        x, z = data.arrays(i)
        labels = np.ones(sequences) if draw is concave_head else data.labels[i].numpy()
        parts.append(decompose(x, z, vanishing_ridge(x, z, labels, draw(token_dim, g))))
    decided = [part for part in parts if part is not None]
    mixed = [part for part in decided if np.abs(part.finite).max() > 0]
    return {
        "token_dim": token_dim,
        "drawn": instances,
        "set aside": instances - len(decided),
        "one token each": len(decided) - len(mixed),
        "mixing tokens": len(mixed),
        "gap of W_dir": float(np.median([p.gap_direction for p in mixed])) if mixed else None,
        "gap of both": float(np.median([p.gap_both for p in mixed])) if mixed else None,
        "gap of the rest": float(np.median([p.gap_rest for p in mixed])) if mixed else None,
    }
