"""The leaves of a proof again, in ball arithmetic: from the network's own weights, with every rounding enclosed.

Needs the `certify` extra (python-flint). Nothing of the search is used but its boxes: that they cover the domain is
seen anew, and on each |network - target| is bounded anew by the formulas of `error_bounds`, written a second time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx
from torch import Tensor, nn

from headcount.certificates.worst_case.branching import sorted_hull
from headcount.certificates.worst_case.folded import plain_net
from headcount.certificates.worst_case.sloped_targets import OrderStatistic, looked_up
from headcount.certificates.worst_case.worst_error import Worst
from headcount.nets import Transformer
from headcount.nets.transformer import Attention, FeedForward, position_features
from headcount.tasks import Affine, Ridges

PRECISION = 96  # bits
HALVINGS = 6  # of a leaf on which balls say more than the search did


@dataclass(frozen=True)
class RecheckedLeaves:
    """So many leaves, whether they cover the domain, how many hold in balls, and the largest bound found there."""

    leaves: int
    covers: bool
    held: int
    upper: float
    claimed: float

    @property
    def holds(self) -> bool:
        """Whether the claim is proved again."""
        return self.covers and self.held == self.leaves

    @property
    def sentence(self) -> str:
        """How many leaves hold, and whether they cover the domain."""
        confirmed = f"{self.held:,} of {self.leaves:,} leaves hold, at most {self.upper:.6g}"
        return f"In ball arithmetic: {confirmed}; the domain is {'covered' if self.covers else 'NOT covered'}."

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        return {**asdict(self), "holds": self.holds}


def recheck_leaves(worst: Worst, net: nn.Module, task: Any) -> RecheckedLeaves:
    """Prove the bound of a `Worst` again from its leaves, the network and the task.

    >>> from headcount.certificates import certify
    >>> from headcount.nets import Architecture
    >>> from headcount.tasks import Wells
    >>> net, task = Transformer(Architecture(layers=((1, 2),), width=4), token_dim=1, seed=0), Wells([[0.25]], length=2)
    >>> recheck_leaves(certify(net, task, leaves=1000), net, task).holds
    True
    """
    if worst.leaves is None:
        raise ValueError(
            "no leaves were kept: certify(..., leaves=50_000) keeps them where there are no more than that"
        )
    box, sort = worst.domain, worst.net.same_places and worst.target.exchangeable
    lo, hi = worst.leaves.lo.cpu(), worst.leaves.hi.cpu()
    inside = sorted_hull(lo, hi) if sort else (lo, hi)
    with ctx.workprec(PRECISION):
        bound = _BallNet(*plain_net(net), task)
        claimed = arb(worst.upper)
        bounds = [_largest(bound, a, b, claimed) for a, b in zip(*(t.numpy() for t in inside), strict=True)]
        confirmed = sum(bool(f <= claimed) for f in bounds)
        top = max(float(f.upper()) for f in bounds)
    return RecheckedLeaves(len(bounds), covered(lo, hi, box.low, box.high, sort=sort), confirmed, top, worst.upper)


def _largest(bound: _BallNet, lo: np.ndarray, hi: np.ndarray, claimed: Any, halvings: int = HALVINGS) -> Any:
    """The bound on a leaf; where it lies above the claim, the larger of those on its halves across the widest side."""
    upper = bound(lo.tolist(), hi.tolist())
    if upper <= claimed or not halvings:
        return upper
    side = np.unravel_index((hi - lo).argmax(), lo.shape)
    cut = (lo[side] + hi[side]) / 2
    left, right = hi.copy(), lo.copy()
    left[side] = right[side] = cut
    first = _largest(bound, lo, left, claimed, halvings - 1)
    if not first <= claimed:
        return first
    return first.max(_largest(bound, right, hi, claimed, halvings - 1))


def covered(lo: Tensor, hi: Tensor, low: float, high: float, *, sort: bool) -> bool:
    """Whether boxes that came from halving cover a domain, or (`sort`) its sequences that rise in their first numbers.

    A box is covered if it is a leaf, or if both of its halves across some side are; a box without leaves only where it
    holds no rising sequence.
    """
    shape = lo.shape[1:]
    waiting = [(np.full(shape, low), np.full(shape, high), lo.numpy(), hi.numpy())]
    while waiting:
        a, b, los, his = waiting.pop()
        if not len(los):
            if not (sort and (np.maximum.accumulate(a[:, 0]) > np.minimum.accumulate(b[::-1, 0])[::-1]).any()):
                return False
            continue
        if len(los) == 1 and (los[0] <= a).all() and (his[0] >= b).all():
            continue
        cut = _cut(a, b, los, his)
        if cut is None:
            return False
        side, middle = cut
        left = his[(slice(None), *side)] <= middle
        for keep, end in ((left, b.copy()), (~left, a.copy())):
            end[side] = middle
            halves = (a, end) if keep is left else (end, b)
            waiting.append((*halves, los[keep], his[keep]))
    return True


def _cut(a: np.ndarray, b: np.ndarray, los: np.ndarray, his: np.ndarray) -> tuple[Any, float] | None:
    """A side across whose middle no leaf lies, with leaves of less than the whole side."""
    for side in np.ndindex(a.shape):
        middle = (a[side] + b[side]) / 2
        low, high = los[(slice(None), *side)], his[(slice(None), *side)]
        if ((high <= middle) | (low >= middle)).all() and a[side] < middle < b[side]:
            return side, float(middle)
    return None


# The bound in balls ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Range:
    """Two balls: a number that lies between the lower end of one and the upper end of the other."""

    low: Any
    high: Any

    @classmethod
    def around(cls, mid: Any, rad: Any) -> _Range:
        return cls(mid - rad, mid + rad)

    @property
    def size(self) -> Any:
        return abs(self.low).max(abs(self.high))

    def __add__(self, other: _Range) -> _Range:
        return _Range(self.low + other.low, self.high + other.high)

    def __sub__(self, other: _Range) -> _Range:
        return _Range(self.low - other.high, self.high - other.low)

    def __mul__(self, other: _Range) -> _Range:
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return _Range(reduce(arb.min, ends), reduce(arb.max, ends))

    def scaled(self, factor: Any) -> _Range:
        one, two = factor * self.low, factor * self.high
        return _Range(one.min(two), one.max(two))


def _sum(parts: Any) -> _Range:
    return sum(parts, _Range(arb(0), arb(0)))


def _row(values: Any) -> list[Any]:
    return [arb(float(v)) for v in values]


class _BallNet:
    """A one-layer network and its target, bounded over boxes in balls."""

    def __init__(self, net: Transformer, mean: float, spread: float, task: Any) -> None:
        if net.arch.depth != 1 or net.arch.embedding == "linear" or net.arch.activation != "relu":
            raise ValueError("leaves are rechecked of one-layer networks with a ReLU feed-forward")
        self.statistics, self.outer = looked_up(task)
        if not all(isinstance(g, Affine) for g in self.outer.profiles):
            raise ValueError("leaves are rechecked of targets that are linear in what they look up")
        encoder, (attention,) = net.encoder, net.attention
        assert isinstance(encoder, FeedForward)
        assert isinstance(attention, Attention)
        d = net.token_dim
        table = encoder.inner.weight.tolist()
        places = position_features(task.length, net.arch.positions, dtype=net.cls.double().dtype).tolist()
        self.W = [_row(row[:d]) for row in table]
        bias = _row(encoder.inner.bias.tolist())
        self.b = [
            [
                b + sum((arb(w) * arb(p) for w, p in zip(row[d:], place, strict=True)), arb(0))
                for b, row in zip(bias, table, strict=True)
            ]
            for place in places
        ]
        outer, outer_bias = arb_mat(encoder.outer.weight.tolist()), arb_mat([[v] for v in encoder.outer.bias.tolist()])
        cls = arb_mat([[v] for v in net.cls.tolist()])
        inner = arb_mat(net.read_out.inner.weight.tolist())
        beta = arb(attention.weigh.keywords["beta"])  # type: ignore[attr-defined]
        self.S, self.s0, self.A, self.a0 = [], [], [], []
        for h in range(len(attention.query)):
            q, k, v, o = (
                arb_mat(p[h].tolist()) for p in (attention.query, attention.key, attention.value, attention.output)
            )
            direction = (k.transpose() * (q * cls)).transpose() * beta
            carried = inner * o * v
            self.S.append((direction * outer).entries())
            self.s0.append((direction * outer_bias)[0, 0])
            self.A.append((carried * outer).tolist())
            self.a0.append((carried * outer_bias).entries())
        self.c = [x + b for x, b in zip((inner * cls).entries(), _row(net.read_out.inner.bias.tolist()), strict=True)]
        self.w = [arb(spread) * x for x in _row(net.read_out.outer.weight[0].tolist())]
        self.w0 = arb(spread) * arb(float(net.read_out.outer.bias[0].detach())) + arb(mean)

    def __call__(self, lo: list[list[float]], hi: list[list[float]]) -> Any:
        """A bound of |network - target| on a box: by ranges, by slopes, or by the line of its middle."""
        mid = [[(arb(a) + arb(b)) / 2 for a, b in zip(*ends, strict=True)] for ends in zip(lo, hi, strict=True)]
        rad = [[(arb(b) - arb(a)) / 2 for a, b in zip(*ends, strict=True)] for ends in zip(lo, hi, strict=True)]
        tokens = [self._token(t, mid[t], rad[t]) for t in range(len(mid))]
        values, y, dy = self._target(lo, hi, mid)
        T, M, H = range(len(mid)), range(len(self.c)), range(len(self.S))
        weights = [_weights([tokens[t].score[h] for t in T]) for h in H]
        means = [[_mean_range(weights[h], [tokens[t].worth[h][m] for t in T]) for m in M] for h in H]
        hidden = [_sum(means[h][m] for h in H) + _Range(self.c[m], self.c[m]) for m in M]
        outputs = _sum(_gelu_range(r).scaled(w) for r, w in zip(hidden, self.w, strict=True)) + _Range(self.w0, self.w0)
        by_ranges = (outputs - values).size
        middle, pre = self._middle(tokens)
        alpha = [w * _gelu_slope(p) for w, p in zip(self.w, pre, strict=True)]
        away = [abs(r.low - p).max(abs(r.high - p)) for r, p in zip(hidden, pre, strict=True)]
        bent = _sum(_bend(p, r).scaled(w) for w, p, r in zip(self.w, pre, away, strict=True))
        slopes, _ = self._slopes(tokens, weights, alpha)
        moved = arb(0)
        for t in T:
            for j in range(len(mid[t])):
                moved += (slopes[t][j] - dy[t][j]).size * rad[t][j]
        apart = self._apart(tokens, weights, hidden, dy, y, values)
        return by_ranges.min((_Range(middle - y, middle - y) + bent).size + moved).min(apart)

    def _apart(
        self,
        tokens: list[_BallToken],
        weights: list[Any],
        hidden: list[_Range],
        dy: list[list[_Range]],
        y: Any,
        values: _Range,
    ) -> Any:
        """The lower of two bounds from weights in the middle of their ranges.

        Weights and tokens each move by itself; or the line's means move in their range, the target in its own.
        """
        ranges = [_weight_ranges(w) for w in weights]
        at = [_middle_weights(s) for s in ranges]
        pre = list(self.c)
        for h, q in enumerate(at):
            mean = [_dot(q, [token.z[n] for token in tokens]) for n in range(len(self.W))]
            pre = [p + _dot(row, mean) + a for p, row, a in zip(pre, self.A[h], self.a0[h], strict=True)]
        alpha = [w * _gelu_slope(p) for w, p in zip(self.w, pre, strict=True)]
        away = [abs(r.low - p).max(abs(r.high - p)) for r, p in zip(hidden, pre, strict=True)]
        bent = _sum(_bend(p, r).scaled(w) for w, p, r in zip(self.w, pre, away, strict=True))
        out = _dot(self.w, [_gelu(p) for p in pre]) + self.w0
        swing, slopes = _Range(out - y, out - y) + bent, [[_Range(-s.high, -s.low) for s in row] for row in dy]
        line = _Range(out, out) + bent
        _, means = self._slopes(tokens, weights, alpha)
        for h, q in enumerate(at):
            row = [sum((a * self.A[h][m][n] for m, a in enumerate(alpha)), arb(0)) for n in range(len(self.W))]
            b = [_dot(row, token.z) for token in tokens]
            mean, known = _dot(q, b), _mean_range(weights[h], [_Range(v, v) for v in b])
            swing = swing + _Range(known.low - mean, known.high - mean)
            line = line + _Range(means[h].low - mean, means[h].high - mean)
            for t, token in enumerate(tokens):
                steep = self._steep(row, token.on, len(token.rad))
                slopes[t] = [one + ranges[h][t] * more for one, more in zip(slopes[t], steep, strict=True)]
        moved = sum((_dot([s.size for s in slopes[t]], token.rad) for t, token in enumerate(tokens)), arb(0))
        return (swing.size + moved).min((line - values).size)

    def _token(self, t: int, mid: list[Any], rad: list[Any]) -> _BallToken:
        pre = [sum((w * x for w, x in zip(row, mid, strict=True)), b) for row, b in zip(self.W, self.b[t], strict=True)]
        wide = [sum((abs(w) * r for w, r in zip(row, rad, strict=True)), arb(0)) for row in self.W]
        on = [(int(bool(p - r > 0)), int(not bool(p + r <= 0))) for p, r in zip(pre, wide, strict=True)]
        z = [arb(p).nonnegative_part() for p in pre]
        score, worth, ds = [], [], []
        for h in range(len(self.S)):
            ds.append(self._steep(self.S[h], on, len(mid)))
            score.append((_dot(self.S[h], z) + self.s0[h], ds[h], rad))
            worth.append(
                [
                    (_dot(row, z) + a, self._steep(row, on, len(mid)), rad)
                    for row, a in zip(self.A[h], self.a0[h], strict=True)
                ]
            )
        return _BallToken(z, on, [_spread(*s) for s in score], [[_spread(*v) for v in row] for row in worth], ds, rad)

    def _steep(self, row: list[Any], on: list[tuple[int, int]], d: int) -> list[_Range]:
        """The slopes of <row, z> by every coordinate."""
        slopes = []
        for j in range(d):
            low = high = arb(0)
            for a, w, (least, most) in zip(row, self.W, on, strict=True):
                one, two = a * w[j] * least, a * w[j] * most
                low, high = low + one.min(two), high + one.max(two)
            slopes.append(_Range(low, high))
        return slopes

    def _middle(self, tokens: list[_BallToken]) -> tuple[Any, list[Any]]:
        """Output and hidden units in the middle of the box."""
        pre = list(self.c)
        for h in range(len(self.S)):
            scores = [_dot(self.S[h], token.z) for token in tokens]
            top = max(float(s.mid()) for s in scores)
            e = [(s - arb(top)).exp() for s in scores]
            total = sum(e, arb(0))
            mean = [
                sum((w * token.z[n] for w, token in zip(e, tokens, strict=True)), arb(0)) / total
                for n in range(len(self.W))
            ]
            pre = [p + _dot(row, mean) + a for p, row, a in zip(pre, self.A[h], self.a0[h], strict=True)]
        return _dot(self.w, [_gelu(p) for p in pre]) + self.w0, pre

    def _slopes(
        self, tokens: list[_BallToken], weights: list[Any], alpha: list[Any]
    ) -> tuple[list[list[_Range]], list[_Range]]:
        """Slopes of sum_k alpha_k D_k by every coordinate of every token, and the range of each head's mean."""
        d, means = len(tokens[0].rad), []
        slopes = [[_Range(arb(0), arb(0)) for _ in range(d)] for _ in tokens]
        for h in range(len(self.S)):
            row = [sum((a * self.A[h][m][n] for m, a in enumerate(alpha)), arb(0)) for n in range(len(self.W))]
            steep = [self._steep(row, token.on, d) for token in tokens]
            numbers = [_spread(_dot(row, token.z), s, token.rad) for token, s in zip(tokens, steep, strict=True)]
            means.append(mean := _mean_range(weights[h], numbers))
            ranges = _weight_ranges(weights[h])
            for t, token in enumerate(tokens):
                apart = numbers[t] - mean
                for j in range(d):
                    slopes[t][j] = slopes[t][j] + ranges[t] * (steep[t][j] + token.ds[h][j] * apart)
        return slopes, means

    def _target(self, lo: Any, hi: Any, mid: Any) -> tuple[_Range, Any, list[list[_Range]]]:
        """Range of the target, its value in the middle, and its slopes."""
        T, d = len(lo), len(lo[0])
        along = _linear(self.outer)
        value, ranges = arb(0), _Range(arb(0), arb(0))
        slopes = [[_Range(arb(0), arb(0)) for _ in range(d)] for _ in range(T)]
        for factor, look in zip(along, self.statistics, strict=True):
            ends = {t: _quadratic_range(look, lo[t], hi[t]) for t in look.places}
            at = sorted((_quadratic(look, mid[t]) for t in look.places), key=lambda v: float(v.mid()))
            z = _Range(
                _kth([e.low for e in ends.values()], look.rank), _kth([e.high for e in ends.values()], look.rank)
            )
            value += factor * _kth(at, look.rank)
            ranges = ranges + z.scaled(factor)
            can = [t for t, e in ends.items() if not (e.low > z.high) and not (e.high < z.low)]
            for t in can:
                for j in range(d):
                    bent = 2 * arb(look.curve)
                    s = _Range(*(bent * (arb(x[t][j]) - arb(look.vertex[j])) + arb(look.line[j]) for x in (lo, hi)))
                    s = s if len(can) == 1 else _Range(s.low.min(arb(0)), s.high.max(arb(0)))
                    slopes[t][j] = slopes[t][j] + s.scaled(factor)
        return ranges, value, slopes


