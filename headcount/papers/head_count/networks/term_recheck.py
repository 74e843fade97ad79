"""The independent checker, second half: every term of Theorem 2(1) again, from the stored weights and the task alone.

Needs the `certify` extra (python-flint). Nothing of the plan that built the network is used: the interpolants are
read off the weights, knot by knot, and compared with the task's own features and outer function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from flint import arb, ctx

from headcount.certificates.built import Built
from headcount.certificates.domains import Box
from headcount.certificates.enclosure import PRECISION, BallProfile
from headcount.certificates.network import ClassTokenNet
from headcount.tasks import LinearMax, Ridges, Wells


@dataclass(frozen=True)
class Rechecked:
    """A term as claimed, and as recomputed in ball arithmetic (a rigorous upper bound)."""

    name: str
    claimed: float
    recomputed: float
    holds: bool


@dataclass(frozen=True)
class Hinged:
    """A function of one variable read off the weights: sum_k weights_k relu(s - knots_k), on [low, high]."""

    knots: list[Any]
    weights: list[Any]
    low: Any
    high: Any

    def pieces(self) -> list[tuple[Any, Any, Any, Any]]:
        """(from, to, value, slope) on every piece: value + slope (s - from)."""
        order = sorted(range(len(self.knots)), key=lambda k: float(self.knots[k].mid()))
        cuts = [self.low] + [self.knots[k] for k in order if self.low < self.knots[k] < self.high] + [self.high]
        active = [k for k in order if not self.low < self.knots[k]]
        later = [k for k in order if self.low < self.knots[k] < self.high]
        slope = sum((self.weights[k] for k in active), arb(0))
        value = sum((self.weights[k] * (self.low - self.knots[k]) for k in active), arb(0))
        linear_pieces = []
        for step, (a, b) in enumerate(pairwise(cuts)):
            linear_pieces.append((a, b, value, slope))
            value = value + slope * (b - a)
            if step < len(later):
                slope = slope + self.weights[later[step]]
        return linear_pieces


def recheck(built: Built) -> list[Rechecked]:
    """Recompute every term of an `enough_heads` certificate from the weights; the last row is their sum.

    The stored weights are themselves rounded, so a term may exceed its claim by what the rounding term grants.
    """
    net = built.net
    if not (
        isinstance(net, ClassTokenNet)
        and isinstance(built.domain, Box)
        and "Theorem 2(1)" in str(built.certificate.source)
    ):
        raise ValueError("terms are rechecked for networks of enough_heads; enclose() takes any one-layer network")
    with ctx.workprec(PRECISION):
        return _Reading(built, net, built.domain).rows()


class _Reading:
    """The parts of the proof, read off a network."""

    def __init__(self, built: Built, net: ClassTokenNet, box: Box) -> None:
        self.built, self.net, self.box = built, net, box
        self.quadratics, self.outer, self.windows = _stated(built.task, box)
        self.ranges = [self._feature(i) for i in range(len(self.quadratics))]

    def rows(self) -> list[Rechecked]:
        low = _extreme([r[2] for r in self.ranges], -1)
        high = _extreme([r[3] for r in self.ranges], 1)
        slopes = self._slopes(low, high)
        terms = {
            "features": _dot(slopes, [r[0].max(r[1]) for r in self.ranges]),
            "softmax excess": _dot(slopes, [self._excess(len(w)) for w in self.windows]),
            "mass outside the window": _dot(slopes, [self._outside(i) for i in range(len(self.windows))]),
            "outer function": self._outer_error(low, high),
        }
        certificate, slack = self.built.certificate, arb(self.built.certificate["rounding"].value)
        rows = [_compared(name, certificate[name].value, value, slack) for name, value in terms.items()]
        total = sum(terms.values(), arb(0)) + slack
        return [*rows, _compared("sum, with the rounding claimed", certificate.error, total, slack)]

    def _hinged(self, row: int, column: int) -> Hinged:
        (w1, b1), (w2, _) = self.net.encoder.weights
        units = torch.nonzero(w1[:, column]).flatten().tolist()
        if any(float(w1[k, column]) != 1.0 for k in units) or any(torch.count_nonzero(w1[k]) != 1 for k in units):
            raise ValueError("the encoder is not one that enough_heads makes: a unit reads more than one input")
        ends = (self.box.low, self.box.high) if column < self.box.token_dim else (1.0, float(self.box.length))
        knots, weights = [arb(-float(b1[k])) for k in units], [arb(float(w2[row, k])) for k in units]
        return Hinged(knots, weights, arb(ends[0]), arb(ends[1]))

    def _feature(self, i: int) -> tuple[Any, Any, Any, Any]:
        """(largest Psi - f, largest f - Psi, least Psi, largest Psi) over the box."""
        square, lines, constant = self.quadratics[i]
        bias = arb(float(self.net.encoder.weights[1][1][2 * i]))
        above = bias - constant
        sums = [above, -above, bias, bias]
        for j, line in enumerate(lines):
            part = _against_quadratic(self._hinged(2 * i, j), square, line)
            sums = [s + p for s, p in zip(sums, part, strict=True)]
        return sums[0], sums[1], sums[2], sums[3]

    def _slopes(self, low: Any, high: Any) -> list[Any]:
        steep = [
            BallProfile(g).steepest(*iv)
            for g, iv in zip(self.outer.profiles, _along(self.outer, low, high), strict=True)
        ]
        return [
            sum((abs(arb(u[i])) * s for u, s in zip(self.outer.directions, steep, strict=True)), arb(0))
            for i in range(self.outer.arguments)
        ]

    def _excess(self, inside: int) -> Any:
        beta = arb(self.net.shape.betas[0])
        return (arb(inside - 1) / arb(1).exp()).lambertw() / beta if inside > 1 else arb(0)

    def _outside(self, i: int) -> Any:
        """spread_i times the weight outside S_i, with the gate as the encoder gives it at every position."""
        _, _, low, high = self.ranges[i]
        gates = self._gates(i)
        window = set(self.windows[i])
        if any(not (abs(g) <= arb(1e-12)) for t, g in enumerate(gates) if t in window):
            raise ValueError(f"gate {i} is not zero inside its window")
        off = [-g for t, g in enumerate(gates) if t not in window]
        if not off:
            return arb(0)
        beta, spread = arb(self.net.shape.betas[0]), high - low
        ratio = sum(((-beta * (g - spread)).exp() for g in off), arb(0)) / len(window)
        return spread * ratio / (1 + ratio)

    def _gates(self, i: int) -> list[Any]:
        hinged = self._hinged(2 * i + 1, self.box.token_dim)
        bias = arb(float(self.net.encoder.weights[1][1][2 * i + 1]))
        pairs = list(zip(hinged.knots, hinged.weights, strict=True))
        return [
            bias + sum((w * (arb(t) - k).nonnegative_part() for k, w in pairs), arb(0))
            for t in range(1, self.box.length + 1)
        ]

    def _outer_error(self, low: Any, high: Any) -> Any:
        """Every ridge against its interpolant, piece by piece: what the ends miss, and |g''| h^2/8 between them."""
        (_, b), (v, v0) = self.net.read_out.weights
        constant, total = arb(float(v0[0])), arb(0)
        taken = 0
        for along, g, (a, z) in zip(
            self.outer.directions, self.outer.profiles, _along(self.outer, low, high), strict=True
        ):
            count = self._units_along(taken, along)
            units = range(taken, taken + count)
            hinged = Hinged([arb(-float(b[k])) for k in units], [arb(float(v[0, k])) for k in units], a, z)
            first = hinged.knots[0]
            constant = constant - BallProfile(g)(first)
            total = total + _against_profile(hinged, BallProfile(g), BallProfile(g)(first))
            taken += count
        return total + abs(constant - _constant(self.built.task, self.box))

    def _units_along(self, start: int, along: tuple[float, ...]) -> int:
        """How many hidden units from `start` on read this direction with rising knots."""
        (u, b), _ = self.net.read_out.weights
        want = torch.tensor(along, dtype=torch.float64)
        count = 0
        while start + count < len(u) and torch.equal(u[start + count, ::2], want):
            if count and not -b[start + count] > -b[start + count - 1]:
                break
            count += 1
        if count == 0 or torch.count_nonzero(u[start : start + count, 1::2]):
            raise ValueError("the read-out is not one that enough_heads makes")
        return count


def _stated(task: Any, box: Box) -> tuple[list[tuple[Any, list[Any], Any]], Ridges, tuple[tuple[int, ...], ...]]:
    """Each feature as (square, lines, constant), with F_0 and the windows, from the task's own fields."""
    if isinstance(task, Wells):
        assert task.combine is not None
        assert task.windows is not None
        d = arb(task.token_dim)
        parts = [
            (1 / d, [-2 * arb(c) / d for c in centre], sum((arb(c) ** 2 for c in centre), arb(0)) / d)
            for centre in task.centres
        ]
        return parts, task.combine, tuple(tuple(w) for w in task.windows)
    assert isinstance(task, LinearMax)
    R = arb(box.high)
    sizes = [sum((abs(arb(v)) for v in a), arb(0)) for a in task.directions]
    parts = [
        (arb(0), [-arb(v) / (2 * R * s) for v in a], arb(1) / 2) for a, s in zip(task.directions, sizes, strict=True)
    ]
    # The outer slopes as floats; what their rounding moves is within the rounding term.
    from headcount.papers.head_count.networks.minima import minima_of

    return parts, minima_of(task, box.high).outer, (tuple(range(task.length)),) * len(sizes)


