"""Contestants on the same splits: the ratio of two errors, with an interval that knows what the splits share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.measuring.splitting import FOLDS
from headcount.results.study import Row

CONFIDENCE = 0.9  # a twentieth on either side
LEAST = 1e-12  # an error below this share of the constant's is exact but for rounding

Blocks = Mapping[int, Sequence[float]]  # by split: what each block of sequences adds to the outer error


@dataclass(frozen=True)
class SplitErrors:
    """A contestant's errors by split: on the outer part, on the inner part, and on the outer one after a short search.

    `parts` says what each block of sequences adds to the outer error: the same blocks in every split.
    """

    name: str
    heads: int
    depth: int
    attends: bool
    standard: bool
    outer: Mapping[int, float]
    inner: Mapping[int, float]
    short: Mapping[int, float]
    parts: Blocks = field(default_factory=dict)

    @property
    def blocks(self) -> Blocks:
        """The outer error of every split in its parts; one part where they are not known."""
        return {split: self.parts.get(split) or (level,) for split, level in self.outer.items()}

    def mean(self, splits: Iterable[int]) -> float:
        """The mean of the outer error over these splits."""
        return mean_error(self.outer[s] for s in splits)

    def chosen_by(self, split: int) -> float:
        """Its mean error on the inner parts of all splits that have this one's outer part."""
        return float(np.mean([inner for s, inner in self.inner.items() if (s - split) % FOLDS == 0]))

    def further(self, splits: Iterable[int], times: float) -> float:
        """What the mean would be if four times the steps, so many times, brought as much as the last four times did."""
        some = list(splits)
        return continued(self.mean(some), mean_error(self.short[s] for s in some), times)


def split_errors(rows: Iterable[Row]) -> tuple[SplitErrors, ...]:
    """Every contestant's errors by split, in the order in which they came; a network that diverged lost everything."""
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(_sound(row)["contestant"], []).append(row)
    return tuple(_of_one(name, some) for name, some in by_name.items())


KINDS: dict[str, Any] = {
    "contestant": str, "heads": int, "depth": int, "attends": bool, "standard": bool, "seed": int,
    **dict.fromkeys(("nmse", "inner", "short"), int | float | None),
}  # fmt: skip