@dataclass(frozen=True)
class _BallToken:
    """A token of a box: its units in the middle, which of them are on, and the ranges of scores and values."""

    z: list[Any]
    on: list[tuple[int, int]]
    score: list[_Range]
    worth: list[list[_Range]]
    ds: list[list[_Range]]
    rad: list[Any]


def _dot(one: Any, two: Any) -> Any:
    return sum((a * b for a, b in zip(one, two, strict=True)), arb(0))


def _spread(value: Any, slopes: list[_Range], rad: list[Any]) -> _Range:
    return _Range.around(value, sum((s.size * r for s, r in zip(slopes, rad, strict=True)), arb(0)))


def _weights(scores: list[_Range]) -> list[tuple[Any, Any]]:
    """The least and largest exp(score) of every token, up to a common factor."""
    top = max(float(s.high.mid()) for s in scores)
    return [((s.low - arb(top)).exp(), (s.high - arb(top)).exp()) for s in scores]


def _weight_ranges(weights: list[tuple[Any, Any]]) -> list[_Range]:
    """The range of every softmax weight."""
    ranges = []
    for t, (least, most) in enumerate(weights):
        others = [w for s, w in enumerate(weights) if s != t]
        low = least / (least + sum((w[1] for w in others), arb(0)))
        ranges.append(_Range(low, most / (most + sum((w[0] for w in others), arb(0)))))
    return ranges


