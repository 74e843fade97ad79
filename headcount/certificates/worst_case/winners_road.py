"""A road whose boxes do not grow with the length: boxes of the winners alone, all other tokens through their hull.

For targets that are sums of minima, F = sum_i c_i min_t f_i(x_t): every sequence has a winner for each i, and one token
may win several. A box holds the distinct winners (1 to D of them); of every other token only this is used: it lies in
the domain and beats no winner. Cut into pieces once and for all, the domain gives for each head the pieces such a token
may lie in; the softmax means are then largest when all others stand in the same piece, at a vertex of the weights:

    a bound v of the mean holds iff  sum over winners max w (b - v) + (T - winners) max over pieces max w (b - v) <= 0.

So the leak of the others, (T - 1) exp(-gap) times what they are off, is bounded exactly, head by head and unit by unit.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.worst_case.branching import SearchLimits, halved
from headcount.certificates.worst_case.error_bounds import gelu_range, unit_slopes
from headcount.certificates.worst_case.folded import Folded
from headcount.certificates.worst_case.intervals import Interval, hull
from headcount.certificates.worst_case.met_errors import meet
from headcount.certificates.worst_case.sloped_targets import LookedUp

STEPS = 24  # of the bisection for a mean's bound; what it misses is added
CHUNK = 1 << 22  # numbers at once


@dataclass(frozen=True)
class WinnersProof:
    """What the winners' road found of one network: met, proved, boxes looked at and left open."""

    lower: float
    upper: float
    boxes: int
    open: int
    seconds: float


@dataclass(frozen=True, eq=False)
class _Pieces:
    """Boxes of one token: ranges of its scores and values, and of every f_i."""

    lo: Float[Tensor, "pieces token_dim"]
    hi: Float[Tensor, "pieces token_dim"]
    score: Interval
    worth: Interval
    depth: Interval

    @classmethod
    def of(cls, net: Folded, target: LookedUp, lo: Tensor, hi: Tensor) -> _Pieces:
        """By the middle and the slopes of every piece."""
        mid, rad = (lo + hi) / 2, (hi - lo) / 2
        W, H, M = net.W[0], *net.a0.shape[1:]
        pre, wide = mid @ W.T + net.b[0, 0], rad @ W.abs().T + net.edge[0]
        on, z = unit_slopes(net.units, pre, wide), net.activate(pre)
        rows = torch.cat([net.S[0], net.A[0].flatten(0, 1)])
        value = z @ rows.T + torch.cat([net.s0[0], net.a0[0].flatten()])
        steep = rows[:, None, :] * W.T[None]  # rows, token_dim, units
        slope = Interval(torch.einsum("pn,rdn->prd", on.mid, steep), torch.einsum("pn,rdn->prd", on.rad, steep.abs()))
        spread = (slope.magnitude * rad[:, None]).sum(-1) * (1 + 1e-9) + 1e-9 * (1 + value.abs())
        curve, vertex, line = target.curve[0], target.vertex[0], target.line[0]
        away, straight = (mid[:, None] - vertex).abs(), mid @ line.T
        wide = rad @ line.abs().T
        near = curve * (away - rad[:, None]).clamp_min(0).square().sum(-1) + straight - wide
        far = curve * (away + rad[:, None]).square().sum(-1) + straight + wide
        worth = Interval(value[:, H:].unflatten(1, (H, M)), spread[:, H:].unflatten(1, (H, M)))
        return cls(lo, hi, Interval(value[:, :H], spread[:, :H]), worth, hull(near, far))


