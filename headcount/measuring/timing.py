"""How long a plan takes here: a few steps are timed, with the fewest and the most heads, on one thread and on all."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf

import torch

from headcount.measuring.pacing import with_threads
from headcount.measuring.planning import StudyPlan
from headcount.measuring.subject import Subject
from headcount.training import Member, Recipe

__all__ = ["Rate", "Rates", "threads_for", "timed"]

LONG = 0.25  # seconds a trial should last to be worth believing
STEPS = (8, 32)  # that it makes: the more where the fewer were too short
THREAD_STEPS = 4  # by which one thread and several are compared
FASTER = 0.9  # of one thread's time that several must stay below: they take it from whoever else computes here
FIXED = 2.0  # a step of a bank costs as this many seeds more: 1, 2, 4 and 8 seeds took 0.7, 1, 1.5 and 2.9


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

    def bank(self, heads: int, seeds: int, recipe: Recipe) -> float:
        """What a bank takes: linear in heads between the two timed, and in seeds with a part that all share.

        >>> rates = Rates((1, Rate(1.0, 0.0)), (3, Rate(3.0, 0.0)), seeds=2)
        >>> rates.bank(2, 2, Recipe(10, 2, 1, 10)), rates.bank(2, 6, Recipe(10, 2, 1, 10))
        (2.0, 4.0)
        """
        (low, quick), (high, slow) = self.few, self.many
        ends = quick.of(recipe), slow.of(recipe)
        here = ends[0] + (ends[1] - ends[0]) * (heads - low) / (high - low)
        return max(here, 0.0) * (seeds + FIXED) / (self.seeds + FIXED)

    def seconds(self, plan: StudyPlan, recipe: Recipe, seeds: int | None = None) -> float:
        """What a plan takes, or a round of so many seeds over its head counts.

        >>> rates = Rates((1, Rate(1.0, 0.0)), (3, Rate(3.0, 0.0)), seeds=2)
        >>> rates.seconds(StudyPlan((1, 2, 3), 2), Recipe(10, 2, 1, 10))
        6.0
        """
        return sum(self.bank(heads, seeds or plan.seeds, recipe) for heads in plan.heads)


def timed(subject: Subject, plan: StudyPlan, seconds: float = inf) -> Rates:
    """The rates of the plan's smallest and largest head count on this machine, now, within about so many seconds."""
    few, many = plan.heads[0], plan.heads[-1]
    rates = (_rate(subject, plan, heads, seconds / 2) for heads in (few, many))
    return Rates((few, next(rates)), (many, next(rates)), plan.seeds)


def threads_for(subject: Subject, plan: StudyPlan) -> int:
    """One thread, or all that torch has been given where those are faster now: beside another job they seldom are."""
    most = torch.get_num_threads()
    if most == 1 or torch.device(subject.device).type != "cpu":
        return most
    members, recipe = subject.members(plan, plan.heads[-1]), subject.recipe(plan)

    def once(threads: int, steps: int) -> float:
        with with_threads(threads):
            return _seconds(subject, members, _short(recipe, steps))

    once(1, 1)  # wake up what sleeps until it is used
    alone = once(1, THREAD_STEPS)
    # A single step first: threads that wait for each other beside a busy process may take fifty times as long.
    return most if once(most, 1) < 2 * alone and once(most, THREAD_STEPS) < FASTER * alone else 1


def _rate(subject: Subject, plan: StudyPlan, heads: int, allowed: float) -> Rate:
    members, recipe = subject.members(plan, heads), subject.recipe(plan)
    _seconds(subject, members, _short(recipe, 1))  # wake up what sleeps until it is used
    short = _short(recipe, STEPS[0])
    once = _seconds(subject, members, short)
    if 7 * once > allowed:  # what follows takes six times as long: a look is a forward, a third of a step
        return Rate(once / short.steps, once / short.steps * 2 * recipe.validation / (3 * recipe.batch))
    if once < LONG and 7 * once * STEPS[1] / STEPS[0] < allowed:
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
