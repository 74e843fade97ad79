"""Sequences with equal means told apart: one neuron a layer, until all means differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headcount.papers.hardmax.hat_layers import Draft
from headcount.papers.hardmax.leaders import mean_error
from headcount.papers.hardmax.token_measures import Array, TokenData, identities

DRAWS, TRIES = 200, 20
ROOM = 64  # roundings of a mean that two means must be apart: a hat needs a quarter of their gap along its key


def separate(draft: Draft, data: TokenData, rng: np.random.Generator) -> int:
    """Layers z <- z + w relu(u.z - t), w orthogonal to u, until no two means are equal; how many there were.

    Such a layer is injective, so what differs stays different; one exists that splits two given measures, and each
    refines the partition by means, so that N - 1 are enough.
    """
    layers = 0
    while (classes := identities(data.means(draft.points), _resolved(draft, data))).max() + 1 < data.count:
        _layer(draft, data, classes, rng)
        layers += 1
    return layers


def _resolved(draft: Draft, data: TokenData) -> float:
    """How far apart two means must lie for every evaluation in float64 to have them apart."""
    return ROOM * float(mean_error(draft, data).max())


def _layer(draft: Draft, data: TokenData, classes: NDArray[np.int64], rng: np.random.Generator) -> None:
    """The best of some hundred draws: it splits a class, joins none, and means end up farthest apart."""
    first, second = _equal_pair(classes)
    best, chosen, near = 0.0, None, _resolved(draft, data)
    for i in range(DRAWS * TRIES):
        if i >= DRAWS and chosen is not None:
            break
        u, t, w = _draw(draft.points, rng)
        moved = draft.points + np.maximum(draft.points @ u - t, 0.0)[:, None] * w
        score = _score(data.means(moved), classes, first, second, 4 * near)
        if score > best:
            best, chosen = score, (u, t, w)
    if chosen is None:
        i, j = data.kept[first], data.kept[second]
        apart = float(np.linalg.norm(np.subtract(*data.means(draft.points)[[first, second]])))
        raise ValueError(
            f"sequences {i} and {j} differ too little for their length: their means lie {apart:.1e} apart, float64 "
            f"resolves {near:.1e} there, and {DRAWS * TRIES} draws of a layer did not split them"
        )
    u, t, w = chosen
    draft.feed(u[None], np.array([-t]), w[:, None])


def _equal_pair(classes: NDArray[np.int64]) -> tuple[int, int]:
    shared = int(np.flatnonzero(np.bincount(classes) > 1)[0])
    first, second, *_ = np.flatnonzero(classes == shared)
    return int(first), int(second)


def _draw(tokens: Array, rng: np.random.Generator) -> tuple[Array, float, Array]:
    u = rng.standard_normal(tokens.shape[1])
    u /= np.linalg.norm(u)
    w = rng.standard_normal(tokens.shape[1])
    w -= (w @ u) * u
    w -= (w @ u) * u
    along = tokens @ u
    t = along[rng.integers(len(tokens))] + 0.1 * rng.standard_normal() * np.ptp(along)
    return u, float(t), w / np.linalg.norm(w)


def _score(means: Array, classes: NDArray[np.int64], first: int, second: int, near: float) -> float:
    """The smallest distance of means that were or are now apart, by size; 0 where the pair stays or a class joins."""
    scale = float(np.linalg.norm(means, axis=1).max()) or 1.0
    split = float(np.linalg.norm(means[first] - means[second]))
    if split <= near:
        return 0.0
    split, names = split / scale, identities(means, near)
    order = {(a, b) for a, b in zip(names.tolist(), classes.tolist(), strict=True)}
    if len(order) != names.max() + 1:  # some new class holds two old ones
        return 0.0
    return float(names.max()) + min(split, _nearest(means[np.unique(names, return_index=True)[1]]) / scale)


def _nearest(points: Array) -> float:
    from scipy.spatial import KDTree

    return float(KDTree(points).query(points, k=2)[0][:, 1].min()) if len(points) > 1 else np.inf
