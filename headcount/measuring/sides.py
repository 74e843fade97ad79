"""Both sides of a contest: with attention, a rule that chooses by inner parts, and everybody without it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from headcount.measuring.head_counts import LEAD, within
from headcount.measuring.paired_ratios import LEAST, Blocks, Compared, SplitErrors, compare, continued, mean_error
from headcount.measuring.planning import FLOOR, RUNGS, SHORT
from headcount.measuring.splitting import FOLDS

GAIN = 0.2  # of the error: attention is not worth it only where so much to gain is excluded
ATTENTION = "attention"  # the name of its side
LEARNED = 0.95  # an error above this share of the constant's is the constant's but for noise


@dataclass(frozen=True)
class Side:
    """Networks as one: for every outer part one of those that its inner parts prefer.

    Inner parts do not tell contestants within the tolerance of the best apart: any of them may stand for the side, and
    its error is the mean of theirs. All must have been searched and stopped by inner parts alike: who searches more has
    the smaller error there.
    """

    members: tuple[SplitErrors, ...]

    def preferred(self, split: int) -> list[SplitErrors]:
        """Who may stand for it in a split, the best by inner parts first."""
        errors = [(max(one.chosen_by(split), LEAST), one.name, one) for one in self.members if split in one.outer]
        errors.sort(key=lambda each: each[:2])
        return [one for error, _, one in errors if error <= within(LEAD, errors[0][0]) * errors[0][0]]

    def on(self, split: int) -> bool:
        """Whether anybody has been on a split."""
        return any(split in one.outer for one in self.members)

    def level(self, splits: Sequence[int]) -> float:
        """The mean of its outer error."""
        return mean_error([sum(parts) for parts in self.blocks(splits).values()])

    def blocks(self, splits: Sequence[int]) -> Blocks:
        """What each block of sequences adds to its outer errors."""
        return {split: _mean([one.blocks[split] for one in self.preferred(split)]) for split in splits}

    def further(self, splits: Sequence[int], times: float) -> float:
        """What the mean would be after more steps, as of one contestant."""
        before = mean_error([sum(_mean([[one.short[s]] for one in self.preferred(s)])) for s in splits])
        return continued(self.level(splits), before, times)

    def usual(self, splits: Sequence[int]) -> str:
        """Who is preferred most often."""
        names = [self.preferred(split)[0].name for split in splits]
        return max(sorted(set(names)), key=names.count)

    def said(self, splits: Sequence[int]) -> str:
        """How well, and who."""
        names = {one.name for split in splits for one in self.preferred(split)}
        return f"{self.level(splits):.3g} with attention ({self.usual(splits)}{' or alike' if len(names) > 1 else ''})"


def _mean(parts: Sequence[Sequence[float]]) -> list[float]:
    """Part by part; the mean of their sums where not all have as many."""
    alike = len({len(one) for one in parts}) == 1
    return np.mean([one if alike else [sum(one)] for one in parts], axis=0).tolist()


@dataclass(frozen=True)
class Opponent:
    """Somebody without attention, the splits that judge and have it, and the error with attention over its own."""

    errors: SplitErrors
    splits: tuple[int, ...]
    versus: Compared

    @property
    def level(self) -> float:
        """Its mean error."""
        return self.errors.mean(self.splits)

    @property
    def beaten(self) -> bool:
        """Whether attention is shown to have a smaller error, by a share that is worth naming."""
        return self.versus.high < 1 and self.versus.ratio <= 1 - LEAD and not self.little

    @property
    def as_good(self) -> bool:
        """Whether no such share is seen and a large one is excluded, or too little may be gained."""
        return self.little or (self.versus.ratio > 1 - LEAD and self.versus.low > 1 - GAIN)

    @property
    def little(self) -> bool:
        """Whether all that may be gained is so little of the constant's error that nobody takes attention for it."""
        return (1 - self.versus.low) * self.level <= FLOOR


@dataclass(frozen=True)
class TwoSides:
    """Attention on the splits that judge, and everybody without it: each alone, so that nobody is chosen there.

    Attention must be shown to be better than each of them (an intersection-union test: Berger, "Multiparameter
    hypothesis testing and acceptance sampling", Technometrics 24, 1982); one that is as good decides against it.
    """

    attention: Side
    without: tuple[SplitErrors, ...]
    splits: tuple[int, ...]
    steps: int = 0

    @cached_property
    def opponents(self) -> tuple[Opponent, ...]:
        """Everybody without attention who was on these splits, the best of them first."""
        blocks = self.attention.blocks(self.splits)
        own = [(one, tuple(split for split in self.splits if split in one.outer)) for one in self.without]
        opponents = [
            Opponent(one, some, compare(blocks, one.blocks, (ATTENTION, one.name))) for one, some in own if some
        ]
        return tuple(
            sorted(opponents, key=lambda opponent: (opponent.versus.ratio, opponent.errors.name), reverse=True)
        )

    @property
    def worth(self) -> Compared:
        """The error with attention over that of the best without it."""
        return self.opponents[0].versus

    @property
    def levels(self) -> str:
        """Both in words."""
        best = self.opponents[0]
        return f"{best.errors.name} {best.level:.3g} against {self.attention.said(self.splits)}"

    @property
    def least(self) -> float:
        """The smallest error of all."""
        return min(self.attention.level(self.splits), *(opponent.level for opponent in self.opponents))

    @property
    def learned(self) -> bool:
        """Whether anybody does better than the constant; where attention diverged, nothing is known of that."""
        return self.least <= LEARNED or self.worth.high < 1 or not math.isfinite(self.attention.level(self.splits))

    @property
    def better(self) -> bool:
        """Whether attention is shown to be better than each."""
        return all(opponent.beaten for opponent in self.opponents)

    @property
    def no_better(self) -> bool:
        """Whether somebody is as good."""
        return any(opponent.as_good for opponent in self.opponents)

    @property
    def diverged(self) -> bool:
        """Whether somebody lost everything on a split, which no more of them mend."""
        return not all(0 < one.versus.ratio < math.inf for one in self.opponents)

    def settled_by(self, splits: int) -> bool:
        """Whether so many splits would tell, if the ratios stayed; of fewer than outer parts nothing is known."""
        if not FOLDS <= len(self.splits) < splits:
            return len(self.splits) < splits
        then = [replace(one, versus=one.versus.after(splits)) for one in self.opponents]
        return all(one.beaten for one in then) or any(one.as_good for one in then)

    @property
    def may_turn(self) -> bool:
        """Whether the longest training would turn a gain over, or bring an absent one: attention may learn late."""
        if self.better:
            return any(attention >= without for attention, without in map(self._further, self.opponents))
        deciding = (self._further(opponent) for opponent in self.opponents if opponent.as_good)
        return all(attention < (1 - GAIN) * without and without - attention > FLOOR for attention, without in deciding)

    def _further(self, opponent: Opponent) -> tuple[float, float]:
        """Both after as many steps as a budget takes at most, if they fell on as in the last four-fold."""
        times = max(0.0, math.log(RUNGS[-1] / (self.steps or RUNGS[0]), SHORT))
        return self.attention.further(opponent.splits, times), opponent.errors.further(opponent.splits, times)
