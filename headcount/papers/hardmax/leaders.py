"""Sets of outputs: leaders among the tokens, lifted to one sphere, and everyone else collapsed onto them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headcount.papers.hardmax.hat_layers import DRAWS, Draft, U, apart, largest, units
from headcount.papers.hardmax.narrow import TOLERANCE
from headcount.papers.hardmax.token_measures import SAME, Array, TokenData

SAFE = 100 * TOLERANCE  # a margin below this is refused
KAPPAS = 8


@dataclass(frozen=True)
class Collapse:
    """Which tokens lead, sequence by sequence, and by how much the leader a token follows wins over the next."""

    leaders: tuple[int, ...]
    margin: float


def collapse_on_leaders(draft: Draft, data: TokenData, rng: np.random.Generator) -> Collapse:
    """Tag tokens by their sequence's mean, shift, lift one leader an output to radius R, and follow the leaders.

    At equal radius a leader's largest product is with itself, by Cauchy and Schwarz; any other token's is with some
    leader, for it is more than twice every product with a token that was not lifted.
    """
    _tag(draft, data, rng)
    c, a, gap = _directions(draft.points, rng)
    draft.feed(np.zeros((1, draft.dim)), np.ones(1), 3 * largest(draft.points) * a[:, None])
    along, radius = draft.points @ c, 3 * largest(draft.points)
    leaders = [k for j in range(data.count) for k in _chosen(data, j, along)]
    lifted = [(k, along[k] * c + np.sqrt(radius**2 - along[k] ** 2) * a) for k in leaders]
    draft.hats(c, gap, lifted)
    margin = _follow(draft, data)
    return Collapse(tuple(leaders), margin)


def _tag(draft: Draft, data: TokenData, rng: np.random.Generator) -> None:
    """z <- z + kappa mean, kappa the draw after which distinct tokens are farthest apart."""
    from scipy.spatial import KDTree

    means = data.means(draft.points)[data.owner]
    best, kappa = 0.0, 0.0
    for draw in rng.uniform(0.5, 2.0, KAPPAS):
        tagged = draft.points + draw * means
        nearest = KDTree(tagged).query(tagged, k=2)[0][:, 1].min() if len(tagged) > 1 else np.inf
        if nearest > best:
            best, kappa = float(nearest), float(draw)
    if best <= 16 * float(mean_error(draft, data).max()):
        raise ValueError("tokens of two sequences meet whatever they are tagged with; draw again with another seed")
    error = draft.error + kappa * mean_error(draft, data)[data.owner]
    points = draft.points + kappa * means
    error = error + 6 * U * (np.linalg.norm(points, axis=1) + kappa * np.linalg.norm(means, axis=1))
    draft.attend(points, error, 1.0, kappa, 0.0)


def mean_error(draft: Draft, data: TokenData) -> Array:
    """The mean's own part of the error, and twice (length + 3) u of the mean size, in whatever order it is summed."""
    errors = np.zeros(data.count)
    np.add.at(errors, data.owner, data.share * (draft.error + 2 * (data.longest + 3) * U * draft.norms))
    return errors


def _directions(points: Array, rng: np.random.Generator) -> tuple[Array, Array, float]:
    c = units(rng.standard_normal((4 * DRAWS, points.shape[1])))
    gaps = apart(points, c)
    k = int(gaps.argmax())
    if gaps[k] <= 1e-3 * SAME * largest(points):
        raise ValueError(f"no direction keeps {len(points)} tokens apart: best gap {gaps[k]:.1e}; draw another seed")
    a = rng.standard_normal(points.shape[1])
    a = units((a - (a @ c[k]) * c[k])[None])[0]
    a -= (a @ c[k]) * c[k]
    return c[k], a / np.linalg.norm(a), float(gaps[k])


def _chosen(data: TokenData, j: int, along: Array) -> list[int]:
    """As many tokens of sequence j as it has outputs: the lowest along c, then each farthest from those chosen."""
    own = np.flatnonzero(data.owner == j)
    chosen = [int(own[along[own].argmin()])]
    while len(chosen) < int((data.asked == j).sum()):
        far = np.abs(along[own][:, None] - along[chosen]).min(axis=1)
        chosen.append(int(own[far.argmax()]))
    return chosen


def _follow(draft: Draft, data: TokenData) -> float:
    """Attention with B = V = I and no skip: every token becomes the token of largest product; the smallest margin.

    The margin is what the best product has over the next, less what rounding may add to both, in parts of the best.
    """
    points, error = draft.points.copy(), draft.error.copy()
    margin = np.inf
    for j in range(data.count):
        own = np.flatnonzero(data.owner == j)
        products = draft.points[own] @ draft.points[own].T
        size, off = draft.norms[own], draft.error[own]
        blur = np.outer(size, off) + np.outer(off, size + off) + 2 * (draft.dim + 2) * U * np.outer(size, size)
        best = products.argmax(axis=1)
        rows = np.arange(len(own))
        short = products[rows, best][:, None] - products - blur - blur[rows, best][:, None]
        short[rows, best] = np.inf
        margin = min(margin, float((short / np.abs(products[rows, best])[:, None]).min()))
        points[own], error[own] = draft.points[own[best]], draft.error[own[best]] + 2 * U * size[best]
    if margin < SAFE:
        raise ValueError(
            f"two leaders are nearly a tie: margin {margin:.1e} of the product, below {SAFE:.0e}; it is relative, "
            f"so scaling does not help: draw c and kappa again with another seed"
        )
    draft.attend(points, error, 0.0, 1.0, 1.0)
    return margin
