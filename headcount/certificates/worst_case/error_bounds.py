"""How large |network - target| can be over boxes of tokens: the error in the middle, slopes, and what bends.

With m the middle of a box and x any point of it, the read-out's hidden units are pre(x) = pre(m) + D(x), and

    e(x) = e(m) + sum_k alpha_k D_k(x) - (y(x) - y(m)) + sum_k w_k bend_k(x),      alpha_k = w_k gelu'(pre_k(m)).

The first sum is again a sum of softmax means, of one number b = <alpha, a> for every token and head; its slope by x_t
is p_t (b'(x_t) + s'(x_t) (b(x_t) - mean of b)), in which the hidden units have cancelled as far as they do in the
network. Slopes of network and target are subtracted before magnitudes are taken; a bend is at most
|gelu''| D_k^2 / 2, where the D_k are bounded in the same way, each by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.worst_case.folded import Folded, U, Units, gelu, gelu_slope
from headcount.certificates.worst_case.intervals import Interval, hull
from headcount.certificates.worst_case.sloped_targets import SlopedTarget
from headcount.certificates.worst_case.softmax_range import LEAST_WEIGHT, softmax_mean_range
from headcount.certificates.worst_case.weight_ranges import WeightRanges

PASSES = 2  # how often the mean of the values, which stands in its own slope, is bounded anew
UP = 1 + 1e-9  # on sums of magnitudes: far above the rounding of a few hundred terms of one sign
PEAK = 1.1289043  # gelu'(sqrt 2), rounded up; gelu'(-sqrt 2) = 1 - gelu'(sqrt 2)
CURVED = 0.7978846  # gelu''(0), rounded up
DIP = 0.1079820  # -gelu''(2), rounded up
LOWEST, LEAST = -0.7517916, -0.1699713  # where gelu is least, and its value there, rounded down
LITTLE = 1e-300


@dataclass(frozen=True, eq=False)
class ErrorBounds:
    """What is known of boxes: |error| is at most `upper` and at least `least` on each; what every side adds to that."""

    upper: Float[Tensor, "models boxes"]
    least: Float[Tensor, "models boxes"]
    middle: Float[Tensor, "models boxes"]
    guilt: Float[Tensor, "models boxes length token_dim"]


@runtime_checkable
class Provable(Protocol):
    """Networks of which errors can be bounded: their outputs, their sizes, and which of them."""

    @property
    def length(self) -> int: ...
    @property
    def token_dim(self) -> int: ...
    @property
    def numbers(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def same_places(self) -> bool: ...
    @property
    def slack(self) -> Tensor: ...

    def __len__(self) -> int: ...
    def __call__(self, x: Float[Tensor, "models batch length token_dim"]) -> Float[Tensor, "models batch"]: ...
    def of(self, members: Tensor | slice) -> Any: ...


@singledispatch
def error_bounds(net: Any, target: SlopedTarget, lo: Tensor, hi: Tensor) -> ErrorBounds:
    """Bounds of |network - target| over every member's own boxes, (models, boxes, length, token_dim)."""
    raise ValueError(f"no bounds are known of {type(net).__name__}")


