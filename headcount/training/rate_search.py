"""The learning rate chosen per shape: a search over rates inside the bank, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headcount.training.member import Member, Recipe

LOST = 1.0  # a run that diverged counts as what predicting the mean scores


@dataclass(frozen=True)
class ChosenRates:
    """The rate of every shape, whether it lies at an end of those tried, and the part of the sweep's steps it added."""

    rates: tuple[tuple[Member, float], ...]
    tried: tuple[float, ...]
    networks: int
    steps: int
    cost: float
    at_end: int
    diverged: int

    def rated(self, members: Iterable[Member]) -> tuple[Member, ...]:
        """The members, each at the rate of its shape."""
        rates = dict(self.rates)
        return tuple(replace(member, lr=rates[shape_of(member)]) for member in members)

    def to_json(self) -> dict[str, object]:
        """What the spec says about the search: the rates, and the networks and steps that finding them took."""
        chosen = [
            {"length": m.task.length, "layers": m.net.name, "width": m.net.width, "lr": rate} for m, rate in self.rates
        ]
        return {
            "tried": list(self.tried),
            "networks": self.networks,
            "steps": self.steps,
            "cost": self.cost,
            "at_end": self.at_end,
            "diverged": self.diverged,
            "chosen": chosen,
        }

    @property
    def sentence(self) -> str:
        """What the search did, in words."""
        ends = f"; {self.at_end} lie at an end of the rates tried" if self.at_end else ""
        return (
            f"the rate was chosen per shape among {len(self.tried)} by {self.networks} networks of {self.steps} steps, "
            f"{self.cost:.0%} of the sweep's own steps on top{ends}"
        )


@dataclass(frozen=True)
class RateSearch:
    """Train every shape at every rate with its first seeds, and keep the best rate; what is kept is not trained again.

    With a `share` below 1 trials take that part of the steps: cheaper, and misleading. A shorter horizon has a larger
    best rate, and where training breaks right above the best rate, as without noise, what wins a short trial breaks a
    long one. In the 28 cells of Tables 2 to 4 (docs/log.md), trials of a quarter of the steps chose rates whose median
    NMSE is 4 times that of the best rate, in 17 cells more than 3 times and up to 9e4; trials of all steps at most 2
    times, with one seed as with three.

    >>> RateSearch().cost(seeds=3), round(RateSearch(share=0.25).cost(seeds=3), 3)
    (2.0, 0.583)
    """

    rates: tuple[float, ...] = tuple(float(f"{5e-4 * 10 ** (i / 3):.3g}") for i in range(7))
    share: float = 1.0
    seeds: int = 1

    def __post_init__(self) -> None:
        if len(self.rates) < 3 or min(self.rates) <= 0:
            raise ValueError(f"a search needs three positive rates, got {list(self.rates)}")
        if not 0 < self.share <= 1:
            raise ValueError(f"share is the part of the steps that a trial takes, in (0, 1]; got {self.share}")
        if self.seeds < 1:
            raise ValueError(f"a search needs a seed, got {self.seeds}")

    def cost(self, seeds: int) -> float:
        """Steps that the search adds to those of a sweep with so many seeds, as a part of these."""
        own = self.share == 1  # then a trial at the chosen rate is one of the sweep's own networks
        return self.share * (len(self.rates) - own) * min(self.seeds, seeds) / seeds

    def recipe(self, recipe: Recipe) -> Recipe:
        """The recipe of a trial: the same on a share of the epochs, with its own decay."""
        return replace(recipe, epochs=max(1, round(self.share * recipe.epochs)))

    def trials(self, members: Sequence[Member]) -> tuple[Member, ...]:
        """The networks to try: every shape's first seeds at every rate."""
        shapes: dict[Member, list[Member]] = {}
        for member in members:
            shapes.setdefault(shape_of(member), []).append(member)
        candidates = [member for same in shapes.values() for member in same[: self.seeds]]
        return tuple(replace(member, lr=rate) for member in candidates for rate in sorted(self.rates))

    def chosen(
        self, members: Sequence[Member], recipe: Recipe, trials: Sequence[Member], rows: Iterable[Mapping[str, Any]]
    ) -> ChosenRates:
        """The best rate of every shape: the smallest mean NMSE over its trials, a diverged one counting as 1."""
        short = self.recipe(recipe)
        by_run = {row["run"]: row for row in rows}
        errors: dict[Member, dict[float, list[float]]] = {}
        for trial in trials:
            nmse = _nmse(by_run[trial.run(short)])
            errors.setdefault(shape_of(trial), {}).setdefault(trial.lr, []).append(nmse)
        rates = {shape: min(by_rate, key=lambda r: sum(by_rate[r])) for shape, by_rate in errors.items()}
        ends = sum(rate in (min(self.rates), max(self.rates)) for rate in rates.values())
        lost = sum(by_run[trial.run(short)].get("status") == "diverged" for trial in trials)
        own = len(trials) // len(self.rates) if short == recipe else 0  # trials that are the sweep's own networks
        cost = (len(trials) - own) * short.steps / (len(members) * recipe.steps)
        tried = tuple(sorted(self.rates))
        return ChosenRates(tuple(rates.items()), tried, len(trials), short.steps, cost, ends, lost)


def shape_of(member: Member) -> Member:
    """The member without what a search ranges over: its rate and its seeds."""
    return replace(member, lr=1.0, seed=0, data_seed=0)


def _nmse(row: Mapping[str, Any]) -> float:
    nmse = row["nmse"]
    if row.get("status") == "diverged" or nmse is None or not math.isfinite(nmse):
        return LOST
    return min(nmse, LOST)
