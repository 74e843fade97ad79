"""The verb: train banks over head counts on given data, keep every finished one, and say how many heads are enough."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from headcount.fits import Measurement
from headcount.frozen import decode
from headcount.measuring.baselines import Baseline, baselines
from headcount.measuring.fitted import fit
from headcount.measuring.loading import load
from headcount.measuring.ordering import OrderTrial, try_order
from headcount.measuring.planning import PLACES, CostEstimate, StudyPlan, fitting
from headcount.measuring.sequences import Sequences, sequences
from headcount.measuring.subject import Subject
from headcount.measuring.tables import Reading
from headcount.measuring.timing import Rates, timed
from headcount.numerals import spoken_time
from headcount.report import write_measured
from headcount.results import Store
from headcount.results.study import Row
from headcount.training import Member, Outcome, Recipe, Sweep
from headcount.training.loop import StepsMade
from headcount.training.memory import refuse_what_cannot_fit
from headcount.training.progress import OnProgress, silent
from headcount.training.sweeps import check_device, never, searched, train_banks

__all__ = ["measure"]

SPARE = 0.85  # share of the time left that is planned for; the rest is for what an estimate misses
ORDER_SHARE = 0.1  # of the time given, for asking whether order matters

Say = Callable[[str], None]


def quiet(line: str) -> None:
    """Say nothing."""


def measure(
    data: Any,
    target: Any = None,
    *,
    model: str | Path | None = None,
    reading: Reading | None = None,
    plan: StudyPlan | None = None,
    budget: float | None = None,
    split_seed: int = 0,
    device: str = "cpu",
    store: str | Path | None = None,
    command: str = "",
    say: Say = quiet,
    on_progress: OnProgress = silent,
) -> Measurement:
    """How many heads these data need: the knee with its interval, what one fewer or more costs, and a page.

    `budget` is a time in seconds to keep to: steps, then seeds, then head counts are given up until the estimate of a
    short timed trial fits. With `store`, every finished head count is kept and not trained again. The page and its
    figure are in `files` of what is returned. `data` is what `load` reads, or arrays or lists with their `target`.
    With `model`, a network with the advised heads is trained once more and saved there.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((200, 4, 1))
    >>> measured = measure(x, x.max(axis=(1, 2)), plan=StudyPlan(heads=(1, 2), seeds=2, steps=20, width=8))
    >>> sorted(measured.levels), list(measured.files)
    ([1, 2], ['report.html', 'curves.svg', 'study.json'])
    """
    check_device(device)
    began = time.monotonic()
    given = _given(data, target, reading)
    subject = Subject.of(given, split_seed, device)
    asked = plan or StudyPlan()
    for line in subject.lines():
        say(line)
    question = _Question(subject, asked, budget, began, say, on_progress)
    largest = _placed(asked)
    refuse_what_cannot_fit(subject.members(largest, largest.heads[-1]), subject.recipe(largest), device)
    with TemporaryDirectory() as folder:
        found = question.answer(Store.open(folder if store is None else store, create=True), command)
    if model is not None:
        plan = decode(StudyPlan, _as_read(found.study.spec["plan"]), "the plan of the study")
        heads = found.better.heads if found.better else found.knee.value
        window = None if given.apart is None else given.x.shape[1]
        fit(subject, replace(plan, lr=_rate_of(found, heads)), heads, window=window).save(model)
    return found


def _given(data: Any, target: Any, reading: Reading | None) -> Sequences:
    if isinstance(data, Sequences):
        return data
    if isinstance(data, str | Path):
        return load(data, reading)
    if target is None:
        raise ValueError("arrays need their targets: measure(x, y)")
    return sequences(data, target, kind=reading.kind if reading else None)


def _rate_of(found: Measurement, heads: int) -> float:
    """The learning rate that the head count was measured with."""
    return next(row["lr"] for row in found.study if row["heads"] == heads)


@dataclass(frozen=True)
class _Settled:
    """What is known before the networks are trained: their plan, what it gave up, and what needs no attention."""

    plan: StudyPlan
    given_up: str
    baselines: tuple[Baseline, ...]
    order: OrderTrial | None

    @property
    def order_said(self) -> str:
        return self.plan.order if self.order is None else self.order.sentence


@dataclass(frozen=True, eq=False)
class _Question:
    """One question: these data, this plan, this much time."""

    subject: Subject
    plan: StudyPlan
    budget: float | None
    began: float
    say: Say
    on_progress: OnProgress

    def answer(self, store: Store, command: str) -> Measurement:
        """Train what the store lacks and read the rows."""
        kept = self.resumed(store) or self.fitted()
        if kept.given_up:
            self.say(f"To keep to {spoken_time(self.budget or 0)}: {kept.given_up}.")
        measurement = Measurement(store.study(self.train(store, kept)))
        return replace(measurement, files=write_measured(measurement, command=command))

    @property
    def wording(self) -> dict[str, Any]:
        return {"data": self.subject.digest, "plan": self.plan.to_json(), "budget": self.budget}

    def resumed(self, store: Store) -> _Settled | None:
        """The plan made for the same question before an interruption: a new one would not fit the rows kept."""
        for stated in reversed(store.specs()):
            spec = store.head(stated.content).spec
            if spec.get("question") == _as_read(self.wording):
                plan = decode(StudyPlan, spec["plan"], "the plan of the store")
                without = tuple(Baseline(**base) for base in spec.get("baselines", ()))
                order = spec.get("order")
                return _Settled(plan, spec["given_up"], without, None if order is None else OrderTrial(**order))
        return None

    def fitted(self) -> _Settled:
        """The plan that fits the time, after a timed trial; its estimate is said before it is trained."""
        rates = timed(self.subject, _placed(self.plan))
        order = self.ordered(rates)
        settled = self.plan if order is None else replace(self.plan, positions=order.positions)
        self.say(settled.order if order is None else order.sentence)
        without = baselines(self.subject, settled)
        left = None if self.budget is None else SPARE * (self.budget - (time.monotonic() - self.began))
        plan, given_up = fitting(settled, lambda p: p.overhead * rates.seconds(p, self.subject.recipe(p)), left)
        seconds = plan.overhead * rates.seconds(plan, self.subject.recipe(plan))
        networks = f"{len(plan.heads) * plan.seeds} networks of {self.subject.recipe(plan).steps} steps"
        self.say(f"{networks} take {CostEstimate(seconds, self.subject.memory(plan))}.")
        return _Settled(plan, given_up, without, order)

    def ordered(self, rates: Rates) -> OrderTrial | None:
        """Whether order matters, where the plan asks; of a time to keep to, a tenth goes into it."""
        if self.plan.positions is not None:
            return None
        whole = rates.seconds(_placed(self.plan), self.subject.recipe(_placed(self.plan)))
        share = 1.0 if self.budget is None else min(1.0, ORDER_SHARE * self.budget * len(self.plan.heads) / whole)
        return try_order(self.subject, self.plan, max(10, round(share * self.plan.steps / 3)))

    def train(self, store: Store, kept: _Settled) -> str:
        """Train and keep the banks that are missing, fewest heads first; stop between two when the time is over.

        The address of the spec in the store comes back.
        """
        plan = kept.plan
        members = [member for heads in plan.heads for member in self.subject.members(plan, heads)]
        asked = Sweep(tuple(members), self.subject.recipe(plan), self.subject.data.name)
        if plan.search is not None:
            trained = lambda trials: store.study(self.trained(trials, store, kept, never))  # noqa: E731
            asked = searched(asked, plan.search, trained)
            self.say(f"{str(asked.chosen and asked.chosen.sentence).capitalize()}.")
        return self.trained(asked, store, kept, self.stops)

    def trained(self, asked: Sweep, store: Store, kept: _Settled, stop: Callable[[int, int], bool]) -> str:
        """Train a sweep, a bank for every head count; the address of its spec in the store."""
        subject, recipe = self.subject, asked.recipe
        banks: dict[str, list[Member]] = {}
        for member in asked.members:
            banks.setdefault(member.arch.name, []).append(member)

        def train_bank(bank: Sequence[Member], steps_made: StepsMade) -> Outcome:
            outcome = subject.train(bank, recipe, steps_made)
            return with_error_rates(subject, bank, recipe, outcome) if subject.data.classes else outcome

        spec = self.spec(kept)
        if asked.chosen is not None:
            spec["rate_search"] = asked.chosen.to_json()
        return train_banks(
            asked,
            spec,
            list(banks.values()),
            store,
            train_bank,
            device=subject.device,
            on_progress=self.on_progress,
            stop=stop,
        )

    def stops(self, finished: int, left: int) -> bool:
        """Whether the time is over before the next head count; two are needed to say anything."""
        if not self.late or finished < 2:
            return False
        self.say(f"The time is over with {left} head counts to go; run it again to go on.")
        return True

    @property
    def late(self) -> bool:
        return self.budget is not None and time.monotonic() > self.began + self.budget

    def spec(self, kept: _Settled) -> dict[str, Any]:
        """What is stored beside the rows: enough to draw the page a year later."""
        subject, plan = self.subject, kept.plan
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
        }


def _placed(plan: StudyPlan) -> StudyPlan:
    """The plan at its largest: with positions where that is still to be asked."""
    return plan if plan.positions is not None else replace(plan, positions=PLACES)


def _as_read(value: dict[str, Any]) -> dict[str, Any]:
    """The value as a store gives it back: tuples as lists."""
    return json.loads(json.dumps(value))


@torch.no_grad()
def with_error_rates(subject: Subject, members: Sequence[Member], recipe: Recipe, outcome: Outcome) -> Outcome:
    """The outcome, each row with the share of the validation part whose class its best network gets wrong."""
    bank, path = outcome.bank, subject.path
    samples = subject.parts.resident(members, recipe, bank.theta.dtype, subject.device, path.pack)
    wrong = torch.zeros(len(members), device=subject.device)
    places = torch.arange(recipe.validation, device=subject.device).expand(len(members), -1)
    for rows in places.split(4 * recipe.batch, dim=1):
        batch, target = samples.held_out(rows)
        named = path.forward(bank, bank.named(), batch).argmax(dim=-1)
        wrong += (named != target.argmax(dim=-1)).sum(dim=1)
    rates = (wrong / recipe.validation).tolist()
    scored: list[Row] = [{**row, "error_rate": rate} for row, rate in zip(outcome.rows, rates, strict=True)]
    return replace(outcome, rows=tuple(scored))