@error_bounds.register
def folded_bounds(
    net: Folded,
    target: SlopedTarget,
    lo: Float[Tensor, "models boxes length token_dim"],
    hi: Float[Tensor, "models boxes length token_dim"],
) -> ErrorBounds:
    """Bounds for folded networks, by slopes and bends, by weights and tokens apart, or by ranges: the lowest of them.

    >>> from headcount.certificates.worst_case.folded import fold
    >>> from headcount.certificates.worst_case.sloped_targets import sloped
    >>> from headcount.nets import Architecture, Transformer
    >>> from headcount.tasks import Wells
    >>> net = fold([Transformer(Architecture(layers=((1, 2),), width=4), token_dim=1, seed=0)], 2)
    >>> target, point = sloped([Wells([[0.5]], 2)]), torch.full((1, 1, 2, 1), 0.25, dtype=torch.float64)
    >>> at_a_point = error_bounds(net, target, point, point)
    >>> round(float(at_a_point.upper - (net(point) - target.value(point)).abs()), 6)
    0.0
    """
    box = _tokens(net, lo, hi)
    ranges = WeightRanges.of(box.weights)
    at, well = ranges.middle(box.even)
    known = _known_means(box, ranges, at)
    hidden, away = known.at.sum(2) + net.c[:, None], known.far.sum(2)
    down, up = _bends(net.w[:, None], hidden, away)
    y, dy, values = target.slopes(lo, hi)
    error = net.read(hidden) - y
    line = _Line.of(net, box, net.w[:, None] * gelu_slope(hidden))
    # What the error is at least and at most, before anything but its bends moves.
    least, most = error + down.sum(2) * UP, error + up.sum(2) * UP
    spare = net.slack[:, None] + net.drift[:, None] * box.rad.sum((2, 3))
    slopes, means = line.slopes(box)
    along = (slopes - dy).magnitude * box.rad
    around = (along.sum((2, 3)) * UP + spare).masked_fill(~well, torch.inf)
    fixed = ((line.slopes_at(ranges) - dy).magnitude * box.rad).sum((2, 3)) * UP + spare + 3 * net.slack[:, None]
    low, high = line.moved(box, at)
    fall, rise = line.mean_moved(means, at)
    shift, apart = y - values.mid, values.rad * UP + spare + 3 * net.slack[:, None]
    roads = (
        (least, most, around),  # slopes and bends
        (least + low, most + high, fixed),  # weights and tokens apart
        (least + fall + shift, most + rise + shift, apart),  # the range of the line against that of the target
    )
    outright = (_outputs(net, known.range) - values).magnitude * UP + net.slack[:, None]
    upper, surely = outright, torch.zeros_like(outright)
    for bottom, top, spread in roads:
        upper = torch.fmin(upper, torch.maximum(top, -bottom) + spread)
        surely = torch.fmax(surely, torch.maximum(bottom, -top) - spread)
    upper = upper.nan_to_num(*[torch.inf] * 3)
    middle = (net.read(known.middle.sum(2) + net.c[:, None]) - y).abs().nan_to_num(*[torch.inf] * 3)
    blame = (2 * (up - down) / away.clamp_min(LITTLE))[:, :, None, None, :, None]
    bent = ((known.steep * blame).sum(4) * box.reach).sum(3)
    return ErrorBounds(upper, surely.nan_to_num(0.0, 0.0, 0.0), middle, along + bent)


@dataclass(frozen=True, eq=False)
class _Tokens:
    """The tokens of boxes: their scores and values in the middle, slopes of both, and the weights that scores allow."""

    rad: Tensor
    on: Interval
    ds: Interval
    a: Float[Tensor, "models boxes length heads hidden"]
    da: Interval
    scores: Scores
    even: Float[Tensor, "models boxes length heads"]
    weights: Interval
    reach: Tensor  # how much of a token's steepness a mean can feel


def _tokens(net: Folded, lo: Tensor, hi: Tensor) -> _Tokens:
    G, R, T, d = lo.shape
    H, M, N = net.A.shape[1:]
    mid, rad = (lo + hi) / 2, (hi - lo) / 2 * UP
    pre = torch.einsum("grtd,gnd->grtn", mid, net.W) + net.b[:, None]
    on = unit_slopes(net.units, pre, torch.einsum("grtd,gnd->grtn", rad, net.W.abs()) + net.edge[:, None, None])
    z = net.activate(pre)
    rows, offsets = torch.cat([net.S, net.A.flatten(1, 2)], 1), torch.cat([net.s0, net.a0.flatten(1)], 1)
    mapped = torch.baddbmm(offsets[:, None], z.reshape(G, R * T, N), rows.mT).view(G, R, T, -1)
    steep = (rows[..., None] * net.W[:, None]).transpose(1, 2).reshape(G, N, -1)
    slopes = [
        torch.bmm(part.reshape(G, R * T, N), by).view(G, R, T, -1, d)
        for part, by in ((on.mid, steep), (on.rad, steep.abs()))
    ]
    ds, da = (Interval(*(s[..., part, :] for s in slopes)) for part in (slice(None, H), slice(H, None)))
    s, a = mapped[..., :H], mapped[..., H:].unflatten(-1, (H, M))
    da = Interval(*(t.unflatten(-2, (H, M)) for t in (da.mid, da.rad)))
    scores = Scores.of(s, _spread(ds, rad))
    p = scores.weights
    return _Tokens(rad, on, ds, a, da, scores, s.softmax(2), p, p.magnitude[..., None] * rad[:, :, :, None])


