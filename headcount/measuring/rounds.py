"""Seeds in rounds over the head counts: a first round that must be finished, then more while the time lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headcount.measuring.pacing import Clock, spread_out
from headcount.measuring.planning import StudyPlan
from headcount.measuring.timing import Rates
from headcount.results import Store
from headcount.training import Member, Outcome, Recipe, Sweep
from headcount.training.bank_jobs import environment
from headcount.training.loop import StepsMade
from headcount.training.progress import OnProgress
from headcount.training.sweeps import add_rows

__all__ = ["Rounds", "SeedCounts", "TrainBank"]

FIRST = 0.5  # of the time left that the first round may take by its estimate: a machine may get busier
WHOLE = 0.9  # of the time left that the plan may take
SIZES = (4, 2, 1)  # seeds of a round
MOST_SEEDS = 16  # for each head count, or four times as many as were asked for

SeedCounts = dict[int, int]  # by head count
TrainBank = Callable[[Sequence[Member], StepsMade], Outcome]


@dataclass(frozen=True, eq=False)
class Rounds:
    """A plan, what its banks take by the trial (None where no time is to be kept), and the clock."""

    plan: StudyPlan
    recipe: Recipe
    rates: Rates | None
    clock: Clock

    @property
    def first(self) -> int:
        """Seeds of the first round: four where half of the time left is enough for them, else two."""
        if self.clock.budget is None:
            return self.plan.seeds
        sizes = [size for size in SIZES[:-1] if size <= self.plan.seeds]
        return next((s for s in sizes if self._seconds(s) <= FIRST * self.clock.left), min(2, self.plan.seeds))

    def groups(self, members: Sequence[Member]) -> list[list[Member]]:
        """The members of the first round, a bank for each head count, in an order that can be cut."""
        banks: dict[int, list[Member]] = {}
        for member in members:
            banks.setdefault(heads_of(member), []).append(member)
        order = tuple(banks) if self.clock.budget is None else spread_out(tuple(banks))
        return [banks[heads] for heads in order]

    def stops(self, group: Sequence[Member], finished: int) -> bool:
        """Whether the first round ends before this bank; two head counts are needed to say anything."""
        return finished >= 2 and self.clock.budget is not None and not self.clock.fits(self.estimate(group))

    def estimate(self, bank: Sequence[Member]) -> float:
        """Seconds that a bank takes, by the trial."""
        return 0.0 if self.rates is None else self.rates.bank(heads_of(bank[0]), len(bank), self.recipe)

    def heard(self, train_bank: TrainBank) -> TrainBank:
        """The same training, with the clock listening."""

        def trained(bank: Sequence[Member], steps_made: StepsMade) -> Outcome:
            start = time.monotonic()
            outcome = train_bank(bank, steps_made)
            self.clock.took(self.estimate(bank), time.monotonic() - start)
            return outcome

        return trained

    def more(
        self, trained: Sequence[Member], store: Store, train_bank: TrainBank, on_progress: OnProgress, device: str
    ) -> list[Member]:
        """Further seeds of every head count in rounds, as long as one fits; the last round may leave some out."""
        members = list(trained)
        if self.clock.budget is None:
            return members
        while banks := self.next_round(members):
            asked = Sweep(tuple(members + [m for bank in banks for m in bank]), self.recipe)
            before = len(members)
            with on_progress(asked, banks, done=before) as progress:
                for bank in banks:
                    if not self.clock.fits(self.estimate(bank)):
                        return members
                    outcome = train_bank(bank, progress)
                    add_rows(store, bank, self.recipe, outcome.rows, environment(device, outcome.backend.name))
                    members += bank
                    progress.bank_done(len(bank))
        return members

    def next_round(self, members: Sequence[Member]) -> list[list[Member]]:
        """The banks of the largest round that fits, or those of a round of one seed that do, fewest heads first."""
        counts = seed_counts(members)
        room = max(MOST_SEEDS, 4 * self.plan.seeds) - max(counts.values())
        if len(set(counts.values())) > 1 or room < 1:
            return []  # the last round was cut, or there are seeds enough
        size = next((s for s in SIZES if s <= room and self.clock.fits(self._seconds(s))), 1)
        example = {heads_of(member): member for member in members}
        banks = [[replace(example[h], seed=counts[h] + i) for i in range(size)] for h in counts]
        fitting, spent = [], 0.0
        for bank in banks:
            spent += self.estimate(bank)
            if self.clock.fits(spent):
                fitting.append(bank)
        return fitting

    def _seconds(self, seeds: int) -> float:
        return 0.0 if self.rates is None else self.rates.seconds(self.plan, self.recipe, seeds)


def needed(plan: StudyPlan, recipe: Recipe, rates: Rates) -> float:
    """Seconds that must be left for a plan: its first round within half of them, all of it within nine tenths."""
    first, whole = (rates.seconds(plan, recipe, seeds) for seeds in (min(2, plan.seeds), plan.seeds))
    return plan.overhead * max(first / FIRST, whole / WHOLE)


def seed_counts(members: Sequence[Member]) -> SeedCounts:
    """How many seeds each head count has, fewest heads first."""
    counts: SeedCounts = {}
    for member in sorted(members, key=heads_of):
        counts[heads_of(member)] = counts.get(heads_of(member), 0) + 1
    return counts


def heads_of(member: Member) -> int:
    """The heads of a member's first layer."""
    return member.arch.layers[0][0]
