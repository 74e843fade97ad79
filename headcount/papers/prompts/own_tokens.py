"""Sequences with last tokens of their own: which a prompt of m tokens can memorise, and a layer in which n tokens do.

To the last token x_i a prompt is log Z_i = log sum_k exp(h_i.P_k) and p_i = W_v sum_k w_ik P_k. With g_i = W_v^-T h_i,
log Z is a convex function of g whose slope at g_i is p_i, so that for all i and j

    log Z_i - log Z_j >= (g_i - g_j).p_j      and      0 <= log Z_i - g_i.p_i <= log m.

Memorising asks p_i = T_i + e^v_i (T_i - A_i) and log Z_i = log Z_X,i - v_i, v_i the log of the ratio of the two masses:
n numbers are left, and where no v meets all conditions there is no prompt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.papers.prompts.strip import strip_of
from headcount.papers.prompts.traps import TokenTrap, token_trap
from headcount.refusals import at_least_one, positive
from headcount.sources import Checked, Source, implements

BOXES = 400_000
ROUNDING = 1e-9  # a condition missed by less, of the largest number in it, proves nothing
SHARPNESS = 8.0  # the score of a wanted part in the layer made for n tokens


@dataclass(frozen=True, eq=False)
class Memorisable:
    """Whether a prompt of so many tokens may memorise the sequences: False is a proof, True only that nothing forbids.

    `slack` is the largest margin found by which all conditions can be met at once (below 0: by which they are missed);
    `possible` is None where `boxes` of them did not decide.
    """

    possible: bool | None
    slack: float
    tokens: int
    boxes: int


@dataclass(frozen=True, eq=False)
class _Conditions:
    """K_ij(v) = c_ij - v_i + v_j - b_ij e^v_j for i != j and K_ii = c_ii - v_i - b_ii e^v_i: >= 0, K_ii <= log m."""

    c: Float[np.ndarray, "n n"]
    b: Float[np.ndarray, "n n"]
    log_tokens: float

    def most(self, low: Float[np.ndarray, "boxes n"], high: Float[np.ndarray, "boxes n"]) -> np.ndarray:
        """No point of a box meets all conditions by more than this: each is at its largest in the box."""
        own, d = np.diagonal(self.c), np.diagonal(self.b)
        pairs = self.c - low[:, :, None] + _largest(self.b, low[:, None], high[:, None])
        pairs[:, np.eye(len(d), dtype=bool)] = own + np.maximum(-low - d * np.exp(low), -high - d * np.exp(high))
        above = self.log_tokens - own + _largest(-d, low, high)
        return np.minimum(pairs.min(axis=(1, 2)), above.min(axis=1))

    def box(self) -> tuple[np.ndarray, np.ndarray]:
        """Outside of it some K_ii leaves [0, log m].

        b >= 0: v <= c, and v >= min(0, c - log m - b), as e^v <= 1 below 0. b < 0: v >= c - log m, and |b| e^v <= a + v
        with a = |log m - c|, so that t = e^(v/2) >= v has |b| t^2 <= a + t.
        """
        c, b, entropy = np.diagonal(self.c), np.diagonal(self.b), self.log_tokens
        size, far = np.maximum(np.abs(b), 1e-300), np.abs(entropy - c)
        root = 2 * np.log((1 + np.sqrt(1 + 4 * size * far)) / (2 * size))
        low = np.where(b >= 0, np.minimum(0.0, c - entropy - b), c - entropy)
        high = np.where(b >= 0, np.maximum(c, low), np.maximum(np.maximum(0.0, root), low))
        return low - ROUNDING, high + ROUNDING


def _largest(b: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The largest v - b e^v on [low, high]: at -log b, or at the nearer end; at the upper one for b <= 0."""
    at = np.where(b > 0, -np.log(np.where(b > 0, b, 1.0)), np.inf)
    v = np.clip(at, low, high)
    return v - b * np.exp(v)


@implements(
    Source("headcount", "which sequences with last tokens of their own a prompt can memorise"),
    test="tests/test_prompts_own_tokens.py::test_what_is_excluded_no_training_fits_and_what_is_not_two_tokens_fit",
    status="proved here",
    hypotheses=(Checked("W_v is square and invertible"), "one head"),
)
def memorisable(
    layer: PromptedLayer,
    lasts: Float[np.ndarray, "sequences token_dim"],
    contexts: Sequence[np.ndarray] | np.ndarray,
    targets: Float[np.ndarray, "wanted value_dim"],
    tokens: int,
) -> Memorisable:
    """Whether some prompt of m tokens may give every sequence its wanted attention output; a proof where none does.

    One sequence, with c = -g.(T - A) > 0 and E the entropy of attention without a prompt, needs
    log m >= E + 1 + c + log c; several must also be values and slopes of one convex function. Boxes of v are halved
    until every one fails a condition, or a point of one meets them all.
    Departs: the paper counts tokens (n at least); this says of given data when n, or any m, are too few.
    """
    at_least_one(tokens=tokens)
    conditions = _conditions(layer, lasts, contexts, targets, tokens)
    spare = ROUNDING * float(np.abs(conditions.c).max() + np.abs(conditions.b).max() + 1)
    low, high = (side[None] for side in conditions.box())
    best, boxes = -math.inf, 1
    while len(low) and boxes < BOXES:
        middle = (low + high) / 2
        best = max(best, float(conditions.most(middle, middle).max()))
        if best >= -spare:  # one token leaves no room: log Z = g.p, an equality
            return Memorisable(True, best, tokens, boxes)
        feasible = conditions.most(low, high) >= -spare
        low, high = _halves(low[feasible], high[feasible])
        boxes += len(low)
    return Memorisable(None if len(low) else False, best, tokens, boxes)


