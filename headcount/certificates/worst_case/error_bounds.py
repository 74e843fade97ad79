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

__all__ = [
    "ErrorBounds",
    "Provable",
    "Scores",
    "error_bounds",
    "folded_bounds",
    "gelu_range",
    "gelu_slope_range",
    "unit_slopes",
]

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
    """Bounds for folded networks, by middle, slopes and bends, or by ranges alone where those are lower.

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
    G, R, T, d = lo.shape
    H, M, N = net.A.shape[1:]
    mid, rad = (lo + hi) / 2, (hi - lo) / 2 * UP
    pre = torch.einsum("grtd,gnd->grtn", mid, net.W) + net.b[:, None]
    on = unit_slopes(net.units, pre, torch.einsum("grtd,gnd->grtn", rad, net.W.abs()) + net.edge[:, None, None])
    z = net.activate(pre)
    rows, offsets = torch.cat([net.S, net.A.flatten(1, 2)], 1), torch.cat([net.s0, net.a0.flatten(1)], 1)
    seen = torch.baddbmm(offsets[:, None], z.reshape(G, R * T, N), rows.mT).view(G, R, T, -1)
    steep = (rows[..., None] * net.W[:, None]).transpose(1, 2).reshape(G, N, -1)
    slopes = [
        torch.bmm(part.reshape(G, R * T, N), by).view(G, R, T, -1, d)
        for part, by in ((on.mid, steep), (on.rad, steep.abs()))
    ]
    ds, da = (Interval(*(s[..., part, :] for s in slopes)) for part in (slice(None, H), slice(H, None)))
    s, a, da = (
        seen[..., :H],
        seen[..., H:].unflatten(-1, (H, M)),
        Interval(*(t.unflatten(-2, (H, M)) for t in (da.mid, da.rad))),
    )
    scores, even = Scores.of(s, _spread(ds, rad)), s.softmax(2)
    p, mean = scores.weights, (even[..., None] * a).sum(2)
    reach = p.magnitude[..., None] * rad[:, :, :, None]  # how much of a token's steepness a mean can feel
    means, far, steep = _means(Interval(a, _spread(da, rad)), da, ds, mean, reach, scores)
    hidden, away = mean.sum(2) + net.c[:, None], far.sum(2)
    alpha, bend = net.w[:, None] * gelu_slope(hidden), net.w.abs()[:, None] * gelu_bend(hidden, away)
    blamed = (2 * bend / away.clamp_min(LITTLE))[:, :, None, None, :, None]
    bent = ((steep * blamed).sum(4) * reach).sum(3)
    along = _network_slopes(net, alpha, on, a, even, scores, ds, rad)
    y, dy, values = target.slopes(lo, hi)
    middle = (torch.einsum("grm,gm->gr", gelu(hidden), net.w) + net.w0[:, None] - y).abs()
    outright = (_outputs(net, means) - values).magnitude * UP + net.slack[:, None]
    guilt = (along - dy).magnitude * rad
    around = (guilt.sum((2, 3)) + bend.sum(2)) * UP + net.slack[:, None] + net.drift[:, None] * rad.sum((2, 3))
    upper = torch.fmin(middle + around, outright).nan_to_num(torch.inf, torch.inf, torch.inf)
    return ErrorBounds(upper, (middle - around).nan_to_num(0.0), middle.nan_to_num(torch.inf), guilt + bent)


def _outputs(net: Folded, means: Interval) -> Interval:
    """The range of the output by that of the means alone: what large boxes are bounded by."""
    hidden = Interval(means.mid.sum(2) + net.c[:, None], means.rad.sum(2))
    low, high = gelu_range(hidden.mid - hidden.rad, hidden.mid + hidden.rad)
    active, by = hull(low, high), net.w[..., None]
    return Interval((active.mid @ by)[..., 0] + net.w0[:, None], (active.rad @ by.abs())[..., 0])


def _network_slopes(
    net: Folded, alpha: Tensor, on: Interval, a: Tensor, even: Tensor, scores: Scores, ds: Interval, rad: Tensor
) -> Interval:
    """The slopes of sum_k alpha_k D_k by every coordinate of every token."""
    rows = torch.einsum("grm,ghmn->grhn", alpha, net.A)
    steep = (rows[..., None, :] * net.W.mT[:, None, None])[:, :, None]  # models, boxes, 1, heads, token_dim, units
    db = Interval((on.mid[:, :, :, None, None] * steep).sum(-1), (on.rad[:, :, :, None, None] * steep.abs()).sum(-1))
    db = db.unsqueeze(-2)
    b = (alpha[:, :, None, None] * a).sum(-1, keepdim=True)
    tokens = Interval(b, _spread(db, rad))
    p = scores.weights
    reach = p.magnitude[..., None] * rad[:, :, :, None]
    means, _, _ = _means(tokens, db, ds, (even[..., None] * b).sum(2), reach, scores)
    return (p.unsqueeze(-1) * _steepness(tokens, db, ds, means)[..., 0, :]).sum(3)


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
) -> tuple[Interval, Float[Tensor, "models boxes heads values"], Tensor]:
    """Softmax means of numbers known for every token: their range, how far they stray from `mean`, their steepness.

    They lie within the exact range for the scores and numbers of this box, each by itself, and move by their own
    slopes, in which they stand themselves.
    """
    low, high = scores.means(tokens)
    steep = mean
    for _ in range(PASSES):
        steep = _steepness(tokens, slopes, ds, hull(low, high)).magnitude
        far = (steep * reach.unsqueeze(-2)).sum((2, 5)) * UP
        low, high = torch.maximum(low, mean - far), torch.minimum(high, mean + far)
    return hull(low, high), torch.maximum(high - mean, mean - low), steep


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


def gelu_bend(x: Tensor, r: Tensor) -> Tensor:
    """The most that gelu(x + D) can differ from gelu(x) + gelu'(x) D for |D| <= r.

    >>> bool(gelu_bend(torch.tensor(0.0), torch.tensor(1.0)) >= torch.special.ndtr(torch.tensor(1.0)) - 0.5)
    True
    """
    low, high = x - r, x + r
    curved = torch.maximum(_gelu_curve(low).abs(), _gelu_curve(high).abs())
    curved = torch.where((low <= 0) & (high >= 0), CURVED, curved)
    dips = ((low <= 2) & (high >= 2)) | ((low <= -2) & (high >= -2))
    curved = torch.where(dips, curved.clamp_min(DIP), curved) + 1e-14
    least, most = gelu_slope_range(low, high)
    slope = gelu_slope(x)
    return torch.minimum(curved * r * r / 2, r * torch.maximum(most - slope, slope - least))


def _gelu_curve(x: Tensor) -> Tensor:
    return torch.exp(-0.5 * x * x) * (2 - x * x) / math.sqrt(2 * math.pi)