def _middle_weights(ranges: list[_Range]) -> list[Any]:
    """Weights in the middle of their ranges that sum to one: the last makes up for the others."""
    low, high = [float(s.low.mid()) for s in ranges], [float(s.high.mid()) for s in ranges]
    slack = sum(high) - sum(low)
    part = (1 - sum(low)) / slack if slack > 0 else 0.0
    first = [arb(a + min(1.0, max(0.0, part)) * (b - a)) for a, b in zip(low[:-1], high[:-1], strict=True)]
    return [*first, 1 - sum(first, arb(0))]


def _mean_range(weights: list[tuple[Any, Any]], values: list[_Range]) -> _Range:
    """The range of a softmax mean: candidates at vertices, and a proof that nothing lies beyond the best of them."""
    high = _mean_top(weights, [v.high for v in values])
    low = _mean_top(weights, [-v.low for v in values])
    return _Range(-low, high)


def _mean_top(weights: list[tuple[Any, Any]], values: list[Any]) -> Any:
    order = sorted(range(len(values)), key=lambda t: -float(values[t].mid()))
    means = []
    for k in range(1, len(order) + 1):
        chosen = [weights[t][1] if place < k else weights[t][0] for place, t in enumerate(order)]
        means.append(_dot(chosen, [values[t] for t in order]) / sum(chosen, arb(0)))
    best = reduce(arb.max, means)
    reach = arb(float(best.upper())) + arb(2) ** (10 - PRECISION // 2) * (1 + abs(best))
    # A bound, if no weights between the ends have a mean above it: sum_t w_t (v_t - reach) <= 0 for all of them.
    worst = sum(
        ((v - reach) * (w[1] if not (v < reach) else w[0]) for w, v in zip(weights, values, strict=True)), arb(0)
    )
    return reach if worst <= 0 else reduce(arb.max, values)


def _kth(values: list[Any], rank: int) -> Any:
    """A ball around the rank-th smallest: by exchanges, each of which encloses the smaller and the larger of two."""
    smallest, *left = values
    for number in range(rank):
        if number:
            smallest, *left = left
        for k, v in enumerate(left):
            left[k], smallest = smallest.max(v), smallest.min(v)
    return smallest


def _linear(outer: Ridges) -> list[Any]:
    """dF/dz_i of a sum of linear ridges."""
    return [
        sum((arb(g.scale) * arb(u[i]) for u, g in zip(outer.directions, outer.profiles, strict=True)), arb(0))  # type: ignore[attr-defined]
        for i in range(outer.arguments)
    ]


def _quadratic(look: OrderStatistic, x: list[Any]) -> Any:
    square = sum(((v - arb(c)) ** 2 for v, c in zip(x, look.vertex, strict=True)), arb(0))
    return arb(look.curve) * square + _dot(_row(look.line), x)


def _quadratic_range(look: OrderStatistic, lo: list[float], hi: list[float]) -> _Range:
    low = high = arb(0)
    for a, b, c, l in zip(lo, hi, look.vertex, look.line, strict=True):
        ends = [(arb(v) - arb(c)) ** 2 for v in (a, b)]
        near = arb(0) if a <= c <= b else ends[0].min(ends[1])
        line = [arb(l) * arb(v) for v in (a, b)]
        low, high = (
            low + arb(look.curve) * near + line[0].min(line[1]),
            high + arb(look.curve) * ends[0].max(ends[1]) + line[0].max(line[1]),
        )
    return _Range(low, high)


def _gelu(x: Any) -> Any:
    return x * (1 + (x / arb(2).sqrt()).erf()) / 2


def _gelu_slope(x: Any) -> Any:
    return (1 + (x / arb(2).sqrt()).erf()) / 2 + x * (-x * x / 2).exp() / (2 * arb.pi()).sqrt()


def _gelu_range(r: _Range) -> _Range:
    """It falls to its least value, above -0.17 at -0.7517916, and rises from there."""
    ends = [_gelu(r.low), _gelu(r.high)]
    turns = not (r.low > -0.751) and not (r.high < -0.752)
    return _Range(arb("-0.1699713") if turns else ends[0].min(ends[1]), ends[0].max(ends[1]))


def _bend(x: Any, r: Any) -> _Range:
    """gelu'' lies between -0.107982 (at -2 and 2) and 0.797885 (at 0), and gelu' between -0.12891 and 1.12891."""
    low, high, slope = x - r, x + r, _gelu_slope(x)
    curve = [(2 - v * v) * (-v * v / 2).exp() / (2 * arb.pi()).sqrt() for v in (low, high)]
    most, least = reduce(arb.max, curve, arb(0)), reduce(arb.min, curve, arb(0))
    if not (low > 0) and not (high < 0):
        most = most.max(arb("0.797885"))
    if any(not (low > v) and not (high < v) for v in (-2, 2)):
        least = least.min(arb("-0.107982"))
    swing = r * (arb("1.128905") - slope).max(slope + arb("0.128905"))
    return _Range((least * r * r / 2).max(-swing), (most * r * r / 2).min(swing))
