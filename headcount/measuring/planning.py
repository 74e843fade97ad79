"""What will be trained, how long it takes and how much memory it needs, and how it shrinks to keep to a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Literal

from headcount.nets import Architecture
from headcount.numerals import spoken_bytes, spoken_time
from headcount.training import RateSearch, Recipe

__all__ = ["CostEstimate", "StudyPlan", "fitting", "grown", "seconds", "smaller"]


MOST_STEPS = 4  # times the steps asked for, where the time given allows for them
PLACES = 8  # position features where the order matters: the place, and almost four turns of sine and cosine


@dataclass(frozen=True)
class StudyPlan:
    """Head counts at one state width, seeds, and how each network is trained.

    `positions` is how many features tell a token its place; None asks the data: a few networks with and without
    are trained first. With `lr="best"` a search chooses the rate of every head count first, so that a knee is a knee
    and no bad learning rate.

    >>> StudyPlan(heads=(1, 3)).arch(3, outputs=1).as_dict()
    {'layers': ((3, 8),), 'width': 32, 'positions': 0, 'embed_dim': 24}
    """

    heads: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    seeds: int = 4
    steps: int = 3000
    embed_dim: int = 24  # divisible by 1, 2, 3, 4, 6 and 8
    width: int = 32
    layers: int = 1
    positions: int | None = None
    batch: int = 100
    lr: float | Literal["best"] = 1e-2

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(sorted(set(self.heads))))
        if len(self.heads) < 2 or self.heads[0] < 1:
            raise ValueError(f"heads must be at least two counts of 1 or more, got {list(self.heads)}")
        for name, least in (("seeds", 2), ("steps", 10), ("layers", 1), ("batch", 1), ("positions", 0)):
            if getattr(self, name) is not None and getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def arch(self, heads: int, outputs: int) -> Architecture:
        """The network with so many heads: the state keeps its width, a head's dimension is its share rounded up."""
        shape = (heads, ceil(self.embed_dim / heads))
        return Architecture((shape,) * self.layers, self.width, self.positions or 0, self.embed_dim, outputs)

    @property
    def order(self) -> str:
        """What the networks see of the order of tokens, as a sentence."""
        if self.positions:
            return f"Every token carries {self.positions} features of its place."
        return f"The networks see no order among tokens; {PLACES} position features would show it to them."

    def recipe(self, samples: int, validation: int) -> Recipe:
        """The steps as whole epochs over the training part."""
        batch = min(self.batch, samples)
        epochs = max(1, round(self.steps / (samples // batch)))
        return Recipe(samples, validation, epochs, batch, evaluations=min(40, epochs))

    @property
    def search(self) -> RateSearch | None:
        """The search for the rate of every head count, where the plan asks for it."""
        return RateSearch() if self.lr == "best" else None

    @property
    def overhead(self) -> float:
        """How much more is trained than the networks that are measured: the steps of the search for their rates.

        >>> StudyPlan().overhead, StudyPlan(lr="best").overhead
        (1.0, 2.5)
        """
        return 1.0 + (self.search.cost(self.seeds) if self.search else 0.0)

    def to_json(self) -> dict[str, Any]:
        """The plan, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class CostEstimate:
    """What a plan takes: seconds from a timed trial, bytes that the process holds at its peak."""

    seconds: float
    memory: int

    def __str__(self) -> str:
        return f"about {spoken_time(self.seconds)} and {spoken_bytes(self.memory)}"


def smaller(plan: StudyPlan) -> Iterator[tuple[StudyPlan, str]]:
    """The plan and ever smaller ones, each with what was given up: steps, then seeds, then head counts, then steps.

    >>> [words for _, words in smaller(StudyPlan())][:3]
    ['', '2000 steps instead of 3000', '1500 steps instead of 3000']
    """
    yield plan, ""
    shrunk = plan
    for steps in (2 / 3, 1 / 2):
        shrunk = replace(plan, steps=max(10, round(plan.steps * steps)))
        yield shrunk, _given_up(plan, shrunk)
    for change in (_fewer_seeds, _fewer_heads, _fewer_seeds, *(_fewer_steps, _fewer_heads) * 2, *(_fewer_steps,) * 2):
        changed = change(shrunk, plan)
        if changed != shrunk:
            shrunk = changed
            yield shrunk, _given_up(plan, shrunk)


def fitting(plan: StudyPlan, cost: Callable[[StudyPlan], float], budget: float | None) -> tuple[StudyPlan, str]:
    """The first of the ever smaller plans whose cost in seconds is within the budget, and what was given up for it.

    Where none is, the smallest is taken and what is given up says so.

    >>> fitting(StudyPlan(), lambda plan: plan.steps / 10, budget=200.0)[1]
    '2000 steps instead of 3000'
    >>> fitting(StudyPlan(), lambda plan: plan.steps / 10, budget=1.0)[1]
    '100 steps instead of 3000, 2 seeds instead of 4, head counts 1, 4, 8 only (the smallest there is: about 10 s)'
    """
    if budget is None:
        return plan, ""
    candidate, words, least = plan, "", 0.0
    for candidate, words in smaller(plan):
        least = cost(candidate)
        if least <= budget:
            return candidate, words
    smallest = f"the smallest there is: about {spoken_time(least)}"
    return candidate, f"{words} ({smallest})" if words else smallest


def grown(plan: StudyPlan, room: float) -> StudyPlan:
    """The plan with more steps, where there is room for several times what it takes with twice its seeds.

    >>> grown(StudyPlan(), 2.5).steps, grown(StudyPlan(), 1.1).steps, grown(StudyPlan(), 100.0).steps
    (7500, 3000, 12000)
    """
    return plan if room < 1.25 else replace(plan, steps=round(plan.steps * min(room, MOST_STEPS)))


def seconds(text: str) -> float:
    """A time such as 90, 90s, 5m or 1h, in seconds.

    >>> seconds("5m"), seconds("1.5h"), seconds("90")
    (300.0, 5400.0, 90.0)
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*(s|m|h|min|)\s*", text)
    if not found or float(found[1]) <= 0:
        raise ValueError(f"a time such as 90s, 5m or 1h is needed, got {text!r}")
    return float(found[1]) * {"s": 1, "": 1, "m": 60, "min": 60, "h": 3600}[found[2]]


def _fewer_seeds(plan: StudyPlan, asked: StudyPlan) -> StudyPlan:
    return replace(plan, seeds=max(2, min(plan.seeds, plan.seeds - 1)))


def _fewer_heads(plan: StudyPlan, asked: StudyPlan) -> StudyPlan:
    """Every other head count, counted from the largest; the smallest stays."""
    kept = {plan.heads[0], *plan.heads[::-1][::2]}
    return replace(plan, heads=tuple(kept)) if len(kept) >= 3 else plan


def _fewer_steps(plan: StudyPlan, asked: StudyPlan) -> StudyPlan:
    return replace(plan, steps=max(min(plan.steps, 100), plan.steps // 2))


def _given_up(asked: StudyPlan, plan: StudyPlan) -> str:
    parts = [
        f"{getattr(plan, name)} {name} instead of {getattr(asked, name)}"
        for name in ("steps", "seeds")
        if getattr(plan, name) != getattr(asked, name)
    ]
    if plan.heads != asked.heads:
        parts.append(f"head counts {', '.join(map(str, plan.heads))} only")
    return ", ".join(parts)
