"""Which (p, log Z) prompts reach: a strip, whose width is the logarithm of their length.

With W_v invertible, h = W_k^T W_q x and g = W_v^-T h,

    log Z_P - g.p = entropy of the attention inside the prompt, in [0, log m] for m tokens,

since scores are h.P_j and p = W_v sum w_j P_j, so that log Z_P = sum w_j h.P_j + H(w). Where h is not in the row
space of W_v (any head of fewer dimensions than a token) there is no strip: one token reaches every (p, log Z).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.papers.prompts.prompted_layer import PromptedLayer
from headcount.refusals import at_least_one

INSIDE = 1e-9  # the share of h outside the row space of W_v below which h counts as inside
RANK = 1e-12  # of the largest singular value of W_v: smaller ones are no direction of its range
STEEPEST = 600.0  # log w_1 / w_2 of a prompt that is to have no entropy


@dataclass(frozen=True, eq=False)
class Strip:
    """0 <= log Z - slope.p <= log m; no `slope`: every (p, log Z) is reached by one token."""

    slope: Float[np.ndarray, " value_dim"] | None
    condition: float


def in_range(
    layer: PromptedLayer, targets: Float[np.ndarray, "n value_dim"], least: float = RANK
) -> tuple[PromptedLayer, Float[np.ndarray, "n rank"], float]:
    """The layer with W_v in coordinates of its range, the targets there, and the square of what lies outside it.

    Outputs lie in the range of W_v, so what targets have outside is missed by every prompt alike.
    """
    left, values, _ = np.linalg.svd(layer.value, full_matrices=False)
    basis = left[:, values > least * values[0]]  # none where W_v is 0
    inside = targets @ basis
    own = PromptedLayer(layer.query, layer.key, basis.T @ layer.value, layer.query_bias)
    return own, inside, float(((targets - inside @ basis.T) ** 2).sum())


def strip_of(layer: PromptedLayer, last: Float[np.ndarray, " token_dim"]) -> Strip:
    """The strip of all prompts before sequences that end in `last`."""
    values = np.linalg.svd(layer.value, compute_uv=False)
    if layer.value.shape[0] > layer.value.shape[1] or not values[-1] > RANK * values[0]:
        raise ValueError("W_v must have independent rows; `in_range` gives the part of a layer that has")
    h = layer.direction(last)
    if not h.any():
        return Strip(None, float(values[0] / values[-1]))
    slope = np.linalg.lstsq(layer.value.T, h, rcond=None)[0]
    outside = np.linalg.norm(h - layer.value.T @ slope) / np.linalg.norm(h)
    return Strip(slope if outside <= INSIDE else None, float(values[0] / values[-1]))


def strip_prompt(
    layer: PromptedLayer,
    last: Float[np.ndarray, " token_dim"],
    wanted: Float[np.ndarray, " value_dim"],
    log_mass: float,
    tokens: int = 1,
) -> Float[np.ndarray, "tokens token_dim"]:
    """A prompt with Att(x, P) = p and log Z_P as wanted, or a refusal that says how far outside the strip they lie.

    P_j = P + (log w_j - sum w log w) h / |h|^2 with W_v P = p and weights w of the entropy log Z - g.p.
    """
    at_least_one(tokens=tokens)
    strip, h = strip_of(layer, last), layer.direction(last)
    middle = np.linalg.lstsq(layer.value, wanted, rcond=None)[0]
    if not h.any():  # every prompt of m tokens has log Z = log m
        return np.repeat(middle[None], tokens, axis=0)
    if strip.slope is None:
        across = h - layer.value.T @ np.linalg.lstsq(layer.value.T, h, rcond=None)[0]
        one = middle + (log_mass - math.log(tokens) - h @ middle) * across / (across @ across)
        return np.repeat(one[None], tokens, axis=0)
    entropy = log_mass - float(strip.slope @ wanted)
    size = abs(log_mass) + float(np.linalg.norm(strip.slope) * np.linalg.norm(wanted))
    most, slack = math.log(tokens), 1e-9 * (1 + size)
    if not -slack <= entropy <= most + slack:
        raise ValueError(f"log Z - g.p is {entropy:.6g}: prompts of {tokens} tokens reach from 0 to {most:.6g}")
    logs = _log_weights(min(max(entropy, 0.0), most), tokens)
    shift = logs - np.exp(logs) @ logs
    return middle + shift[:, None] * h / (h @ h)


def _log_weights(entropy: float, tokens: int) -> Float[np.ndarray, " tokens"]:
    """The logarithms of weights (1, e^-t, .., e^-t) / sum whose entropy is the wanted one, by halving in t."""
    low, high = 0.0, STEEPEST
    for _ in range(200):
        middle = (low + high) / 2
        logs = _falling(middle, tokens)
        low, high = (middle, high) if -np.exp(logs) @ logs > entropy else (low, middle)
    return _falling((low + high) / 2, tokens)


def _falling(t: float, tokens: int) -> np.ndarray:
    total = math.log1p((tokens - 1) * math.exp(-t))
    return np.concatenate([[-total], np.full(tokens - 1, -t - total)])
