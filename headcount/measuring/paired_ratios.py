"""Contestants on the same splits: the ratio of two errors, with an interval that knows that splits overlap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from headcount.results.study import Row

__all__ = ["CONFIDENCE", "LEAST", "Compared", "SplitErrors", "compare", "mean_error", "paired_ratio", "split_errors"]

CONFIDENCE = 0.9  # a twentieth on either side
LEAST = 1e-12  # an error below this share of the constant's is exact but for rounding


@dataclass(frozen=True)
class SplitErrors:
    """A contestant's errors by split: on the outer part, on the inner part, and there after a quarter of the steps."""

    name: str
    heads: int
    depth: int
    attends: bool
    standard: bool
    outer: Mapping[int, float]
    inner: Mapping[int, float]
    short: Mapping[int, float]

    def mean(self, splits: Iterable[int]) -> float:
        """The mean of the outer error over these splits."""
        return mean_error(self.outer[s] for s in splits)

    def further(self, split: int) -> float:
        """What the outer error would be if four times the steps brought as much again as the last four times did."""
        before = self.short[split] if math.isfinite(self.short[split]) else self.inner[split]
        gain = min(1.0, max(self.inner[split], LEAST) / max(before, LEAST))
        return max(self.outer[split], LEAST) * gain


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
        levels = {row["seed"]: math.nan if row[column] is None else row[column] for row in rows}
        return {split: level if math.isfinite(level) else math.inf for split, level in levels.items()}

    return SplitErrors(
        name, first["heads"], first["depth"], first["attends"], first["standard"],
        by_split("nmse"), by_split("inner"), by_split("short"),
    )  # fmt: skip


def mean_error(errors: Iterable[float]) -> float:
    """The mean, exact errors counted as the least there is: what is lost on a sequence that nobody has seen.

    >>> round(mean_error([0.1, 0.4]), 9)
    0.25
    """
    return float(np.mean([max(one, LEAST) for one in errors]))


@dataclass(frozen=True)
class Compared:
    """The error of `one` over that of `other`, by the splits that both have.

    >>> Compared("2 heads", "1 head", 5, 0.5, 0.4, 0.6).sentence
    '2 heads has 0.5 times the error of 1 head, [0.4, 0.6]'
    """

    one: str
    other: str
    splits: int
    ratio: float
    low: float
    high: float

    @property
    def sentence(self) -> str:
        """Both, the ratio and its interval."""
        return f"{self.one} has {self.ratio:.2g} times the error of {self.other}, [{self.low:.2g}, {self.high:.2g}]"

    def to_json(self) -> dict[str, object]:
        """The fields, ready for JSON."""
        return {key: _finite(value) for key, value in asdict(self).items()}


def paired_ratio(one: Sequence[float], other: Sequence[float], overlap: float) -> tuple[float, float, float]:
    """mean(one) / mean(other), with an interval from the mean over splits of d = 2 (one - other) / (one + other).

    d lies between -2 and 2, so that a split that goes wrong, or right, by a factor of a hundred counts as one split and
    not as all of them. The interval of its mean is Student's with k - 1 degrees of freedom and the variance
    s^2 (1/k + overlap), where overlap is the size of an outer part over that of the rest: splits share most of what
    they train on, and s^2/k alone would call noise a difference. Its ends as ratios are (2 + d) / (2 - d), moved out to
    the ratio of the means where that lies beyond.

    Source: Nadeau and Bengio, "Inference for the generalization error", Machine Learning 52 (2003), the corrected
    resampled t-test.

    >>> [round(v, 3) for v in paired_ratio([1.0, 2.0, 2.5], [1.0, 1.0, 1.0], 0.01)]
    [1.833, 0.768, 4.54]
    >>> paired_ratio([1.0], [2.0], 0.25), [round(v, 9) for v in paired_ratio([0.2, 0.3], [0.4, 0.6], 0.25)]
    ((0.5, 0.0, inf), [0.5, 0.5, 0.5])
    """
    from scipy.special import stdtrit

    ratio = float(np.mean(one)) / float(np.mean(other))
    if len(one) < 2 or not math.isfinite(ratio):  # one split, or a network that diverged in one
        return ratio, 0.0, math.inf
    gaps = [2 * (mine - theirs) / (mine + theirs) for mine, theirs in zip(one, other, strict=True)]
    spread = float(np.std(gaps, ddof=1)) * math.sqrt(1 / len(gaps) + overlap)
    reach = float(stdtrit(len(gaps) - 1, (1 + CONFIDENCE) / 2)) * spread
    middle = float(np.mean(gaps))
    return ratio, min(ratio, _as_ratio(middle - reach)), max(ratio, _as_ratio(middle + reach))


def _as_ratio(gap: float) -> float:
    return 0.0 if gap <= -2 else math.inf if gap >= 2 else (2 + gap) / (2 - gap)


def compare(one: Mapping[int, float], other: Mapping[int, float], overlap: float, names: tuple[str, str]) -> Compared:
    """The ratio of the errors over the splits that both have.

    >>> compare({0: 0.1, 1: 0.2}, {0: 0.2, 1: 0.4, 2: 9.0}, 0.25, ("a", "b")).ratio
    0.5
    """
    both = sorted(one.keys() & other.keys())
    if not both:
        return Compared(*names, 0, math.nan, 0.0, math.inf)
    mine, theirs = ([max(errors[split], LEAST) for split in both] for errors in (one, other))
    return Compared(*names, len(both), *paired_ratio(mine, theirs, overlap))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
