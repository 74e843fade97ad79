"""Both sides of a contest, each a rule that chooses by inner parts alone: with attention, and without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.measuring.head_counts import LEAD, within
from headcount.measuring.paired_ratios import LEAST, Blocks, Compared, SplitErrors, mean_error
from headcount.measuring.planning import FLOOR

__all__ = ["GAIN", "Side", "TwoSides"]

GAIN = 0.2  # of the error: attention is not worth it only where so much to gain is excluded
LEARNED = 0.95  # an error above this share of the constant's is the constant's but for noise


@dataclass(frozen=True)
class Side:
    """Contestants of a kind as one: for every outer part one of those that its inner parts prefer.

    Any contestant may stand for the side that inner parts do not tell apart from the best: within the tolerance, or by
    the one-standard-error rule (Breiman, Friedman, Olshen, Stone, "Classification and regression trees", 1984, 3.4.3).
    The error of the side is the mean of theirs.
    """

    members: tuple[SplitErrors, ...]

    def preferred(self, split: int) -> list[SplitErrors]:
        """Who may stand for it in a split, the best by inner parts first."""
        errors = [(max(one.chosen_by(split), LEAST), one.name, one) for one in self.members if split in one.outer]
        errors.sort(key=lambda each: each[:2])
        (least, _, best), *_ = errors
        return [
            one for error, _, one in errors if error <= within(LEAD, least) * least or not one.told_apart(best, split)
        ]

    def on(self, split: int) -> bool:
        """Whether anybody has been on a split."""
        return any(split in one.outer for one in self.members)

    def level(self, splits: Sequence[int]) -> float:
        """The mean of its outer error."""
        return mean_error(sum(parts) for parts in self.blocks(splits).values())

    def blocks(self, splits: Sequence[int]) -> Blocks:
        """What each block of sequences adds to its outer errors."""
        return {split: _mean([one.blocks[split] for one in self.preferred(split)]) for split in splits}

    def further(self, splits: Sequence[int], times: int) -> float:
        """What the mean would be if four times the steps, so many times, brought as much as the last four times did."""
        level = self.level(splits)
        before = mean_error(sum(_mean([[one.short[s]] for one in self.preferred(s)])) for s in splits)
        return level * min(1.0, level / before) ** times

    def usual(self, splits: Sequence[int]) -> str:
        """Who is preferred most often."""
        names = [self.preferred(split)[0].name for split in splits]
        return max(sorted(set(names)), key=names.count)

    def said(self, splits: Sequence[int]) -> str:
        """Who, and how well."""
        alone = all(len(self.preferred(split)) == 1 for split in splits)
        return f"{self.usual(splits)}{'' if alone else ' or alike'} {self.level(splits):.3g}"


def _mean(parts: Sequence[Sequence[float]]) -> list[float]:
    """Part by part; the mean of their sums where not all have as many."""
    alike = len({len(one) for one in parts}) == 1
    return np.mean([one if alike else [sum(one)] for one in parts], axis=0).tolist()


@dataclass(frozen=True)
class TwoSides:
    """Both sides on the splits that judge."""

    attention: Side
    without: Side
    splits: tuple[int, ...]
    worth: Compared

    @property
    def levels(self) -> str:
        """Both in words."""
        return f"{self.without.said(self.splits)} against {self.attention.said(self.splits)}"

    @property
    def learned(self) -> bool:
        """Whether anybody does better than the constant."""
        best = min(side.level(self.splits) for side in (self.attention, self.without))
        return best <= LEARNED or self.worth.high < 1

    @property
    def better(self) -> bool:
        """Whether attention is shown to have a smaller error, by a share that is worth naming."""
        return self.worth.high < 1 and self.worth.ratio <= 1 - LEAD and not self.little

    @property
    def no_better(self) -> bool:
        """Whether no such share is seen and a large one is excluded, or the constant's error leaves too little."""
        return self.little or (self.worth.ratio > 1 - LEAD and self.worth.low > 1 - GAIN)

    @property
    def little(self) -> bool:
        """Whether all that may be gained is so little of the constant's error that nobody takes attention for it."""
        return (1 - self.worth.low) * self.without.level(self.splits) <= FLOOR

    @property
    def may_turn(self) -> bool:
        """Whether four times the steps turn a gain over, or sixteen times an absent one: attention may learn late."""
        times = 1 if self.better else 2
        attention, without = (side.further(self.splits, times) for side in (self.attention, self.without))
        if self.better:
            return attention >= without
        return attention < (1 - GAIN) * without and without - attention > FLOOR
