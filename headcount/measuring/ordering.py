"""Whether the order of tokens matters: a few networks that see it and a few that do not, before anything else."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from headcount.measuring.planning import PLACES, StudyPlan
from headcount.measuring.subject import Subject
from headcount.numerals import counted
from headcount.results.study import Row

__all__ = ["OrderTrial", "try_order"]

TRIED = 3  # networks of each kind; of six in a row by level, three of one kind come first by chance once in ten
SHARE = 1 / 3  # of the plan's steps
TELLING = 0.8  # one level over the other from which so few networks tell a difference


@dataclass(frozen=True)
class OrderTrial:
    """The levels that networks reach without and with positions; `series` where the data are windows of time.

    Positions are shown where they lower the level by a fifth and no network of one kind lies among those of the other
    (`apart`). Where neither kind is ahead by so much, windows of a
    series keep them and other sequences go without.

    >>> OrderTrial(without=0.5, placed=0.2, heads=3, networks=3, steps=1000, series=False).positions
    8
    """

    without: float
    placed: float
    heads: int
    networks: int
    steps: int
    series: bool
    apart: bool = True

    @property
    def positions(self) -> int:
        """Position features that the networks shall see."""
        helps = self.apart and self.placed < TELLING * self.without
        harms = self.apart and self.without < TELLING * self.placed
        return PLACES if helps or (self.series and not harms) else 0

    @property
    def sentence(self) -> str:
        """What was tried, what came of it, and what follows."""
        sizes = f"{counted(self.heads, 'head')} and {counted(self.steps, 'step')}"
        tried = f"{counted(self.networks, 'network')} of {sizes}"
        found = f"with the order of tokens {tried} leave {self.placed:.2g}, without it {self.without:.2g}"
        follows = f"every token carries {PLACES} features of its place" if self.positions else "no order is shown"
        return f"Asked first: {found}, so {follows}."

    def to_json(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return asdict(self)


def try_order(subject: Subject, plan: StudyPlan, steps: int | None = None) -> OrderTrial:
    """Train a few networks of a middling head count without and with positions, and compare their levels.

    >>> from headcount.measuring.sequences import sequences
    >>> x = np.random.default_rng(0).standard_normal((300, 4, 1))
    >>> subject = Subject.of(sequences(x, x[:, 0, 0]), 0, "cpu")
    >>> try_order(subject, StudyPlan(steps=600)).positions
    8
    """
    heads = plan.heads[(len(plan.heads) - 1) // 2]
    short = replace(plan, seeds=TRIED, steps=steps or max(10, round(SHARE * plan.steps)))
    without, placed = (_losses(subject, replace(short, positions=count), heads) for count in (0, PLACES))
    made = subject.recipe(short).steps
    apart = max(placed) < min(without) or max(without) < min(placed)
    series = subject.data.apart is not None
    return OrderTrial(_level(without), _level(placed), heads, short.seeds, made, series, apart)


def _losses(subject: Subject, plan: StudyPlan, heads: int) -> list[float]:
    """The level of every network, smallest first; one that diverged is infinitely bad."""
    rows: tuple[Row, ...] = subject.train(subject.members(plan, heads), subject.recipe(plan)).rows
    return sorted(math.inf if row["nmse"] is None else row["nmse"] for row in rows)


def _level(losses: list[float]) -> float:
    """The geometric mean of the better half."""
    return float(np.exp(np.mean(np.log(losses[: (len(losses) + 1) // 2]))))