def _sound(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row, whose fields are what `measure` writes; else what is not."""
    for name, kind in KINDS.items():
        if name not in row or not isinstance(row[name], kind):
            raise ValueError(f"a row of this measurement is damaged: {name} is {row.get(name, 'missing')!r:.40}")
    return row


def _of_one(name: str, rows: list[Any]) -> SplitErrors:
    first = rows[0]

    def by_split(column: str) -> dict[int, float]:
        return {row["seed"]: _level(row[column]) for row in rows}

    parts = {row["seed"]: tuple(map(_level, row["parts"])) for row in rows if row.get("parts")}

    return SplitErrors(
        name, first["heads"], first["depth"], first["attends"], first["standard"],
        by_split("nmse"), by_split("inner"), by_split("short"), parts,
    )  # fmt: skip


def _level(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.inf


def mean_error(errors: Iterable[float]) -> float:
    """The mean, exact errors counted as the least there is: what is lost on a sequence that nobody has seen.

    >>> round(mean_error([0.1, 0.4]), 9)
    0.25
    """
    return float(np.mean([max(one, LEAST) for one in errors]))


def continued(level: float, before: float, times: float) -> float:
    """A level that falls so many times more as it fell from what was before.

    >>> continued(0.2, 0.4, 2), continued(0.4, 0.2, 2)
    (0.05, 0.4)
    """
    return level * min(1.0, level / before) ** times


@dataclass(frozen=True)
class Compared:
    """The error of `one` over that of `other`, by the splits that both have.

    `by_splits` is the share of the interval's variance that more splits would lower; all of it where that is not known.

    >>> Compared("2 heads", "1 head", 5, 0.5, 0.4, 0.6).sentence
    '2 heads has 0.5 times the error of 1 head, [0.4, 0.6]'
    """

    one: str
    other: str
    splits: int
    ratio: float
    low: float
    high: float
    by_splits: float = 1.0

    @property
    def sentence(self) -> str:
        """Both, the ratio and its interval."""
        return f"{self.one} has {self.ratio:.2g} times the error of {self.other}, {self.interval}"

    @property
    def interval(self) -> str:
        """The ends to two digits, or to three where two would not tell on which side of 1 one lies.

        >>> Compared("a", "b", 5, 0.8, 0.612, 1.008).interval
        '[0.61, 1.01]'
        """
        return f"[{', '.join(f'{end:.3g}' if f'{end:.2g}' == '1' else f'{end:.2g}' for end in (self.low, self.high))}]"

    def after(self, splits: int) -> Compared:
        """What so many splits would say of the same ratio: only what differs between splits is averaged further.

        >>> some, all_ = (Compared("a", "b", 5, 0.5, 0.25, 1.0, by_splits=share) for share in (0.25, 1.0))
        >>> [round(one.after(20).high, 2) for one in (some, all_)]
        [0.93, 0.71]
        """
        if not (self.low > 0 and math.isfinite(self.high)):  # nothing is known yet, or a network diverged
            return self
        narrower = math.sqrt(1 - self.by_splits * (1 - min(1.0, self.splits / splits)))
        low, high = (self.ratio * (end / self.ratio) ** narrower for end in (self.low, self.high))
        return replace(self, splits=splits, low=low, high=high)

    def to_json(self) -> dict[str, object]:
        """The fields, ready for JSON."""
        return {key: _finite(value) for key, value in asdict(self).items()}


def paired_ratio(
    one: Float[np.ndarray, "splits blocks"],
    other: Float[np.ndarray, "splits blocks"],
    folds: Int[np.ndarray, " splits"],
) -> tuple[float, float, float]:
    """sum(one) / sum(other), with the interval of its logarithm: Student's, of the variance between blocks and folds.

    To first order the logarithm moves by the sum of u = one / sum(one) - other / sum(other). Blocks of sequences are
    the same in all splits, so that sums of u over splits tell what the choice of sequences does (V_b = G / (G - 1) sum
    of their squares); sums over the splits of a fold, which share their outer part and what was chosen for it, tell
    what a choice and a training do, and sequences once more (V_f likewise). Their sum is the variance: too large by
    what both count, which covers that networks of other folds were trained on nearly the same sequences. Degrees of
    freedom are Satterthwaite's. One block alone (errors whose parts are not known) tells nothing of sequences, and V_f
    then counts twice.

    Source: Cameron, Gelbach and Miller, "Robust inference with multiway clustering", Journal of Business and Economic
    Statistics 29 (2011), without the term that they subtract. How often the interval holds: docs/measure.md.

    >>> errors = np.array([[0.1, 0.2], [0.2, 0.1], [0.1, 0.1]])
    >>> [round(v, 3) for v in paired_ratio(2 * errors, errors, np.arange(3))]
    [2.0, 2.0, 2.0]
    >>> paired_ratio(errors[:1], errors[:1], np.zeros(1, dtype=int))
    (1.0, 0.0, inf)
    """
    return _ratio_and_share(one, other, folds)[:3]


def _ratio_and_share(
    one: Float[np.ndarray, "splits blocks"],
    other: Float[np.ndarray, "splits blocks"],
    folds: Int[np.ndarray, " splits"],
) -> tuple[float, float, float, float]:
    """`paired_ratio`, and the share of its variance that differs between splits of one fold, where some share one.

    The rest is what the choice of sequences does, which comes back with every outer part.

    >>> rng, folds = np.random.default_rng(0), np.arange(20) % 5
    >>> same, noise, even = rng.random((5, 8))[folds], rng.random((20, 1)), np.ones((20, 8))
    >>> _ratio_and_share(same, even, folds)[3] < 1e-9 < 0.3 < _ratio_and_share(noise + same, even + same, folds)[3]
    True
    >>> _ratio_and_share(same[:5], even[:5], folds[:5])[3]
    1.0
    """
    from scipy.special import stdtrit

    a, b = (max(float(errors.sum()), LEAST * len(errors)) for errors in (one, other))
    names, index, sizes = np.unique(folds, return_inverse=True, return_counts=True)
    ratio, count = a / b, len(names)
    if count < 2 or not (math.isfinite(a) and math.isfinite(b)):  # one fold, or a network that diverged
        return (ratio if ratio == ratio else math.inf), 0.0, math.inf, 1.0
    moved = one / a - other / b
    moved = moved[:, (one + other).any(axis=0)]
    splits = moved.sum(axis=1)
    of_folds = np.bincount(index, weights=splits)
    by_fold = _clustered(of_folds)
    known = moved.shape[1] > 1
    by_block = _clustered(moved.sum(axis=0)) if known else by_fold
    variance = by_block + by_fold
    if variance == 0.0:
        return ratio, ratio, ratio, 1.0
    spare = len(splits) - count
    within = len(splits) / spare * float(((splits - (of_folds / sizes)[index]) ** 2).sum()) if spare else variance
    freedom = variance**2 / (by_block**2 / ((moved.shape[1] if known else count) - 1) + by_fold**2 / (count - 1))
    factor = math.exp(float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) * math.sqrt(variance))
    return ratio, ratio / factor, ratio * factor, min(1.0, within / variance)


def _clustered(sums: Float[np.ndarray, " clusters"]) -> float:
    """The variance of a sum of independent parts with mean 0, from the parts."""
    return len(sums) / (len(sums) - 1) * float((sums**2).sum())


def compare(one: Blocks, other: Blocks, names: tuple[str, str]) -> Compared:
    """The ratio of the errors over the splits that both have.

    >>> compare({0: [0.1], 1: [0.2]}, {0: [0.2], 1: [0.4], 2: [9.0]}, ("a", "b")).ratio
    0.5
    """
    both = sorted(one.keys() & other.keys())
    if not both:
        return Compared(*names, 0, math.nan, 0.0, math.inf)
    alike = len({len(errors[split]) for errors in (one, other) for split in both}) == 1
    first, second = (
        np.array([errors[split] if alike else (sum(errors[split]),) for split in both]) for errors in (one, other)
    )
    return Compared(*names, len(both), *_ratio_and_share(first, second, np.array(both) % FOLDS))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
