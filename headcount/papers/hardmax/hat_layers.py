"""Points moved one at a time: flat hats whose four neurons cancel exactly, built on where the points really are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from headcount.papers.hardmax.narrow import Attend, Feed, Hats, NarrowStage
from headcount.papers.hardmax.token_measures import SAME, Array, identities

U = 2.0**-53
GRID = 2.0**-10  # thresholds are multiples of this, in units of the slope
LONGEST = 2.0**42  # a key times the slope stays below, so that it is a multiple of less than GRID
DRAWS, ROUNDS = 400, 4


@dataclass
class Draft:
    """A network while it is built: its stages, where every point is now, and how far rounding may have moved it.

    `error[k]` bounds the distance between `points[k]` and where any evaluation in float64 has it, in whatever order
    it adds: a running bound, layer by layer. Both sides of the distance are rounded, so each layer counts twice.
    """

    points: Array
    error: Array
    stages: list[tuple[NarrowStage, torch.nn.Module]] = field(default_factory=list)
    gap: float = math.inf
    key_room: float = 0.0

    @property
    def dim(self) -> int:
        return self.points.shape[1]

    @property
    def norms(self) -> Array:
        return np.linalg.norm(self.points, axis=1)

    def feed(self, weights: Array, bias: Array, out: Array) -> None:
        """Add z <- z + W relu(U z + b) and push the points through it.

        The map has slope 1 + |W||U|; a row of U z + b is off by (d + 2) u (|U||z| + |b|), the sums by as much again.
        """
        inner, outer = np.linalg.norm(weights), np.linalg.norm(out)
        size = inner * self.norms + np.linalg.norm(bias)
        fresh = outer * size * 2 * (self.dim + len(bias) + 4) * U
        self.points = self.points + np.maximum(self.points @ weights.T + bias, 0.0) @ out.T
        self.error = (1 + inner * outer) * self.error + fresh + 2 * U * self.norms
        module = Feed(*(torch.from_numpy(np.ascontiguousarray(p))[None] for p in (weights, bias, out)))
        self.stages.append((NarrowStage("feed", 1, len(bias)), module))

    def attend(self, points: Array, error: Array, rho: float, value: float, product: float) -> None:
        """Add an attention layer, after which the points are these."""
        self.points, self.error = points, error
        even = product == 0.0
        stage = NarrowStage("average" if even else "attend")
        self.stages.append((stage, Attend(rho, value, product, even=even)))

    def hats(self, direction: Array, gap: float, lifts: list[tuple[int, Array]]) -> None:
        """Add for each (k, target) a hat keyed by direction.z that takes point k, and all with its key, to target.

        The component along the direction is left as it is. On a slope 1/q, q a power of two, keys and thresholds are
        multiples of one small number and a key above its thresholds keeps its bits, so that the four neurons give
        exactly 1 on the flat top (within a quarter of the gap) and 0 beyond three quarters of it.
        """
        slope = 2.0 ** math.floor(math.log2(0.499 * gap))
        keys, thresholds, moves = [], [], []
        for k, target in lifts:
            move = target - self.points[k]
            key, edge = self._hat(direction, gap, slope, k, move)
            keys.append(key)
            thresholds.append(edge)
            moves.append(move)
        numbers = (torch.from_numpy(np.array(part)) for part in (keys, thresholds, moves))
        self.stages.append((NarrowStage("hats", len(lifts)), Hats(*numbers)))
        self.gap = min(self.gap, gap)

    def _hat(self, direction: Array, gap: float, slope: float, k: int, move: Array) -> tuple[Array, Array]:
        at = float(self.points[k] @ direction)
        key = math.copysign(1.0, at) * direction  # away from the origin: thresholds are positive, keys above lose bits
        along = self.points @ key
        middle, flat = _short(abs(at) / slope), _short((gap - slope) / (2 * slope))
        edge = np.array([middle - flat - 1, middle - flat, middle + flat, middle + flat + 1])
        size, length = self.norms, float(np.linalg.norm(move))
        blur = self.error + 2 * (self.dim + 2) * U * size
        apart = np.abs(along - slope * middle)
        on, off = apart + blur <= slope * flat, apart - blur >= slope * (flat + 1)
        if not (on | off).all() or not on[k] or np.abs(along).max() >= LONGEST * slope:
            raise ValueError(
                f"keys {gap:.1e} apart are too close for float64 beside tokens of {size.max():.1e}: scale the data, "
                f"or draw other directions with another seed"
            )
        self.key_room = max(self.key_room, float(blur.max()) / (0.25 * gap))
        noise = 0.0 if edge[0] >= 0 else 4 * U * float(np.abs(along).max() / slope + 2) * length
        self.points = self.points + on[:, None] * move
        self.error = self.error + np.where(on, U * (2 * length + 2 * self.norms), 0.0) + noise
        return key / slope, edge


def move(draft: Draft, targets: Array, rng: np.random.Generator) -> None:
    """Take every point to its target: n hats keyed by a, one layer that forgets a, a hat for each distinct target.

    1. a hat for each point adds the part of y - p orthogonal to a, so that keys stay; 2. two neurons take away the
    a-component; 3. keyed by c, orthogonal to a, each distinct target gets its own a-component back.
    """
    names = identities(targets)
    firsts = [int(np.flatnonzero(names == k)[0]) for k in range(names.max() + 1)]
    a, c, gap_a, gap_c = split_directions(draft.points, targets[firsts], rng)
    wanted = targets - np.outer((targets - draft.points) @ a, a)
    draft.hats(a, gap_a, list(enumerate(wanted)))
    draft.feed(np.stack([a, -a]), np.zeros(2), np.stack([-a, a], axis=1))
    draft.hats(c, gap_c, [(k, targets[k]) for k in firsts])


def split_directions(points: Array, targets: Array, rng: np.random.Generator) -> tuple[Array, Array, float, float]:
    """Unit a, and c orthogonal to it: points apart along a, targets along c, the smaller gap (by scale) the largest.

    Random draws, then draws around the best one; the origin counts as a point to keep away from, where none lies there.
    """
    sizes = [largest(points), largest(targets)]
    best, split = -1.0, None
    centre, spread = np.zeros(points.shape[1]), 1.0
    for _ in range(ROUNDS):
        a = units(centre + spread * rng.standard_normal((DRAWS, len(centre))))
        c = rng.standard_normal(a.shape)
        c = units(c - (c * a).sum(1, keepdims=True) * a)
        c = c - (c * a).sum(1, keepdims=True) * a  # again: orthogonal to the last digit
        gaps = np.stack([apart(points, a), apart(targets, c)])
        score = (gaps / np.array(sizes)[:, None]).min(axis=0)
        k = int(score.argmax())
        if score[k] > best:
            best, split = float(score[k]), (a[k], c[k], float(gaps[0, k]), float(gaps[1, k]))
        assert split is not None
        centre, spread = split[0], 0.3 * spread if spread < 1 else 0.1
    assert split is not None
    if best <= SAME * 1e-3:
        raise ValueError(f"no direction keeps the points apart: best gap {best:.1e} of their size")
    return split


def apart(points: Array, directions: Array) -> Array:
    """The smallest gap of the points along each direction, the origin among them unless one lies there.

    >>> apart(np.array([[1.0, 0.0], [3.0, 1.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 0.0]
    """
    sizes = np.linalg.norm(points, axis=1)
    if len(points) == 1:
        return np.minimum(2 * largest(points), np.where(sizes > 0, np.abs(directions @ points[0]), np.inf))
    clear = sizes.min() > SAME * sizes.max()
    rows = np.vstack([points, np.zeros(points.shape[1])]) if clear else points
    step = max(1, 4_000_000 // len(rows))
    parts = [directions[i : i + step] for i in range(0, len(directions), step)]
    return np.concatenate([np.diff(np.sort(part @ rows.T, axis=1), axis=1).min(axis=1) for part in parts])


def largest(points: Array) -> float:
    return float(np.linalg.norm(points, axis=1).max()) or 1.0


def units(rows: Array) -> Array:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _short(value: float) -> float:
    return round(value / GRID) * GRID