@dataclass(frozen=True, eq=False)
class _Means:
    """Softmax means of the values: in the middle, under the weights compared with, and their range in the box."""

    middle: Float[Tensor, "models boxes heads hidden"]
    at: Float[Tensor, "models boxes heads hidden"]
    range: Interval
    far: Float[Tensor, "models boxes heads hidden"]
    steep: Tensor


def _known_means(box: _Tokens, ranges: WeightRanges, at: Tensor) -> _Means:
    """Two ways to bound each mean: by slopes from the middle of the box, or by weights and values each by itself."""
    worth = Interval(box.a, _spread(box.da, box.rad))
    middle, mean = (box.even[..., None] * box.a).sum(2), (at[..., None] * box.a).sum(2)
    by_slopes, steep = _means(worth, box.da, box.ds, middle, box.reach, box.scores)
    down, up = ranges.moved(at, box.a)
    inner = torch.minimum((ranges.most[..., None] * worth.rad).sum(2), worth.rad.amax(2)) * UP
    inner = inner + 1e-12 * box.a.abs().amax(2)
    low = torch.maximum(by_slopes.mid - by_slopes.rad, mean - down * UP - inner)
    high = torch.minimum(by_slopes.mid + by_slopes.rad, mean + up * UP + inner)
    return _Means(middle, mean, hull(low, high), torch.maximum(high - mean, mean - low).clamp_min(0), steep)


@dataclass(frozen=True, eq=False)
class _Line:
    """One number b = <alpha, a> for every token and head: what is left of the values to first order."""

    b: Float[Tensor, "models boxes length heads"]
    db: Interval

    @classmethod
    def of(cls, net: Folded, box: _Tokens, alpha: Tensor) -> _Line:
        """Slopes are those of the sum, in which hidden units cancel as far as they do in the network."""
        rows = torch.einsum("grm,ghmn->grhn", alpha, net.A)
        steep = (rows[..., None, :] * net.W.mT[:, None, None])[:, :, None]  # models, boxes, 1, heads, token_dim, units
        mid, rad = box.on.mid[:, :, :, None, None], box.on.rad[:, :, :, None, None]
        db = Interval((mid * steep).sum(-1), (rad * steep.abs()).sum(-1))
        return cls((alpha[:, :, None, None] * box.a).sum(-1), db)

    def slopes(self, box: _Tokens) -> tuple[Interval, Interval]:
        """The slopes of sum_k alpha_k D_k by every coordinate of every token, all weights moving; the means' ranges."""
        db = self.db.unsqueeze(-2)
        tokens = Interval(self.b[..., None], _spread(db, box.rad))
        means, _ = _means(tokens, db, box.ds, (box.even * self.b).sum(2)[..., None], box.reach, box.scores)
        return (box.weights.unsqueeze(-1) * _steepness(tokens, db, box.ds, means)[..., 0, :]).sum(3), means[..., 0]

    def slopes_at(self, ranges: WeightRanges) -> Interval:
        """The same, for weights that stand still anywhere in their range."""
        return (hull(ranges.least, ranges.most).unsqueeze(-1) * self.db).sum(3)

    def moved(self, box: _Tokens, at: Tensor) -> tuple[Tensor, Tensor]:
        """How far sum_k alpha_k D_k moves down and up with the weights alone, tokens in the middle of the box."""
        b = self.b[..., None]
        low, high = box.scores.means(Interval(b, torch.zeros_like(b)))
        mean = (at * self.b).sum(2)
        return (low[..., 0] - mean).sum(2), (high[..., 0] - mean).sum(2)

    def mean_moved(self, means: Interval, at: Tensor) -> tuple[Tensor, Tensor]:
        """How far sum_k alpha_k D_k moves down and up with weights and tokens, by the ranges of its means."""
        mean = (at * self.b).sum(2)
        return (means.mid - means.rad - mean).sum(2), (means.mid + means.rad - mean).sum(2)


