"""Rounding of the masking network, measured against the target instead of against exact arithmetic.

At a tie for the first place, scores that are off change who is masked and by how much, and a bound on how far the
network strays from itself grows like beta. But the target does not care. Let the computed weights be the exact softmax
of scores off by at most a, and q the mean squared distance under them, computed within d:

- a token of weight at most 1/2 has q >= 1/2 and is masked by no more than 8 d; at most one token W has more;
- W is within 2 a of the first place. If it is not the first itself, the second is as near, and leaving the first in
  place of the second costs 2 a; if it is, any mask between 0 and 2 leaves the largest between the second and the first;
- a first place that leads by log(4 V)/beta + 2 a + 8 d/beta has q + d <= 1/4 and is masked fully.

So the largest after masking is off by the lead that the certificate counts, 2 a + 8 d/beta, and what the mask itself is
off by. The last layer's softmax, of scores off by b, falls short of it by W((T-1)/e)/beta + 2 b. Nothing grows with
beta.
With three layers or more the leaders before the last are spaced so that q <= 1/8: a factor exp(2 beta a) <= 3/2 and
d <= 1/16 leave q + d <= 1/4 for the leader and at least 3/4 for all others, so masks are exactly 2 and 0.
"""

from __future__ import annotations

import numpy as np

from headcount.certificates.deep_rounding import averaged, scores_off, within
from headcount.certificates.network import ClassTokenNet, ReluNet
from headcount.certificates.rounding import KnownBounds, U, _plus
from headcount.nets.transformer import Attention


def mask_rounding(net: ClassTokenNet, length: int, *, rank: int) -> float:
    """What float64 adds to the lead or to the softmax, whichever the certificate counts; the score is coordinate 0."""
    beta, T = net.shape.betas[0], float(length)
    last = net.attention[-1]
    assert isinstance(last, Attention)
    sizes = np.array([1.0, 1.0, T, T * T, 0.0, 0.0, 0.0])
    token = within(KnownBounds(np.array([1.0, T]), np.zeros(2)).through(net.encoder), [sizes], 0)
    cls = KnownBounds(np.abs(net.cls.detach().numpy()), np.zeros(net.shape.embed_dim))
    masked, off, shift = token, 0.0, 0.0
    if rank > 1:
        masked, off, shift = _after_masks(net, token, length, rank)
    b = scores_off(last, 0, cls, masked, beta)
    read = _plus(cls, averaged(last, 0, masked, length)).through(net.read_out)
    return 2 * off + shift + 2 * b + float(read.error[0])


def _after_masks(net: ClassTokenNet, token: KnownBounds, length: int, rank: int) -> tuple[KnownBounds, float, float]:
    """The state after the last mask, how far its scores are off, and how much more lead they ask for."""
    first, mask, beta, T = net.attention[0], net.between[0], net.shape.betas[0], float(length)
    assert isinstance(first, Attention) and isinstance(mask, ReluNet)
    before = 2.0 * (rank - 2)  # the masks of the leaders: each subtracts 2, with two roundings
    token = KnownBounds(token.size + _score(before), token.error + _score(4 * U * (rank - 2) * (1 + before)))
    off = scores_off(first, 0, token, token, beta)
    state = _plus(token, averaged(first, 0, token, length))
    state = within(state, [np.array([1 + before, 1.0, T, T * T, T, T * T, 0.0])], 0)
    masked = _plus(state, state.through(mask))
    error = float(masked.error[0])  # at least 8 d: the mask is 2 clip(2 - 4 q, 0, 1)
    if rank > 2 and (2 * beta * off > 0.4 or error > 0.5):
        raise ValueError(f"float64 cannot certify masks at length {length} and beta {beta:.3g}")
    masked = within(masked, [np.array([3 + before, 1.0, T, T * T, T, T * T, 0.0])], 0)
    return masked, off, error / beta


def _score(value: float) -> np.ndarray:
    return np.array([value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