def _halves(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every box cut across its longest side."""
    rows, side = np.arange(len(low)), (high - low).argmax(axis=1)
    middle = (low + high)[rows, side] / 2
    left, right = high.copy(), low.copy()
    left[rows, side], right[rows, side] = middle, middle
    return np.concatenate([low, right]), np.concatenate([left, high])


def _conditions(
    layer: PromptedLayer, lasts: np.ndarray, contexts: Sequence[np.ndarray] | np.ndarray, targets: np.ndarray,
    tokens: int,
) -> _Conditions:  # fmt: skip
    if layer.value.shape[0] != layer.value.shape[1]:
        raise ValueError(f"W_v must be square for scores and values to be coupled, got {layer.value.shape}")
    if not len(lasts) == len(contexts) == len(targets) > 0:
        raise ValueError(f"got {len(lasts)} last tokens, {len(contexts)} contexts and {len(targets)} targets")
    slopes = [strip_of(layer, x).slope for x in lasts]
    g = np.array([s for s in slopes if s is not None])
    outputs = [layer.mass(x, np.vstack([c, x])) for x, c in zip(lasts, contexts, strict=True)]
    means, masses = np.array([a for a, _ in outputs]), np.array([z for _, z in outputs])
    between = g[:, None] - g[None]
    between[np.arange(len(g)), np.arange(len(g))] = g
    c = masses[:, None] - masses[None] * (1 - np.eye(len(g))) - np.einsum("ijd,jd->ij", between, targets)
    return _Conditions(c, np.einsum("ijd,jd->ij", between, targets - means), math.log(tokens))


def token_memory(
    sequences: int, token_dim: int, scale: float = 1.0, seed: int = 0
) -> tuple[TokenTrap, Float[np.ndarray, "sequences token_dim"]]:
    """A layer whose scores point at the wanted parts, h_i = k e_i, and n tokens that memorise its n sequences exactly.

    So n tokens, which are needed everywhere (`prompt_tokens`), suffice somewhere. With a_ij the attention of sequence i
    to token j, P = a^-1 (diag(sum_j a_ij) A + s E), and the scores k s (a^-1)_ji have to give a again: u on the
    diagonal and w beside it, a fixed point of two numbers.

    >>> from headcount.papers.prompts.reaching import attention_loss
    >>> trap, prompt = token_memory(3, 8)
    >>> attention_loss(trap.layer, trap.lasts, trap.contexts, trap.targets, prompt) < 1e-25
    True
    """
    positive(scale=scale)
    if not 1 <= sequences <= token_dim // 2:
        raise ValueError(f"sequences must be from 1 to token_dim / 2 = {token_dim // 2}, got {sequences}")
    n, d, k = sequences, token_dim, SHARPNESS
    drawn = token_trap(PromptedLayer(np.eye(d), np.eye(d), np.eye(d)), n, scale, seed)
    parts = np.eye(d)[d - n :]
    key = (k / scale * parts.T @ np.linalg.pinv(drawn.lasts).T).T
    trap = token_trap(PromptedLayer(np.eye(d), key, np.eye(d)), n, scale, seed)
    means = trap.targets - scale * parts
    u, w = _attention(n, k, len(trap.contexts[0]) + 1)
    a = np.full((n, n), w) + (u - w) * np.eye(n)
    return trap, np.linalg.solve(a, a.sum(axis=1)[:, None] * means + scale * parts)


def _attention(n: int, k: float, length: int) -> tuple[float, float]:
    """u = exp(k x) / S and w = exp(k y) / S, S = length + exp(k x) + (n - 1) exp(k y), x and y of the inverse."""
    u, w = 0.9, 0.0
    for _ in range(200):
        x, y = (1 - w / (u - w + n * w)) / (u - w), -w / (u - w) / (u - w + n * w)
        total = length * math.exp(-k * x) + 1 + (n - 1) * math.exp(k * (y - x))
        u, w = (u + 1 / total) / 2, (w + math.exp(k * (y - x)) / total) / 2
    return u, w
