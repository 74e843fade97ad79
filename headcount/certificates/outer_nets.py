"""Outer functions as ReLU networks with rigorous errors: sums of ridges, and whatever has a Lipschitz constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch
from torch import Tensor

from headcount.certificates.network import ReluNet, refuse_too_large
from headcount.certificates.relu import interpolant, interpolation_error, pieces_for
from headcount.certificates.rounding import KnownBounds
from headcount.sources import Source, implements
from headcount.tasks.lookups import LipschitzOuter
from headcount.tasks.ridges import Ridges

Ranges = Sequence[tuple[float, float]]
MOST_POINTS = 2048  # of a grid
McSHANE = Source("headcount", "Lipschitz functions as a maximum of cones (McShane)")


class OuterNet:
    """A ReLU network of D numbers in the ranges given, and how far it is from the outer function there."""

    def __init__(self, maps: list[tuple[Tensor, Tensor]], error: float, why: str, ranges: Ranges) -> None:
        sizes = (maps[0][0].shape[1], *(len(bias) for _, bias in maps))
        self.net = ReluNet(sizes).fill(*maps).requires_grad_(False)
        self.error, self.why = error, why
        largest = np.array([max(abs(low), abs(high)) for low, high in ranges])
        self.rounding = float(KnownBounds(largest, np.zeros_like(largest)).through(self.net).error[0])


def ridge_net(outer: Ridges, ranges: Ranges, error: float) -> OuterNet:
    """Every ridge g_j(<u_j, z>) as its interpolant over the ranges, all together within the error."""
    wide = [_interval(u, ranges) for u in outer.directions]
    curved = sum(g.curvature(*iv) > 0 for g, iv in zip(outer.profiles, wide, strict=True)) or 1
    pieces = [pieces_for(error / curved, g.curvature(*iv), *iv) for g, iv in zip(outer.profiles, wide, strict=True)]
    refuse_too_large(sum(pieces) * (outer.arguments + 2), "this outer function", at_most=1e7)
    rows, knots, weights, constant, reached = [], [], [], 0.0, 0.0
    for u, g, (low, high), count in zip(outer.directions, outer.profiles, wide, pieces, strict=True):
        part = interpolant(g, low, high, count)
        rows.append(torch.tensor(u, dtype=torch.float64).expand(count, -1))
        knots.append(part.knots)
        weights.append(part.weights)
        constant += part.offset
        reached += interpolation_error(g.curvature(low, high), low, high, count)
    bias = torch.tensor([constant], dtype=torch.float64)
    maps = [(torch.cat(rows), -torch.cat(knots)), (torch.cat(weights)[None], bias)]
    return OuterNet(maps, reached, f"ridges on {sum(pieces)} pieces: |g''| h^2/8", ranges)


@implements(
    McSHANE,
    test="tests/test_tasks_own.py::test_a_lipschitz_outer_function_stays_within_its_error_and_comes_near_it",
    status="proved here",
    hypotheses=("|F(z) - F(w)| <= L |z - w|_1",),
)
def lipschitz_net(outer: LipschitzOuter, ranges: Ranges, error: float) -> OuterNet:
    """G(z) = max_k (F(z_k) - L |z - z_k|_1) + L r, over a grid that leaves nothing farther than r from a point.

    |G - F| <= L r: without the shift G <= F, for F falls no faster than its cones, and the cone of the nearest point
    gives F(z_k) - L r >= F(z) - 2 L r. G moves no faster than F may.
    Source: E. J. McShane 1934, the extension of Lipschitz functions; the maximum is a tree of max(a, b) =
    relu(a - b) + relu(b) - relu(-b).
    """
    L, D = outer.constant, outer.arguments
    counts = [max(1, math.ceil(L * D * (high - low) / (2 * error))) for low, high in ranges]
    if math.prod(counts) > MOST_POINTS:
        fits = error * (math.prod(counts) / MOST_POINTS) ** (1 / D)
        raise ValueError(
            f"a Lipschitz outer function of {D} numbers would take {math.prod(counts):.2g} grid points, more than "
            f"{MOST_POINTS}; an eps about {1.1 * fits / error:.2g} times as large would do, or a sum of ridges"
        )
    cut = list(zip(ranges, counts, strict=True))
    axes = [low + (high - low) * (torch.arange(n).double() + 0.5) / n for (low, high), n in cut]
    r = math.fsum((high - low) / (2 * n) for (low, high), n in cut)
    return OuterNet(_cones(outer, axes, r), L * r, f"{math.prod(counts)} cones of slope {L:g}, {r:.3g} apart", ranges)


def _cones(outer: LipschitzOuter, axes: list[Tensor], r: float) -> list[tuple[Tensor, Tensor]]:
    """The maps of the network: distances along each axis, the cones, and a tree of maxima."""
    D, width = len(axes), 2 * sum(map(len, axes))
    inner, bias = torch.zeros(width, D, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    starts, at = [], 0
    for i, axis in enumerate(axes):
        starts.append(at)
        for sign in (1.0, -1.0):
            units = slice(at, at + len(axis))
            inner[units, i], bias[units] = sign, -sign * axis
            at += len(axis)
    places = list(product(*(range(len(axis)) for axis in axes)))
    points = torch.stack([torch.stack([axes[i][p] for i, p in enumerate(place)]) for place in places])
    cone = torch.zeros(len(places), width, dtype=torch.float64)
    for k, place in enumerate(places):
        for i, p in enumerate(place):
            cone[k, [starts[i] + p, starts[i] + len(axes[i]) + p]] = -outer.constant
    top = outer(points).double() + outer.constant * r
    return [(inner, bias), *_maximum(cone, top)]


def _maximum(weight: Tensor, bias: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The maps after a linear map of K rows that give the largest of them."""
    maps = []
    while len(bias) > 1:
        K = len(bias)
        pairs = torch.zeros(3 * (K // 2) + 2 * (K % 2), K, dtype=torch.float64)
        join = torch.zeros((K + 1) // 2, len(pairs), dtype=torch.float64)
        for j in range(K // 2):
            pairs[3 * j, [2 * j, 2 * j + 1]] = torch.tensor([1.0, -1.0], dtype=torch.float64)
            pairs[3 * j + 1, 2 * j + 1], pairs[3 * j + 2, 2 * j + 1] = 1.0, -1.0
            join[j, 3 * j : 3 * j + 3] = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
        if K % 2:
            pairs[-2, K - 1], pairs[-1, K - 1] = 1.0, -1.0
            join[-1, -2:] = torch.tensor([1.0, -1.0], dtype=torch.float64)
        maps.append((pairs @ weight, pairs @ bias))
        weight, bias = join, torch.zeros(len(join), dtype=torch.float64)
    return [*maps, (weight, bias)]


def _interval(u: Sequence[float], ranges: Ranges) -> tuple[float, float]:
    """The range of <u, z>; a point is given some width."""
    low = math.fsum(min(a * low, a * high) for a, (low, high) in zip(u, ranges, strict=True))
    high = math.fsum(max(a * low, a * high) for a, (low, high) in zip(u, ranges, strict=True))
    return low, max(high, low + 1e-9)
