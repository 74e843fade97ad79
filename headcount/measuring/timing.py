"""How long a plan takes here: a few steps are timed with the fewest and the most heads, the rest is arithmetic."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from headcount.measuring.planning import StudyPlan
from headcount.measuring.subject import Subject
from headcount.training import Member, Recipe

__all__ = ["Rate", "Rates", "timed"]

LONG = 0.25  # seconds a trial should last to be worth believing
STEPS = (8, 32)  # that it makes: the more where the fewer were too short


@dataclass(frozen=True)
class Rate:
    """Seconds per step and seconds per look at the validation part, of one bank."""

    step: float
    look: float

    def of(self, recipe: Recipe) -> float:
        """Seconds that a whole training takes."""
        return recipe.steps * self.step + recipe.evaluations * self.look


@dataclass(frozen=True)
class Rates:
    """The rates at two head counts, with as many seeds as the plan that was timed."""

    few: tuple[int, Rate]
    many: tuple[int, Rate]
    seeds: int

    def seconds(self, plan: StudyPlan, recipe: Recipe) -> float:
        """What a plan takes: linear in heads between the two timed, and in seeds.

        >>> rates = Rates((1, Rate(1.0, 0.0)), (3, Rate(3.0, 0.0)), seeds=2)
        >>> rates.seconds(StudyPlan((1, 2, 3), 2), Recipe(10, 2, 1, 10))
        6.0
        """
        (low, quick), (high, slow) = self.few, self.many
        ends = quick.of(recipe), slow.of(recipe)
        banks = (ends[0] + (ends[1] - ends[0]) * (heads - low) / (high - low) for heads in plan.heads)
        return sum(banks) * plan.seeds / self.seeds


def timed(subject: Subject, plan: StudyPlan) -> Rates:
    """The rates of the plan's smallest and largest head count on this machine, now."""
    few, many = plan.heads[0], plan.heads[-1]
    return Rates((few, _rate(subject, plan, few)), (many, _rate(subject, plan, many)), plan.seeds)


def _rate(subject: Subject, plan: StudyPlan, heads: int) -> Rate:
    members, recipe = subject.members(plan, heads), subject.recipe(plan)
    _seconds(subject, members, _short(recipe, 1))  # wake up what sleeps until it is used
    short = _short(recipe, STEPS[0])
    once = _seconds(subject, members, short)
    if once < LONG:
        short = _short(recipe, STEPS[1])
        once = _seconds(subject, members, short)
    # Three epochs with one look and with three: the differences are two epochs of steps and two looks.
    thrice = _seconds(subject, members, replace(short, epochs=3))
    looked = _seconds(subject, members, replace(short, epochs=3, evaluations=3))
    step = max((thrice - once) / (2 * short.steps), once / (8 * short.steps))
    return Rate(step, max((looked - thrice) / 2, 0.0))


def _short(recipe: Recipe, steps: int) -> Recipe:
    """One epoch of so few steps, with one look."""
    return replace(recipe, samples=min(recipe.samples, steps * recipe.batch), epochs=1, evaluations=1)


def _seconds(subject: Subject, members: list[Member], recipe: Recipe) -> float:
    trial = subject.shortened(recipe.samples)
    start = time.perf_counter()
    trial.train(members, recipe)
    return time.perf_counter() - start
