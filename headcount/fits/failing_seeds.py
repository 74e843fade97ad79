"""Seeds that succeed or fail: whether a study's cells hold two kinds of seeds, and what that leaves open. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.fits.cells import Cells
from headcount.fits.seed_spread import smooth_spread

DRAWS = 400  # studies of one kind of normal seeds, from which the yardstick of gaps is taken
RARE = 0.99  # gaps that this share of such studies does not reach show two kinds
APART = 3.0  # widths of one kind by which a seed that failed lies above the last that did not
ROUNDS = 3  # of telling kinds apart and measuring their width anew
SMALLEST = 1e-12
MANY = 2000  # seeds of a cell from which on only its outermost are drawn
OUTERMOST = 100  # on each side: the gaps between neighbours shrink as fast as their number from the end grows


@dataclass(frozen=True)
class TwoKinds:
    """Seeds below and above the widest gap of their cell: `failed` of them, where the gaps are too wide for one kind.

    `width` is the standard deviation of a seed among its own kind at each point, from all cells together.
    """

    failed: Bool[np.ndarray, "group point seed"]
    width: Float[np.ndarray, " point"]

    @property
    def seen(self) -> bool:
        """Whether any seed failed."""
        return bool(self.failed.any())

    @property
    def share(self) -> float:
        """The share of seeds that failed, of those whose cell shows what success is."""
        return float(self.failed.sum() / max(1, self.failed.size))


def two_kinds(cells: Cells) -> TwoKinds:
    """Whether the seeds succeed or fail, by the widest gap in every cell against the spread of what lies beside it.

    Normal seeds have gaps as well, so the mean gap over the cells is held against that of drawn normal seeds.

    >>> logs = -np.array([[[[3.0, 3.1, 3.2, 1.0]], [[4.0, 4.1, 4.2, 2.0]], [[4.0, 4.1, 4.2, 4.3]]]])
    >>> two_kinds(Cells((1, 2, 3), (8,), logs, 0)).failed.sum(-1).tolist()
    [[1, 1, 0]]
    """
    seeds = np.sort(cells.seeds, -1)
    nothing = TwoKinds(np.zeros(seeds.shape, dtype=bool), np.zeros(len(cells.points)))
    if cells.counts.min() < 3:
        return nothing
    spread = smooth_spread(cells)  # seeds may spread further at few heads than at many without failing
    seeds = seeds / spread[:, None]
    usual, width = _usual(tuple(cells.counts.ravel().tolist()))
    mean, middle = _gaps(seeds)
    if mean <= usual * middle:
        return nothing
    failed, width = _above_the_best(seeds, width * middle)
    return TwoKinds(failed, width * spread)


def success_draws(
    cells: Cells, kinds: TwoKinds, resamples: int, generator: np.random.Generator
) -> Float[np.ndarray, "r point"]:
    """Curves of what seeds that succeed reach, where a cell of n seeds may hold none of them.

    The cell is then as good as the next larger count may be.
    """
    seeds = np.sort(cells.seeds, -1)
    good = np.isfinite(seeds) & ~kinds.failed
    number = good.sum(-1)
    middle = np.where(good, seeds, 0.0).sum(-1) / number
    noise = kinds.width * generator.standard_normal((resamples, *middle.shape)) / np.sqrt(number)
    none = _none_succeeded(cells.counts, kinds.failed.sum(-1), resamples, generator)
    missed = generator.random((resamples, *middle.shape)) < none
    drawn = middle + noise
    for point in range(drawn.shape[-1] - 2, -1, -1):  # from many heads to few: what fails lies no lower than its next
        lower = np.minimum(drawn[..., point], drawn[..., point + 1])
        drawn[..., point] = np.where(missed[..., point], lower, drawn[..., point])
    return drawn.mean(1)


def _none_succeeded(
    counts: Int[np.ndarray, "group point"],
    failed: Int[np.ndarray, "group point"],
    resamples: int,
    generator: np.random.Generator,
) -> Float[np.ndarray, "r group point"]:
    """The chance of each cell that none of its n seeds succeeded, for drawn shares f of failures.

    A cell of one kind holds successes alone or failures alone, f^n against (1 - f)^n; where two are seen the lower may
    still be failures of a milder sort, f^n.
    """
    grid = np.linspace(0.005, 0.995, 199)
    f = grid[:, None, None]
    alone = f**counts + (1 - f) ** counts
    logs = np.where(failed > 0, failed * np.log(f) + (counts - failed) * np.log(1 - f), np.log(alone)).sum((1, 2))
    weights = np.exp(logs - logs.max())
    failure_rate = generator.choice(grid, (resamples, 1, 1), p=weights / weights.sum())
    none = failure_rate**counts
    return np.where(failed > 0, none, none / (none + (1 - failure_rate) ** counts))


def _above_the_best(
    seeds: Float[np.ndarray, "group point seed"], width: float
) -> tuple[Bool[np.ndarray, "group point seed"], float]:
    """The seeds above the first wide gap of their cell, and the width of one kind once all kinds are told apart."""
    for _ in range(ROUNDS):
        width = _within(seeds, _kinds(seeds, width))
    return np.asarray(_kinds(seeds, width) > 0), width


def _kinds(seeds: Float[np.ndarray, "group point seed"], width: float) -> Int[np.ndarray, "group point seed"]:
    """The kind of each seed, 0 for the best of its cell, one more after every wide gap; -1 where there is no seed."""
    steps = np.diff(seeds, axis=-1) > APART * width
    kind = np.concatenate([np.zeros((*seeds.shape[:2], 1), dtype=int), steps.cumsum(-1)], -1)
    return np.where(np.isfinite(seeds), kind, -1)


def _within(seeds: Float[np.ndarray, "group point seed"], kind: Int[np.ndarray, "group point seed"]) -> float:
    """The standard deviation of seeds of one kind, over all kinds of all cells."""
    squares, free = 0.0, 0
    for k in range(int(kind.max()) + 1):
        side = kind == k
        number = side.sum(-1, keepdims=True)
        middle = np.where(side, seeds, 0.0).sum(-1, keepdims=True) / np.maximum(number, 1)
        squares += float((np.where(side, seeds - middle, 0.0) ** 2).sum())
        free += int(np.maximum(number - 1, 0).sum())
    return max(SMALLEST, (squares / max(1, free)) ** 0.5)


def _gaps(seeds: Float[np.ndarray, "*cell seed"]) -> tuple[float, float]:
    """The widest gap between neighbours of a cell, in the mean over cells, and the median of all gaps."""
    steps = np.diff(seeds, axis=-1)
    return float(np.nanmax(steps, -1).mean()), max(SMALLEST, float(np.nanmedian(steps)))


@lru_cache
def _usual(counts: tuple[int, ...]) -> tuple[float, float]:
    """Of normal seeds of one kind, in median gaps: the mean widest gap of the rarest study of 100, and the spread."""
    generator = np.random.default_rng(0)
    sizes: Int[np.ndarray, " cell"] = np.array(counts)
    if sizes.min() > MANY:
        _, middle = _drawn_gaps(sizes, generator)  # of so many gaps, the same in every study
        return float(np.quantile(_widest_of_many(sizes, generator) / middle, RARE)), 1 / middle
    gaps = np.array([_drawn_gaps(sizes, generator) for _ in range(DRAWS)])
    return float(np.quantile(gaps[:, 0] / gaps[:, 1], RARE)), float(np.median(1 / gaps[:, 1]))


def _drawn_gaps(sizes: Int[np.ndarray, " cell"], generator: np.random.Generator) -> tuple[float, float]:
    drawn = generator.standard_normal((len(sizes), sizes.max()))
    drawn[np.arange(sizes.max()) >= sizes[:, None]] = np.nan
    return _gaps(np.sort(drawn, -1))


def _widest_of_many(sizes: Int[np.ndarray, " cell"], generator: np.random.Generator) -> Float[np.ndarray, " study"]:
    """The mean over cells of the widest gap of n normal seeds, which lies among the outermost of them.

    The i-th smallest of n uniform numbers is (E_1 + ... + E_i) / (E_1 + ... + E_{n+1}) with exponential E (Renyi), so
    the outermost of both sides are drawn without those between, whose sum is one gamma number.
    """
    from scipy.special import ndtri

    sides = generator.exponential(size=(2, DRAWS, len(sizes), OUTERMOST)).cumsum(-1)
    between = generator.gamma(sizes + 1.0 - 2 * OUTERMOST, size=(DRAWS, len(sizes)))
    places = ndtri(sides / (sides[..., -1].sum(0) + between)[..., None])
    return np.asarray(np.diff(places, axis=-1).max((0, -1)).mean(-1))
