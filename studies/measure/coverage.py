"""How often the interval of two errors' ratio holds: learners that are trained, on data whose law is known.

    python -m studies.measure.coverage        200 studies of every size, some minutes of one core

Two learners, each with a search on inner parts: a linear one, and one on random features drawn anew in every split.
The true ratio is that of their mean losses on sequences nobody has seen, over all studies (data drawn anew), or of the
networks of one study.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import expit, stdtrit

from headcount.files import atomic_write
from headcount.measuring.paired_ratios import CONFIDENCE, paired_ratio
from headcount.measuring.splitting import BLOCKS, FOLDS

KEPT = Path(__file__).parents[2] / "docs/data/measure_coverage.json"
STUDIES, SEED = 200, 29
FEATURES, FRESH = 6, 4000
PENALTIES, PILES = (0.1, 1.0, 10.0, 100.0), 6

TARGETS = ("numbers", "classes", "nearly separable classes")
BLUR = {"classes": 0.25, "nearly separable classes": 0.03}  # the scale of what moves a level across the border

Predictor = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Design:
    """Sequences of a study, splits, and the kind of its targets."""

    sequences: int
    splits: int
    targets: str

    @property
    def classes(self) -> bool:
        """Whether targets are classes."""
        return self.targets in BLUR

    def drawn(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Points and targets: a plane and half a product, with heavy noise, or its sign."""
        x = rng.normal(size=(count, FEATURES))
        plane = np.random.default_rng(5).normal(size=FEATURES) / 2
        level = x @ plane + 0.5 * np.maximum(x[:, 0] * x[:, 1], 0)
        if self.classes:
            return x, (level + BLUR[self.targets] * rng.logistic(size=count) > 0).astype(float)
        return x, level + 0.5 * rng.standard_t(4, size=count)

    def losses(self, said: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Cross-entropy of a logit, or the square of a gap."""
        return np.logaddexp(0, said) - y * said if self.classes else (said - y) ** 2

    def fitted(self, x: np.ndarray, y: np.ndarray, penalty: float) -> Predictor:
        """Ridge regression in closed form, or logistic regression by Newton's steps."""
        wide, steps = np.hstack([x, np.ones((len(x), 1))]), 15 if self.classes else 1
        weights = np.zeros(wide.shape[1])
        for _ in range(steps):
            share = expit(wide @ weights) if self.classes else wide @ weights
            curved = share * (1 - share) if self.classes else np.ones(len(x))
            slope = wide.T @ (share - y) + penalty * weights
            weights = weights - np.linalg.solve(
                (wide * curved[:, None]).T @ wide + penalty * np.eye(len(weights)), slope
            )
        return lambda new: np.hstack([new, np.ones((len(new), 1))]) @ weights


@dataclass(frozen=True, eq=False)
class _Tried:
    """Every penalty of a learner on one split: inner loss, parts of the outer one by blocks, loss on fresh points."""

    inner: list[float]
    parts: list[np.ndarray]
    fresh: list[float]


def _lifted(rng: np.random.Generator) -> Predictor:
    weights, level = rng.normal(size=(FEATURES, 25)), rng.normal(size=25)
    return lambda x: np.hstack([np.maximum(x @ weights + level, 0), x])


def _study(design: Design, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Parts of both outer errors (learner, split, block), and both mean losses on fresh points.

    As in a contest: five folds, one pile of the rest to choose by, another one each time a fold comes back; a penalty
    is chosen for each fold, by all its inner parts.
    """
    points = design.drawn(design.sequences, rng)
    fresh = design.drawn(FRESH, rng)
    blocks, fold = (rng.permutation(design.sequences) % count for count in (BLOCKS, FOLDS))
    pile = [rng.permutation(design.sequences) % PILES for _ in range(FOLDS)]
    parts, levels = [], []
    for random in (True, False):
        tried = []
        for number in range(design.splits):
            outer = fold == number % FOLDS
            inner = ~outer & (pile[number % FOLDS] == number // FOLDS)
            lost = partial(_block_losses, blocks=blocks[outer])
            some = [tuple(one[rows] for one in points) for rows in (~outer & ~inner, inner, outer)]
            tried.append(_all_penalties(design, [*some, fresh], rng if random else None, lost))
        chosen = [
            int(np.mean([one.inner for one in tried[n % FOLDS :: FOLDS]], axis=0).argmin()) for n in range(len(tried))
        ]
        parts.append([one.parts[k] for one, k in zip(tried, chosen, strict=True)])
        levels.append(np.mean([one.fresh[k] for one, k in zip(tried, chosen, strict=True)]))
    return np.array(parts), np.array(levels)


def _block_losses(losses: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    return np.bincount(blocks, weights=losses / len(losses), minlength=BLOCKS)


def _all_penalties(
    design: Design,
    four: Sequence[tuple[np.ndarray, ...]],
    rng: np.random.Generator | None,
    in_blocks: Callable[[np.ndarray], np.ndarray],
) -> _Tried:
    """A learner fitted with each penalty; with a generator, on 25 random features beside the given ones."""
    tried = _Tried([], [], [])
    for penalty in PENALTIES:
        lift = _lifted(rng) if rng is not None else (lambda points: points)
        (x, y), *judging = four
        fitted = design.fitted(lift(x), y, penalty)
        inner, outer, fresh = (design.losses(fitted(lift(points)), truth) for points, truth in judging)
        tried.inner.append(float(inner.mean()))
        tried.parts.append(in_blocks(outer))
        tried.fresh.append(float(fresh.mean()))
    return tried


def corrected(one: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """The corrected resampled t-test of relative differences by split, an outer part a quarter of the rest.

    Source: Nadeau and Bengio, "Inference for the generalization error", Machine Learning 52 (2003).
    """
    mine, theirs = one.sum(axis=1), other.sum(axis=1)
    gaps = 2 * (mine - theirs) / (mine + theirs)
    reach = stdtrit(len(gaps) - 1, (1 + CONFIDENCE) / 2) * np.std(gaps, ddof=1) * math.sqrt(1 / len(gaps) + 0.25)
    low, high = (np.clip(gaps.mean() + side * reach, -1.999, 1.999) for side in (-1, 1))
    return mine.sum() / theirs.sum(), (2 + low) / (2 - low), (2 + high) / (2 - high)


def covered(design: Design, studies: int = STUDIES, seed: int = SEED) -> dict[str, object]:
    """Shares of studies whose interval holds the true ratio, and half of its width in logarithms."""
    rng = np.random.default_rng([seed, design.sequences, design.splits, TARGETS.index(design.targets)])
    made = [_study(design, rng) for _ in range(studies)]
    levels = np.array([level for _, level in made])
    truth, own = levels[:, 0].mean() / levels[:, 1].mean(), levels[:, 0] / levels[:, 1]
    row: dict[str, object] = {"sequences": design.sequences, "splits": design.splits, "targets": design.targets}
    by_blocks = partial(paired_ratio, folds=np.arange(design.splits) % FOLDS)
    for name, interval in (("blocks and folds", by_blocks), ("corrected t-test", corrected)):
        ends = np.array([interval(*parts)[1:] for parts, _ in made])
        row[name] = {
            "of new data": float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))),
            "of these networks": float(np.mean((ends[:, 0] <= own) & (own <= ends[:, 1]))),
            "half width": round(float(np.median(np.log(ends[:, 1] / ends[:, 0])) / 2), 4),
        }
    return row


def designs() -> Iterator[Design]:
    """Every size."""
    for targets in TARGETS:
        for sequences in (80, 200, 600):
            yield from (Design(sequences, splits, targets) for splits in (5, 10, 20))


def main() -> None:
    """All of them, kept."""
    rows = []
    for design in designs():
        rows.append(covered(design))
        print(json.dumps(rows[-1]), flush=True)
    with atomic_write(KEPT) as scratch:
        Path(scratch).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
