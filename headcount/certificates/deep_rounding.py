"""Rounding of networks with several layers: what float64 arithmetic can add, by forward error analysis.

Scores off by at most a multiply every attention weight by a factor within exp(+-2 beta a), so the mean of values of
size v moves by at most v (exp(2 beta a) - 1); twice that is granted. A value that is the score itself moves less (see
`rounding.moved_by`), and how much a unit of it is worth must be known: only the class token's own constants are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from headcount.certificates.network import ClassTokenNet, ReluNet
from headcount.certificates.rounding import EXP_ULPS, KnownBounds, U, _g, _plus, moved_by
from headcount.nets.transformer import Attention


def rounding_through(
    net: ClassTokenNet, largest_token: float, length: int, *, sizes: Sequence[np.ndarray] = ()
) -> float:
    """What rounding adds to the output of a network of any depth on tokens of at most this magnitude.

    `sizes` are magnitudes that a proof gives for a token's state, after the encoder and after each layer; without
    them every sum is taken at the sum of its magnitudes.
    """
    tokens = np.append(np.full(net.shape.token_dim, largest_token), float(length))
    token = within(KnownBounds(tokens, np.zeros_like(tokens)).through(net.encoder), sizes, 0)
    cls = KnownBounds(np.abs(net.cls.detach().numpy()), np.zeros(net.shape.embed_dim))
    fixed = np.where(_written(net), np.nan, net.cls.detach().numpy())
    for layer, (attend, forward) in enumerate(zip(net.attention, net.between, strict=False)):
        assert isinstance(attend, Attention) and isinstance(forward, ReluNet)
        beta = net.shape.betas[layer]
        token, cls = (
            _plus(token, _attended(attend, token, token, beta, length)),
            _plus(cls, _attended(attend, cls, token, beta, length, fixed)),
        )
        token, cls = (_plus(q, q.through(forward)) for q in (token, cls))
        token = within(token, sizes, layer + 1)
    last = net.attention[-1]
    assert isinstance(last, Attention)
    cls = _plus(cls, _attended(last, cls, token, net.shape.betas[-1], length, fixed))
    return float(cls.through(net.read_out).error[0])


def within(state: KnownBounds, sizes: Sequence[np.ndarray], at: int) -> KnownBounds:
    """The state with the magnitudes that a proof gives, where it gives any."""
    return KnownBounds(np.minimum(state.size, sizes[at]), state.error) if at < len(sizes) else state


def scores_off(attention: Attention, head: int, asker: KnownBounds, tokens: KnownBounds, beta: float) -> float:
    """How far off the scores are of which the computed weights are the exact softmax; its own rounding counted in."""
    q = asker.mapped(attention.query[head].detach().numpy())
    k = tokens.mapped(attention.key[head].detach().numpy())
    size = float(q.size @ k.size)
    error = float(q.size @ k.error + q.error @ k.size + q.error @ k.error) + float(_g(len(q.size))) * size
    return error + 8 * U * size + (8 + 2 * EXP_ULPS) * U / max(beta, U)


def averaged(
    attention: Attention, head: int, tokens: KnownBounds, length: int, moved: np.ndarray | float = 0.0
) -> KnownBounds:
    """What a head brings when the weights it was given are taken as they are, or move its values by `moved`."""
    values = tokens.mapped(attention.value[head].detach().numpy())
    summed = _g(length + 2 * EXP_ULPS) * values.size
    return KnownBounds(values.size, values.error + moved + summed).mapped(attention.output[head].detach().numpy())


def _attended(
    attention: Attention,
    asker: KnownBounds,
    tokens: KnownBounds,
    beta: float,
    length: int,
    known: np.ndarray | None = None,
) -> KnownBounds:
    """What all heads bring; `known` are the coordinates of the asker that no layer writes (nan: some layer does)."""
    total = KnownBounds(np.zeros_like(asker.size), np.zeros_like(asker.size))
    for head in range(attention.query.shape[0]):
        query, key, value = (p[head].detach().numpy() for p in (attention.query, attention.key, attention.value))
        perturbation = scores_off(attention, head, asker, tokens, beta)
        moved = 2 * math.expm1(min(700.0, 2 * beta * perturbation)) * tokens.mapped(value).size
        if known is not None and len(key) == 1 and torch.equal(attention.key[head], attention.value[head]):
            worth = abs(float(query[0][query[0] != 0] @ known[query[0] != 0]))  # nan where it is not known
            if worth > 0:
                moved = np.minimum(moved, moved_by(perturbation, beta, length) / worth)
        total = _plus(total, averaged(attention, head, tokens, length, moved))
    return total


def _written(net: ClassTokenNet) -> np.ndarray:
    """Which coordinates of the state some attention or feed-forward between layers writes."""
    written = np.zeros(net.shape.embed_dim, dtype=bool)
    for attend, forward in zip(net.attention, net.between, strict=False):
        assert isinstance(attend, Attention) and isinstance(forward, ReluNet)
        weight, bias = forward.weights[-1]
        written |= (attend.output.detach() != 0).any(dim=0).any(dim=-1).numpy()
        written |= ((weight != 0).any(dim=1) | (bias != 0)).numpy()
    return written