def _bends(w: Tensor, hidden: Tensor, away: Tensor) -> tuple[Tensor, Tensor]:
    """How far every hidden unit's share of the output can bend down (never above 0) and up."""
    low, high = gelu_bend(hidden, away)
    return torch.minimum(w * low, w * high), torch.maximum(w * low, w * high)


def _outputs(net: Folded, means: Interval) -> Interval:
    """The range of the output by that of the means alone: what large boxes are bounded by."""
    hidden = Interval(means.mid.sum(2) + net.c[:, None], means.rad.sum(2))
    low, high = gelu_range(hidden.mid - hidden.rad, hidden.mid + hidden.rad)
    active, by = hull(low, high), net.w[..., None]
    return Interval((active.mid @ by)[..., 0] + net.w0[:, None], (active.rad @ by.abs())[..., 0])


def _spread(slopes: Interval, rad: Tensor) -> Tensor:
    """How far numbers of these slopes move in the box, token by token."""
    return (slopes.magnitude * rad.view(*rad.shape[:3], *(1,) * (slopes.mid.ndim - 4), rad.shape[3])).sum(-1) * UP


@dataclass(frozen=True, eq=False)
class Scores:
    """The least and largest exp(score) of every token and head, up to a common factor for each head."""

    least: Float[Tensor, "models boxes length heads"]
    most: Float[Tensor, "models boxes length heads"]

    @classmethod
    def of(cls, s: Tensor, sr: Tensor) -> Scores:
        """Of scores between s - sr and s + sr."""
        top = (s + sr).amax(2, keepdim=True)
        return cls((s - sr - top).exp(), (s + sr - top).exp())

    @property
    def weights(self) -> Interval:
        """The exact range of every softmax weight: a token's own score against all others.

        >>> p = Scores.of(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1)).weights
        >>> p.mid.flatten(), bool((p.rad < 1e-6).all())
        (tensor([0.5000, 0.5000]), True)
        """
        least, most = self.least, self.most
        rest = most.sum(2, keepdim=True)
        rounding = (64 + 8 * least.shape[2]) * U  # of a sum and of the difference to it, for float64
        low = least / (least + (rest - most).clamp_min(0) + rounding * rest) * (1 - 1e-12)
        others = (least.sum(2, keepdim=True) - least).clamp_min(0)
        high = torch.where(most + others > LEAST_WEIGHT, most / (most + others) * (1 + 1e-12), 1.0)  # 0/0 says nothing
        return hull(low, high)

    def means(self, tokens: Interval) -> tuple[Tensor, Tensor]:
        """The exact range of softmax means of numbers known for every token, head and value."""
        each = [
            w.movedim(2, -1)[:, :, :, None].expand(*w.shape[:2], *tokens.mid.shape[3:], -1)
            for w in (self.least, self.most)
        ]
        ends = [t.movedim(2, -1) for t in (tokens.mid - tokens.rad, tokens.mid + tokens.rad)]
        low, high = softmax_mean_range(*each, *ends)
        tiny = 1e-12 * (ends[0].abs() + ends[1].abs()).amax(-1)
        return low - tiny, high + tiny