def _constant(task: Any, box: Box) -> Any:
    if isinstance(task, Wells):
        return arb(0)
    return arb(box.high) * sum((abs(arb(v)) for a in task.directions for v in a), arb(0))


def _against_quadratic(hinged: Hinged, square: Any, line: Any) -> tuple[Any, Any, Any, Any]:
    """(largest p - q, largest q - p, least p, largest p) for the hinged p and q(s) = square s^2 + line s."""
    above, below, low, high = [], [], [], []
    for a, b, value, slope in hinged.pieces():
        ends = [(a, value), (b, value + slope * (b - a))]
        gaps = [p - (square * s + line) * s for s, p in ends]
        if square > 0:
            top = (slope - line) / (2 * square)  # p - q is concave; its top may lie inside
            if not (top < a or top > b):
                gaps.append(value + slope * (top - a) - (square * top + line) * top)
        above += gaps
        below += [-g for g in gaps[:2]]
        low += [p for _, p in ends]
        high += [p for _, p in ends]
    return _extreme(above, 1), _extreme(below, 1), _extreme(low, -1), _extreme(high, 1)


def _against_profile(hinged: Hinged, g: BallProfile, offset: Any) -> Any:
    worst = arb(0)
    for a, b, value, slope in hinged.pieces():
        ends = abs(offset + value - g(a)).max(abs(offset + value + slope * (b - a) - g(b)))
        worst = worst.max(ends + g.curvature(a, b) * (b - a) ** 2 / 8)
    return worst


def _along(outer: Ridges, low: Any, high: Any) -> list[tuple[Any, Any]]:
    """The range of <u_j, z> for z in [low, high]^D."""
    return [
        (
            sum((arb(a) * (low if a > 0 else high) for a in u), arb(0)),
            sum((arb(a) * (high if a > 0 else low) for a in u), arb(0)),
        )
        for u in outer.directions
    ]


def _extreme(balls: list[Any], sign: int) -> Any:
    return reduce(arb.max if sign > 0 else arb.min, balls)


def _dot(a: list[Any], b: list[Any]) -> Any:
    return sum((x * y for x, y in zip(a, b, strict=True)), arb(0))


def _compared(name: str, claimed: float, value: Any, slack: Any) -> Rechecked:
    return Rechecked(name, claimed, float(value.upper()), bool(value <= arb(claimed) + slack))