def set_partitions(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Who wins what: every way to give so many wells to tokens.

    >>> [len(p) for p in set_partitions(3)]
    [1, 2, 2, 2, 3]
    """
    for labels in itertools.product(range(count), repeat=count):
        if all(label <= max((-1, *labels[:i])) + 1 for i, label in enumerate(labels)):
            yield tuple(tuple(i for i, at in enumerate(labels) if at == block) for block in range(max(labels) + 1))


@torch.no_grad()
def prove_by_winners(
    net: Folded,
    target: LookedUp,
    ends: tuple[float, float],
    *,
    ratio: float = 1.5,
    limits: SearchLimits | None = None,
    pieces: int = 256,
    lower: float | None = None,
) -> WinnersProof:
    """Bound |network - target| of one network between two `ends`, by boxes of the winners.

    >>> from headcount.certificates.worst_case.folded import fold
    >>> from headcount.certificates.worst_case.sloped_targets import sloped
    >>> from headcount.nets import Architecture, Transformer
    >>> from headcount.tasks import Wells
    >>> net = fold([Transformer(Architecture(layers=((1, 2),), width=4), token_dim=1, seed=0)], 64)
    >>> found = prove_by_winners(net, sloped([Wells([[0.5]], 64)]), (0.0, 1.0), ratio=3.0)
    >>> found.lower <= found.upper
    True
    """
    outer = target.outer
    if len(net) != 1 or not net.same_places or not target.exchangeable or any(r != 1 for r in target.ranks):
        raise ValueError(
            "the winners' road is for one network without positions and a target of minima over all tokens"
        )
    if [type(g).__name__ for g in outer.profiles] != ["Affine"] * len(outer.profiles):
        raise ValueError("the winners' road is for a target that is linear in its minima")
    (low, high), start, limits = ends, time.perf_counter(), limits or SearchLimits()
    met = float(meet(net, target, low, high).error.max()) if lower is None else lower
    side = max(2, round(pieces ** (1 / net.token_dim)))
    cuts = torch.linspace(low, high, side + 1, dtype=torch.float64)
    corners = [torch.cartesian_prod(*[c] * net.token_dim).view(-1, net.token_dim) for c in (cuts[:-1], cuts[1:])]
    others = _Pieces.of(net, target, *corners)
    upper, looked, left = 0.0, 0, 0
    for blocks in set_partitions(len(target.ranks)):
        if len(blocks) > net.length:
            continue
        shape = (1, len(blocks), net.token_dim)
        queue = [(torch.full(shape, low, dtype=torch.float64), torch.full(shape, high, dtype=torch.float64))]
        while queue:
            lo, hi = queue.pop()
            size = max(1, CHUNK // (len(others.lo) * net.a0[0].numel()))
            if len(lo) > size:
                queue.append((lo[size:], hi[size:]))
                lo, hi = lo[:size], hi[:size]
            bound, met = _bound(net, target, blocks, others, lo, hi, met)
            looked += len(lo)
            bad = bound > ratio * met
            upper = max(upper, float(bound[~bad].max()) if bool((~bad).any()) else 0.0)
            spent = looked > limits.boxes or time.perf_counter() - start > limits.seconds
            narrow = (hi - lo).flatten(1).amax(1) < 1e-4 * (high - low)
            stop = bad & (narrow | spent)
            if bool(stop.any()):
                upper, left = max(upper, float(bound[stop].max())), left + int(stop.sum())
            lo, hi = lo[bad & ~stop], hi[bad & ~stop]
            if len(lo):
                queue.append(halved(lo, hi, hi - lo)[:2])
    return WinnersProof(met, upper, looked, left, time.perf_counter() - start)


def _bound(
    net: Folded,
    target: LookedUp,
    blocks: tuple[tuple[int, ...], ...],
    others: _Pieces,
    lo: Tensor,
    hi: Tensor,
    met: float,
) -> tuple[Tensor, float]:
    """Bounds of boxes of winners (boxes, winners, token_dim), and the largest error met with all others at a winner."""
    boxes, winners = lo.shape[:2]
    own = _Pieces.of(net, target, lo.flatten(0, 1), hi.flatten(0, 1))
    winner = torch.tensor([next(k for k, b in enumerate(blocks) if i in b) for i in range(len(target.ranks))])
    depth = Interval(*(t.view(boxes, winners, -1) for t in (own.depth.mid, own.depth.rad)))
    place = torch.arange(len(winner))
    z = Interval(depth.mid[:, winner, place], depth.rad[:, winner, place])  # boxes, wells
    slope = torch.tensor(target.outer.gradient((0.0,) * len(winner)), dtype=torch.float64)
    y = Interval((z.mid * slope).sum(1), (z.rad * slope.abs()).sum(1))
    may = ((others.depth.mid + others.depth.rad)[None] >= (z.mid - z.rad)[:, None] - 1e-12).all(-1)  # boxes, pieces
    means = [_mean_bound(net, own, others, may, boxes, winners, sign) for sign in (-1, 1)]
    ranges = Interval((means[1] - means[0]) / 2, (means[1] + means[0]) / 2)  # lower end is minus the bound of minus
    hidden = Interval(ranges.mid.sum(1) + net.c, ranges.rad.sum(1))
    low, high = gelu_range(hidden.mid - hidden.rad, hidden.mid + hidden.rad)
    active = hull(low, high)
    out = Interval(active.mid @ net.w[0] + net.w0, active.rad @ net.w[0].abs())
    sequences = ((lo + hi) / 2)[:, torch.arange(net.length).clamp(max=winners - 1)][None]
    met = max(met, float((net(sequences) - target.value(sequences)).abs().max()))
    return (out - y).magnitude * (1 + 1e-9) + net.slack[0], met


def _mean_bound(
    net: Folded, own: _Pieces, others: _Pieces, may: Tensor, boxes: int, winners: int, sign: int
) -> Float[Tensor, "boxes heads hidden"]:
    """An upper bound of `sign` times the softmax mean of every head and hidden unit."""
    top = torch.maximum((own.score.mid + own.score.rad).amax(0), (others.score.mid + others.score.rad).amax(0))

    def parts(p: _Pieces) -> tuple[Tensor, Tensor, Tensor]:
        s = p.score
        return (s.mid - s.rad - top).exp(), (s.mid + s.rad - top).exp(), sign * p.worth.mid + p.worth.rad

    least, most, value = (
        t.view(boxes, winners, *t.shape[1:])[..., None] if t.ndim == 2 else t.view(boxes, winners, *t.shape[1:])
        for t in parts(own)
    )
    least2, most2, value2 = (t[..., None] if t.ndim == 2 else t for t in parts(others))
    rest = net.length - winners

    def gain(v: Tensor) -> Tensor:
        own_gain = torch.maximum(least * (value - v[:, None]), most * (value - v[:, None])).sum(1)
        if not rest:
            return own_gain
        each = torch.maximum(least2 * (value2 - v[:, None]), most2 * (value2 - v[:, None]))
        return own_gain + rest * each.masked_fill(~may[:, :, None, None], -torch.inf).amax(1)

    low = value.amin(1)
    high = torch.maximum(value.amax(1), value2.amax(0)) if rest else value.amax(1)
    for _ in range(STEPS):
        middle = (low + high) / 2
        beyond = gain(middle) > 0
        low, high = torch.where(beyond, middle, low), torch.where(beyond, high, middle)
    return high + 1e-12 * (1 + high.abs())