def _means(
    tokens: Interval, slopes: Interval, ds: Interval, mean: Tensor, reach: Tensor, scores: Scores
) -> tuple[Interval, Tensor]:
    """Softmax means of numbers known for every token, `mean` in the middle of the box: their range and steepness.

    They lie within the exact range for the scores and numbers of this box, each by itself, and move by their own
    slopes, in which they stand themselves.
    """
    low, high = scores.means(tokens)
    steep = mean
    for _ in range(PASSES):
        steep = _steepness(tokens, slopes, ds, hull(low, high)).magnitude
        far = (steep * reach.unsqueeze(-2)).sum((2, 5)) * UP
        low, high = torch.maximum(low, mean - far), torch.minimum(high, mean + far)
    return hull(low, high), steep


def _steepness(tokens: Interval, slopes: Interval, ds: Interval, means: Interval) -> Interval:
    """v'(x_t) + s'(x_t) (v(x_t) - mean): how a softmax mean of v moves with a token of weight 1."""
    apart = tokens - means.unsqueeze(2)
    mid, rad = apart.mid.unsqueeze(-1), apart.rad.unsqueeze(-1)
    steep, wide = ds.mid.unsqueeze(-2), ds.rad.unsqueeze(-2)
    spread = torch.addcmul(torch.addcmul(slopes.rad, steep.abs(), rad), wide, apart.magnitude.unsqueeze(-1))
    return Interval(torch.addcmul(slopes.mid, steep, mid), spread)


def unit_slopes(units: Units, pre: Tensor, rad: Tensor) -> Interval:
    """Slopes of the encoder's activation around every hidden unit."""
    if units == "linear":
        return Interval(torch.ones_like(pre), torch.zeros_like(pre))
    if units == "relu":
        return hull((pre > rad).to(pre), (pre > -rad).to(pre))
    return hull(*gelu_slope_range(pre - rad, pre + rad))


def gelu_slope_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The range of gelu' over an interval: it falls to -sqrt 2, rises to sqrt 2, and falls again.

    >>> [round(float(v), 3) for v in gelu_slope_range(torch.tensor(-5.0), torch.tensor(5.0))]
    [-0.129, 1.129]
    """
    turn = math.sqrt(2)
    ends = gelu_slope(low), gelu_slope(high)
    least = torch.where((low <= -turn) & (high >= -turn), 1 - PEAK, torch.minimum(*ends) - 1e-14)
    most = torch.where((low <= turn) & (high >= turn), PEAK, torch.maximum(*ends) + 1e-14)
    return least, most


def gelu_range(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """The range of gelu over an interval: it falls to -0.17 at -0.7517916 and rises from there.

    >>> [round(float(v), 3) for v in gelu_range(torch.tensor(-3.0), torch.tensor(0.0))]
    [-0.17, 0.0]
    """
    ends = gelu(low), gelu(high)
    turns = (low <= LOWEST + 1e-6) & (high >= LOWEST - 1e-6)
    return torch.where(turns, LEAST, torch.minimum(*ends)), torch.maximum(*ends)


def gelu_bend(x: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """How far gelu(x + D) can lie below (never above 0) and above gelu(x) + gelu'(x) D for |D| <= r.

    gelu is convex between -sqrt 2 and sqrt 2, where it bends upwards alone, and concave outside.

    >>> low, high = gelu_bend(torch.tensor(0.0), torch.tensor(1.0))
    >>> bool(low > -1e-12), bool(high >= torch.special.ndtr(torch.tensor(1.0)) - 0.5)
    (True, True)
    """
    low, high = x - r, x + r
    ends = _gelu_curve(low), _gelu_curve(high)
    most = torch.where((low <= 0) & (high >= 0), CURVED, torch.maximum(*ends).clamp_min(0))
    dips = ((low <= 2) & (high >= 2)) | ((low <= -2) & (high >= -2))
    least = torch.where(dips, -DIP, torch.minimum(*ends).clamp_max(0))
    flattest, steepest = gelu_slope_range(low, high)
    slope = gelu_slope(x)
    by_slopes = r * torch.maximum(steepest - slope, slope - flattest)
    half = r * r / 2
    return -torch.minimum((1e-14 - least) * half, by_slopes), torch.minimum((most + 1e-14) * half, by_slopes)


def _gelu_curve(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) * (2 - x * x) / math.sqrt(2 * math.pi)
