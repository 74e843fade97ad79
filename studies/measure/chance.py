"""What of a table of errors is chance: its halves, a block at random, and the table with the noise taken out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from jaxtyping import Float

from headcount.measuring.head_counts import within
from headcount.measuring.paired_ratios import LEAST, SplitErrors
from headcount.measuring.splitting import FOLDS

Place = TypeVar("Place", bound=Hashable)
TOLERANCE = 0.05  # of the least error: what counts as near


def near_least(error: float, least: float) -> bool:
    """Whether an error is within the tolerance that `measure` advises by.

    >>> near_least(0.104, 0.1), near_least(0.106, 0.1), near_least(0.004, 0.001)
    (True, False, True)
    """
    return error <= within(TOLERANCE, least) * least


def means(table: Mapping[Place, SplitErrors]) -> dict[Place, float]:
    """Every block's mean error."""
    return {place: one.mean(one.outer) for place, one in table.items()}


def at_random(errors: Mapping[Place, float]) -> float:
    """The share of blocks that are near the least error: how often one drawn at random is."""
    return float(np.mean([near_least(error, min(errors.values())) for error in errors.values()]))


def by_halves(table: Mapping[Place, SplitErrors]) -> tuple[bool, bool]:
    """Whether the block that either half of the splits names is near the least error of the other half.

    A half has every outer part once.
    """
    splits = sorted(set.intersection(*(set(one.outer) for one in table.values())))
    halves = splits[: len(splits) // 2], splits[len(splits) // 2 :]
    first, second = ({place: one.mean(half) for place, one in table.items()} for half in halves)
    return _names(first, second), _names(second, first)


def _names(one: Mapping[Place, float], other: Mapping[Place, float]) -> bool:
    return near_least(other[min(one, key=lambda place: one[place])], min(other.values()))


def shrunken(table: Mapping[Place, SplitErrors]) -> dict[Place, float]:
    """Every block's error, its logarithm drawn to the mean of all by the share of the spread that is chance.

    With s2 the variance of a block's mean, judged by the folds of its splits, and v that between blocks, a logarithm
    keeps max(0, 1 - s2 / v) of its distance from the mean. Where v is no larger than s2, all blocks are alike.

    Source: Efron and Morris, "Stein's estimation rule and its competitors", Journal of the American Statistical
    Association 68 (1973).

    >>> made = lambda *outer: SplitErrors("", 1, 1, True, True, dict(enumerate(outer)), {}, {})
    >>> alike = {h: made(*np.roll([0.1, 0.2, 0.3, 0.2, 0.1], h)) for h in range(1, 5)}
    >>> round(max(shrunken(alike).values()) - min(shrunken(alike).values()), 9)
    0.0
    >>> apart = {h: made(*(0.1 * h * np.array([0.9, 1.0, 1.1, 1.0, 1.0]))) for h in range(1, 5)}
    >>> {h: round(error, 3) for h, error in shrunken(apart).items()}
    {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    """
    splits = sorted(set.intersection(*(set(one.outer) for one in table.values())))
    errors = np.array([[max(one.outer[split], LEAST) for split in splits] for one in table.values()])
    logs = np.log(errors.mean(axis=1))
    spread, noise = logs.var(ddof=1), _noise(errors, splits)
    kept = max(0.0, 1 - noise / spread) if spread > 0 else 0.0
    return dict(zip(table, np.exp(logs.mean() + kept * (logs - logs.mean())).tolist(), strict=True))


def _noise(errors: Float[np.ndarray, "blocks splits"], splits: Sequence[int]) -> float:
    """The variance of a block's log mean, less what all blocks share of it, by clusters of splits of one fold."""
    moved = errors / errors.mean(axis=1, keepdims=True) / len(splits)
    moved = moved - moved.mean(axis=0)
    folds = np.array(splits) % FOLDS
    sums = np.stack([moved[:, folds == fold].sum(axis=1) for fold in np.unique(folds)], axis=1)
    sums = sums - sums.mean(axis=1, keepdims=True)
    count, blocks = sums.shape[1], len(errors)
    return float((sums**2).sum(axis=1).mean() * count / (count - 1) * blocks / (blocks - 1))
