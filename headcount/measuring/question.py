"""One question to given data: the trial, what needs no attention, a plan that fits the time, networks, the answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch

from headcount.fits import Measurement
from headcount.frozen import decode
from headcount.measuring.baselines import Baseline, baselines
from headcount.measuring.ordering import OrderTrial, try_order
from headcount.measuring.pacing import Clock
from headcount.measuring.planning import PLACES, CostEstimate, StudyPlan, fitting, grown
from headcount.measuring.rounds import Rounds, SeedCounts, heads_of, needed, seed_counts
from headcount.measuring.subject import Subject
from headcount.measuring.timing import Rates, threads_for, timed
from headcount.numerals import counted, spoken_time
from headcount.report import write_measured
from headcount.results import Store
from headcount.results.study import Row
from headcount.training import Member, Outcome, Recipe, Sweep
from headcount.training.loop import StepsMade
from headcount.training.progress import OnProgress
from headcount.training.sweeps import searched, train_banks

__all__ = ["Question", "as_read", "placed"]

TRIAL_SHARE = 0.1  # of the time given, for timing
ORDER_SHARE = 0.1  # of the time given, for asking whether order matters
BASELINE_SHARE = 0.1  # of the time given, for the network with zero heads

Say = Callable[[str], None]


@dataclass(frozen=True)
class SettledPlan:
    """What is known before the networks are trained: their plan, what it gave up, and what needs no attention.

    `milliseconds` are what a sequence takes, by head count. `rates` are those of the trial, None where an earlier call
    made it; `seeds` are those that it trained.
    """

    plan: StudyPlan
    given_up: str
    baselines: tuple[Baseline, ...]
    order: OrderTrial | None
    threads: int
    milliseconds: dict[str, float]
    rates: Rates | None = None
    seeds: SeedCounts | None = None

    @property
    def order_said(self) -> str:
        return self.plan.order if self.order is None else self.order.sentence


@dataclass(frozen=True, eq=False)
class Question:
    """One question: these data, this plan, this much time."""

    subject: Subject
    plan: StudyPlan
    clock: Clock
    saved: bool
    say: Say
    on_progress: OnProgress

    def answer(self, store: Store, command: str) -> Measurement:
        """Train what the store lacks and read the rows."""
        kept = self.resumed(store) or self.fitted()
        torch.set_num_threads(kept.threads)
        if kept.given_up:
            self.say(f"To keep to {spoken_time(self.clock.budget or 0)}: {kept.given_up}.")
        measurement = Measurement(store.study(self.train(store, kept)))
        return replace(measurement, files=write_measured(measurement, command=command))

    @property
    def wording(self) -> dict[str, Any]:
        return {"data": self.subject.digest, "plan": self.plan.to_json(), "budget": self.clock.budget}

    def resumed(self, store: Store) -> SettledPlan | None:
        """The plan made for the same question before an interruption: a new one would not fit the rows kept."""
        for stated in reversed(store.specs()):
            spec = store.head(stated.content).spec
            if spec.get("question") == as_read(self.wording):
                plan = decode(StudyPlan, spec["plan"], "the plan of the store")
                without = tuple(Baseline(**base) for base in spec.get("baselines", ()))
                order = None if spec.get("order") is None else OrderTrial(**spec["order"])
                seeds = {int(heads): count for heads, count in spec.get("seeds", {}).items()} or None
                threads = spec.get("threads", torch.get_num_threads())
                return SettledPlan(
                    plan, spec["given_up"], without, order, threads, spec.get("milliseconds", {}), seeds=seeds
                )
        return None

    def fitted(self) -> SettledPlan:
        """The plan that fits the time, after a timed trial; its estimate is said before it is trained."""
        threads = threads_for(self.subject, placed(self.plan))
        torch.set_num_threads(threads)
        rates = timed(self.subject, placed(self.plan), TRIAL_SHARE * (self.clock.budget or inf))
        order = self.ordered(rates)
        settled = self.plan if order is None else replace(self.plan, positions=order.positions)
        self.say(settled.order if order is None else order.sentence)
        allowed = None if self.clock.budget is None else BASELINE_SHARE * self.clock.budget
        without = baselines(self.subject, settled, allowed)
        plan, given_up = self.within_time(settled, rates)
        seconds = plan.overhead * rates.seconds(plan, self.subject.recipe(plan))
        steps = counted(self.subject.recipe(plan).steps, "step")
        networks = f"{counted(len(plan.heads) * plan.seeds, 'network')} of {steps}"
        self.say(f"{networks} take {CostEstimate(seconds, self.subject.memory(plan))}.")
        taken = {str(heads): self.subject.milliseconds(plan, heads) for heads in plan.heads}
        return SettledPlan(plan, given_up, without, order, threads, taken, rates)

    def within_time(self, settled: StudyPlan, rates: Rates) -> tuple[StudyPlan, str]:
        """The plan made smaller until it fits the time left, or its steps more where there is plenty."""
        if self.clock.budget is None:
            return settled, ""
        if self.saved:  # a network of the plan is trained once more at the end
            self.clock.reserve += rates.bank(settled.heads[-1], settled.seeds, self.subject.recipe(settled))
        left = self.clock.left - self.clock.reserve
        plan, given_up = fitting(settled, lambda p: needed(p, self.subject.recipe(p), rates), left)
        if given_up:
            return plan, given_up
        twice = replace(plan, seeds=2 * plan.seeds)
        return grown(plan, left / max(needed(twice, self.subject.recipe(twice), rates), 1e-9)), ""

    def ordered(self, rates: Rates) -> OrderTrial | None:
        """Whether order matters, where the plan asks; of a time to keep to, a tenth goes into it."""
        if self.plan.positions is not None:
            return None
        whole, budget = rates.seconds(placed(self.plan), self.subject.recipe(placed(self.plan))), self.clock.budget
        share = 1.0 if budget is None else min(1.0, ORDER_SHARE * budget * len(self.plan.heads) / whole)
        return try_order(self.subject, self.plan, max(10, round(share * self.plan.steps / 3)))

    def train(self, store: Store, kept: SettledPlan) -> str:
        """Train and keep the networks that are missing, the first round whole and then more as the time lasts.

        The address of the spec in the store comes back.
        """
        plan, subject = kept.plan, self.subject
        recipe, rates = subject.recipe(plan), kept.rates
        if rates is None and self.clock.budget is not None and kept.seeds is None:
            rates = timed(subject, plan)
        rounds = Rounds(plan, recipe, rates, self.clock)
        counts = kept.seeds or dict.fromkeys(plan.heads, rounds.first)
        members = [member for heads in counts for member in subject.members(plan, heads, counts[heads])]
        asked = Sweep(tuple(members), recipe, subject.data.name)
        if plan.search is not None:
            trained = lambda trials: store.study(self.trained(trials, store, kept, None))  # noqa: E731
            asked = searched(asked, plan.search, trained)
            self.say(f"{str(asked.chosen and asked.chosen.sentence).capitalize()}.")
        spec = self.trained(asked, store, kept, rounds)
        if kept.seeds is not None or self.clock.budget is None or store.missing(m.run(recipe) for m in asked.members):
            return spec
        more = rounds.more(
            asked.members, store, rounds.heard(self.bank_trainer(recipe)), self.on_progress, subject.device
        )
        return self.stated(asked, store, kept, more)

    def stated(self, asked: Sweep, store: Store, kept: SettledPlan, members: Sequence[Member]) -> str:
        """The spec once more, with all the seeds that the time allowed for."""
        counts = seed_counts(members)
        few, many = min(counts.values()), max(counts.values())
        if few < self.plan.seeds and f"{few} seeds" not in kept.given_up:
            short = f"{few} seeds instead of {self.plan.seeds}"
            kept = replace(kept, given_up=", ".join(filter(None, (kept.given_up, short))))
        if len(members) > len(asked.members):
            self.say(f"With the time left: {few if few == many else f'{few} to {many}'} seeds for each head count.")
        kept = replace(kept, seeds=counts)
        ordered = sorted(members, key=lambda member: (heads_of(member), member.seed))
        return store.state(asked.name, self.spec(kept, asked), [member.run(asked.recipe) for member in ordered])

    def bank_trainer(self, recipe: Recipe) -> Callable[[Sequence[Member], StepsMade], Outcome]:
        """How a bank is trained on these data."""
        subject = self.subject

        def train_bank(bank: Sequence[Member], steps_made: StepsMade) -> Outcome:
            outcome = subject.train(bank, recipe, steps_made)
            return with_error_rates(subject, bank, recipe, outcome) if subject.data.classes else outcome

        return train_bank

    def trained(self, asked: Sweep, store: Store, kept: SettledPlan, rounds: Rounds | None) -> str:
        """Train a sweep, a bank for every head count; the address of its spec in the store."""
        train_bank = self.bank_trainer(asked.recipe)
        groups: list[list[Member]] = []
        if rounds is None:  # trials: nothing of them is measured
            banks: dict[str, list[Member]] = {}
            for member in asked.members:
                banks.setdefault(member.arch.name, []).append(member)
            groups = list(banks.values())
        else:
            groups, train_bank = rounds.groups(asked.members), rounds.heard(train_bank)

        def stops(finished: int, left: int) -> bool:
            if rounds is None or not rounds.stops(groups[min(finished, len(groups) - 1)], finished):
                return False
            self.say(f"The time is over with {left} head counts to go; run it again to go on.")
            return True

        return train_banks(
            asked,
            self.spec(kept, asked),
            groups,
            store,
            train_bank,
            device=self.subject.device,
            on_progress=self.on_progress,
            stop=stops,
        )

    def spec(self, kept: SettledPlan, asked: Sweep) -> dict[str, Any]:
        """What is stored beside the rows: enough to draw the page a year later."""
        subject, plan = self.subject, kept.plan
        more: dict[str, Any] = {} if kept.seeds is None else {"seeds": {str(h): n for h, n in kept.seeds.items()}}
        if asked.chosen is not None:
            more["rate_search"] = asked.chosen.to_json()
        return {
            "measured": True,
            "level": "relative cross-entropy" if subject.data.classes else "NMSE",
            "data": {"name": subject.data.name, **subject.facts(), "notes": [*subject.notes(), kept.order_said]},
            "plan": plan.to_json(),
            "given_up": kept.given_up,
            "baselines": [base.to_json() for base in kept.baselines],
            "order": None if kept.order is None else kept.order.to_json(),
            "validation": len(subject.parts.validation),
            "question": self.wording,
            "recipe": subject.recipe(plan).as_dict(),
            "threads": kept.threads,
            "milliseconds": kept.milliseconds,
            **more,
        }


def placed(plan: StudyPlan) -> StudyPlan:
    """The plan at its largest: with positions where that is still to be asked."""
    return plan if plan.positions is not None else replace(plan, positions=PLACES)


def as_read(value: dict[str, Any]) -> dict[str, Any]:
    """The value as a store gives it back: tuples as lists."""
    return json.loads(json.dumps(value))


@torch.no_grad()
def with_error_rates(subject: Subject, members: Sequence[Member], recipe: Recipe, outcome: Outcome) -> Outcome:
    """The outcome, each row with the share of the validation part whose class its best network gets wrong."""
    bank, backend = outcome.bank, outcome.backend
    samples = subject.parts.resident(members, recipe, bank.theta.dtype, subject.device)
    wrong = torch.zeros(len(members), device=subject.device)
    for batch in samples.held_out("validation"):
        named = backend.forward(samples.problem, bank, bank.named(), batch).argmax(dim=-1)
        wrong += (named != batch.target.argmax(dim=-1)).sum(dim=1)
    rates = (wrong / recipe.validation).tolist()
    scored: list[Row] = [{**row, "error_rate": rate} for row, rate in zip(outcome.rows, rates, strict=True)]
    return replace(outcome, rows=tuple(scored))
