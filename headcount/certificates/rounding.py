"""Rounding as part of the proof: what float64 arithmetic can add to a network's error, by forward error analysis.

Every sum of n products is off by at most g(n) times the sum of their magnitudes, in any order of summation, with
g(n) = n u/(1 - n u), u = 2^-53 (Higham 2002, Section 3.1). `SLACK` further roundings cover how the weights
themselves were computed and stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headcount.certificates.excess import sway
from headcount.certificates.network import ClassTokenNet, ReluNet
from headcount.nets.transformer import Attention

U = 2.0**-53
SLACK = 64
EXP_ULPS = 8  # the exponential of the mathematical libraries in use is within 1 ulp; so much is granted


@dataclass(frozen=True)
class KnownBounds:
    """Numbers known up to an error: |exact value| <= size, |computed - exact| <= error, coordinate by coordinate."""

    size: np.ndarray
    error: np.ndarray

    def mapped(self, weight: np.ndarray, bias: np.ndarray | float = 0.0) -> KnownBounds:
        """After x -> weight x + bias."""
        size = np.abs(weight) @ self.size + np.abs(bias)
        error = np.abs(weight) @ self.error
        terms = np.count_nonzero(weight, axis=1) + 2  # a product with zero is exact
        return KnownBounds(size, error + _g(terms) * (size + error))

    def through(self, net: ReluNet) -> KnownBounds:
        """After a ReLU network: relu moves no two numbers apart, so sizes and errors pass it unchanged."""
        bounds = self
        for weight, bias in net.weights:
            bounds = bounds.mapped(weight.numpy(), bias.numpy())
        return bounds


def rounding_error(
    net: ClassTokenNet, largest_token: float, length: int, *, encoded: float, spread: float, leak: float = 0.0
) -> float:
    """What rounding adds to the output of a one-layer network on tokens of at most this magnitude.

    `encoded` bounds every coordinate of an encoded token in exact arithmetic, `spread` the distance of two values
    that a head averages, `leak` is 2 beta gate mu for heads that leave at most mu of their weight behind a gate. Scores
    off by at most a, seen through exp(beta .) and its own rounding, are the exact softmax of scores off by
    a + (8 + 2 EXP_ULPS) u/beta; what that moves says `moved_by`, and the two sums add g(T) of the values' size.
    """
    tokens = np.append(np.full(net.shape.token_dim, largest_token), float(length))
    states = KnownBounds(tokens, np.zeros_like(tokens)).through(net.encoder)
    states = KnownBounds(np.minimum(states.size, encoded), states.error)
    (attention,) = net.attention
    assert isinstance(attention, Attention)
    cls = net.cls.detach().numpy()
    state = KnownBounds(np.abs(cls), np.zeros_like(cls))
    averaging = _Averaging(net.shape.betas[0], length, spread, leak)
    for head in range(attention.query.shape[0]):
        state = _plus(state, _attended(attention, head, cls, states, averaging))
    return float(state.through(net.read_out).error[0])


def moved_by(wobble: float, beta: float, length: int, leak: float = 0.0) -> float:
    """How far the softmax average of the scores themselves moves, in the exact values, when scores are off by wobble.

    At most wobble (sway(T - 1) + beta wobble + leak e^(2 beta wobble)): 5.8 times the wobble at length 10^5, and not
    twice, since near a tie for the first place the softmax changes its mind about log T of score.
    """
    # Along the path s + h e, h in [0, 1], d/dh E s = beta Cov(s, e) <= a beta E|s - E s| with E under the softmax of
    # s + h e. There s = (s + h e) - h e, so beta E|s - E s| <= sway(T - 1) + beta a. Where a gate of size G stands in
    # the score and not in the value, s is the value plus the gate, and beta E|gate - E gate| = 2 beta G mu (1 - mu),
    # with mu the weight behind it, which rounding raises by at most e^(2 beta a).
    return wobble * (sway(length - 1) + beta * wobble + leak * math.exp(min(700.0, 2 * beta * wobble)))


class _Averaging(NamedTuple):
    """What a head averages by, over how many tokens, and how far its values lie apart."""

    beta: float
    length: int
    spread: float
    leak: float


def _attended(
    attention: Attention, head: int, cls: np.ndarray, encoded: KnownBounds, averaging: _Averaging
) -> KnownBounds:
    beta, length, spread, leak = averaging
    query, key, value, out = (
        p[head].detach().numpy() for p in (attention.query, attention.key, attention.value, attention.output)
    )
    query_vector = query @ cls  # exact up to g(E), which SLACK covers for the integer-like class tokens used here
    score = encoded.mapped(key).mapped(query_vector[None, :])
    perturbation = score.error[0] + 8 * U * score.size[0] + (8 + 2 * EXP_ULPS) * U / max(beta, U)
    values = encoded.mapped(value)
    # Where the query is zero every value may move by beta E|v - E v| <= beta spread per unit of score.
    scales = np.abs(query_vector[query_vector != 0])
    moved = moved_by(perturbation, beta, length, leak) / scales.min() if scales.size else beta * spread * perturbation
    off = min(moved, spread) + _g(length + 2 * EXP_ULPS) * (values.size + spread)
    return KnownBounds(values.size, values.error + off).mapped(out)


def _plus(a: KnownBounds, b: KnownBounds) -> KnownBounds:
    size = a.size + b.size
    return KnownBounds(size, a.error + b.error + 2 * U * size)


def _g(n: np.ndarray | int) -> np.ndarray:
    total = (np.asarray(n) + SLACK) * U
    return np.asarray(total / (1 - total))
