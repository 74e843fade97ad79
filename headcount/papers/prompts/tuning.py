"""Prompts and low-rank updates found by training: L-BFGS from many starts. They know no certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.refusals import at_least_one

Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]
SCALES = (1.0, 0.3, 3.0, 10.0)  # of the starts, in turn


@dataclass(frozen=True, eq=False)
class Tuned:
    """What training found: the best loss, that of every start, how many numbers were tuned, the best and all."""

    loss: float
    losses: tuple[float, ...]
    numbers: int
    values: np.ndarray
    every: tuple[np.ndarray, ...] = ()


def fit_prompt(
    layer: PromptedLayer,
    lasts: Float[np.ndarray, "*many token_dim"],
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: Float[np.ndarray, "sequences value_dim"],
    tokens: int,
    starts: int = 8,
    seed: int = 0,
) -> Tuned:
    """The best prompt of so many tokens that training finds, for a wanted attention output at each last token.

    The gradient by hand: with w the attention inside the prompt, G = dL/dp and c = dL/d log Z,
    dL/dP_j = w_j (W_v^T G + ((W_v P_j - p).G + c) h).
    """
    at_least_one(tokens=tokens, starts=starts)
    return _best_of(_prompt_loss(layer, lasts, contexts, targets, tokens), tokens * layer.token_dim, starts, seed)


def fit_heads(
    heads: Sequence[PromptedLayer],
    lasts: Float[np.ndarray, "*many token_dim"],
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: Sequence[Float[np.ndarray, "sequences value_dim"]],
    tokens: int,
    starts: int = 8,
    seed: int = 0,
) -> Tuned:
    """One prompt for several heads, each with targets of its own: a number found, not a certificate.

    To sequences with one last token the prompt is (p_h, log Z_h) for each head, H (head_dim + 1) numbers, and the scan
    of one variable would be one of H.
    """
    at_least_one(tokens=tokens, starts=starts)
    if len(heads) != len(targets):
        raise ValueError(f"{len(heads)} heads need as many arrays of targets, got {len(targets)}")
    each = [_prompt_loss(head, lasts, contexts, t, tokens) for head, t in zip(heads, targets, strict=True)]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        parts = [one(flat) for one in each]
        return sum(value for value, _ in parts), np.sum([slope for _, slope in parts], axis=0)

    return _best_of(loss, tokens * heads[0].token_dim, starts, seed)


def _prompt_loss(
    layer: PromptedLayer,
    lasts: np.ndarray,
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: np.ndarray,
    tokens: int,
) -> Loss:
    rows = np.broadcast_to(lasts, (len(contexts), layer.token_dim))
    h = np.array([layer.direction(x) for x in rows])
    outputs = [layer.mass(x, np.vstack([c, x])) for x, c in zip(rows, contexts, strict=True)]
    means, masses = np.array([a for a, _ in outputs]), np.array([z for _, z in outputs])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        prompt = flat.reshape(tokens, -1)
        scores = h @ prompt.T
        top = scores.max(axis=1, keepdims=True)
        w = np.exp(scores - top)
        mass = top[:, 0] + np.log(w.sum(axis=1))
        w /= w.sum(axis=1, keepdims=True)
        values = prompt @ layer.value.T
        p = w @ values
        lam = _sigmoid(masses - mass)[:, None]
        left = lam * means + (1 - lam) * p - targets
        by_p = 2 * (1 - lam) * left
        by_mass = (2 * left * (p - means)).sum(axis=1) * (lam * (1 - lam))[:, 0]
        by_score = w * (by_p @ values.T - (by_p * p).sum(axis=1, keepdims=True) + by_mass[:, None])
        return float((left**2).sum()), (w.T @ (by_p @ layer.value) + by_score.T @ h).ravel()

    return loss


def fit_low_rank(
    layer: PromptedLayer,
    last: Float[np.ndarray, " token_dim"],
    contexts: Sequence[np.ndarray] | np.ndarray,
    outputs: Float[np.ndarray, "sequences value_dim"],
    starts: int = 4,
    seed: int = 0,
) -> Tuned:
    """Rank-one changes of W_v and of W_2, trained for wanted outputs of the layer: 3d + width numbers."""
    inner, outer = layer.inner, layer.outer
    if inner is None or outer is None:
        raise ValueError("a low-rank update of W_2 needs a layer with a feed-forward")
    d, width = layer.token_dim, len(inner)
    bias = np.zeros(width) if layer.inner_bias is None else layer.inner_bias
    shift = np.zeros(d) if layer.outer_bias is None else layer.outer_bias
    means = np.array([np.linalg.solve(layer.value, layer.attend(last, np.vstack([c, last]))) for c in contexts])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        a, b, s, t = np.split(flat, [d, 2 * d, 3 * d])
        u = last + means @ (layer.value + np.outer(a, b)).T
        before = u @ inner.T + bias
        hidden = np.maximum(before, 0)
        changed = outer + np.outer(s, t)
        left = hidden @ changed.T + shift + u - outputs
        by_outer = 2 * left.T @ hidden
        by_u = 2 * left + ((2 * left @ changed) * (before > 0)) @ inner
        by_value = by_u.T @ means
        parts = (by_value @ b, by_value.T @ a, by_outer @ t, by_outer.T @ s)
        return float((left**2).sum()), np.concatenate(parts)

    return _best_of(loss, 3 * d + width, starts, seed)


def _best_of(loss: Loss, numbers: int, starts: int, seed: int) -> Tuned:
    from scipy.optimize import minimize

    g = np.random.default_rng(seed)
    options = {"maxiter": 1500, "maxfun": 2000, "ftol": 1e-15, "gtol": 1e-12}
    runs = [
        minimize(
            loss, SCALES[k % len(SCALES)] * g.standard_normal(numbers), jac=True, method="L-BFGS-B", options=options
        )
        for k in range(starts)
    ]
    best = min(runs, key=lambda run: run.fun)
    return Tuned(float(best.fun), tuple(float(run.fun) for run in runs), numbers, best.x, tuple(run.x for run in runs))


def _sigmoid(t: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -t))
