"""Rounding of the networks over pairs, measured against the target instead of against exact arithmetic.

At a near tie, scores that are off by a change the weights by a factor exp(2 beta a), and the token that is carried with
them: a bound on how far the network strays from itself grows like beta, which is eps^-2. But the target does not
care which of two equals was found. With weights p that are the softmax of -(s + e), |e| <= a, and E the mean under p,

    E s <= E (s + e) + a <= min (s + e) + W((T-1)/e)/beta + a <= min s + W((T-1)/e)/beta + 2 a,

and E s >= min s: rounding costs 2 a on top of the same softmax term, whatever beta. The product's squares are off by
no more at one mean of tokens than at another, so nothing else depends on which mean it is. The same holds of the
largest of s, with both signs changed.
"""

from __future__ import annotations

import numpy as np

from headcount.certificates.deep_rounding import averaged, scores_off, within
from headcount.certificates.network import ClassTokenNet, ReluNet
from headcount.certificates.rounding import KnownBounds, _plus
from headcount.nets.transformer import Attention


def pair_rounding(
    net: ClassTokenNet, length: int, *, sizes: tuple[np.ndarray, np.ndarray], reads: np.ndarray
) -> tuple[float, float]:
    """What rounding adds to the squared distance that the root is taken of, and what computing the root adds.

    `sizes` bounds a token's state after the encoder and after layer 1, `reads` the class token's before the read-out.
    """
    first, second = net.attention
    (between,) = net.between
    assert isinstance(first, Attention) and isinstance(second, Attention) and isinstance(between, ReluNet)
    tokens = np.append(np.ones(net.shape.token_dim), float(length))
    token = within(KnownBounds(tokens, np.zeros_like(tokens)).through(net.encoder), sizes, 0)
    cls = KnownBounds(np.abs(net.cls.detach().numpy()), np.zeros(net.shape.embed_dim))
    partner = scores_off(first, 0, token, token, net.shape.betas[0])
    brought = averaged(first, 0, token, length)
    token, cls = (_plus(state, brought) for state in (token, cls))
    token, cls = (_plus(state, state.through(between)) for state in (token, cls))
    token = within(token, sizes, 1)
    # What the weights of layer 1 did to the class token leaves it again: the read-out subtracts the mean of phi from g.
    best = scores_off(second, 0, cls, token, net.shape.betas[1])
    cls = _plus(cls, averaged(second, 0, token, length))
    reading = np.abs(net.read_out.weights[0][0].numpy()).max(axis=0) > 0
    squared = 2 * partner + 2 * best + float(cls.error[reading].sum())
    exact = KnownBounds(np.minimum(cls.size, reads), np.zeros_like(reads))
    return squared, float(exact.through(net.read_out).error[0])


def sum_rounding(
    net: ClassTokenNet, largest_token: float, length: int, *, sizes: tuple[np.ndarray, np.ndarray]
) -> float:
    """What rounding adds to a sum of largest pairs, one head in both layers for each: 2 a of either, and the sums."""
    first, second = net.attention
    (between,) = net.between
    assert isinstance(first, Attention) and isinstance(second, Attention) and isinstance(between, ReluNet)
    tokens = np.append(np.full(net.shape.token_dim, largest_token), float(length))
    token = within(KnownBounds(tokens, np.zeros_like(tokens)).through(net.encoder), sizes, 0)
    cls = KnownBounds(np.abs(net.cls.detach().numpy()), np.zeros(net.shape.embed_dim))
    heads = range(first.query.shape[0])
    partners = sum(scores_off(first, i, token, token, net.shape.betas[0]) for i in heads)
    brought = [averaged(first, i, token, length) for i in heads]
    for part in brought:
        token = _plus(token, part)
    token = within(_plus(token, token.through(between)), sizes, 1)
    best = sum(scores_off(second, i, cls, token, net.shape.betas[1]) for i in heads)
    for i in heads:
        cls = _plus(cls, averaged(second, i, token, length))
    return 2 * partners + 2 * best + float(cls.through(net.read_out).error[0])
