"""Data ready to be trained on: split, normalised, fingerprinted, with the members and banks that a plan makes of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from headcount.measuring.planning import StudyPlan
from headcount.measuring.preparing import outputs_of, prepare
from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import Split, split
from headcount.nets import Transformer
from headcount.results.store import address
from headcount.training import Given, Member, Outcome, Recipe, train
from headcount.training.given import Parts
from headcount.training.loop import StepsMade
from headcount.training.memory import bank_bytes, resident

__all__ = ["Subject"]

CALLS = 15  # of a network, to time it


@dataclass(frozen=True, eq=False)
class Subject:
    """What is measured; `digest` stands for the data and the split in every row's address."""

    data: Sequences
    split: Split
    parts: Parts
    digest: str
    device: str

    @classmethod
    def of(cls, data: Sequences, seed: int, device: str) -> Subject:
        """The data split by `seed` and prepared."""
        halves = split(data, seed)
        return cls(data, halves, prepare(data, halves), address({"data": data.digest, "split": seed}), device)

    @property
    def outputs(self) -> int:
        """Numbers that a network returns."""
        return outputs_of(self.data)

    def recipe(self, plan: StudyPlan) -> Recipe:
        """How the plan trains on these data."""
        return plan.recipe(len(self.parts.training), len(self.parts.validation))

    def members(self, plan: StudyPlan, heads: int, seeds: int | None = None) -> list[Member]:
        """Every seed at one head count, or so many: a bank without padding, the most that an interruption can lose."""
        given = Given(self.digest, self.data.x.shape[1], self.data.x.shape[2])
        arch = plan.arch(heads, self.outputs)
        lr = Member.lr if plan.lr == "best" else plan.lr
        return [Member(given, arch, seed=seed, lr=lr) for seed in range(seeds or plan.seeds)]

    def train(self, members: Sequence[Member], recipe: Recipe, on_progress: StepsMade | None = None) -> Outcome:
        """One bank on these data."""
        data = self.parts.resident
        return train(members, recipe, device=self.device, data=data, on_progress=on_progress, compiled=True)

    def memory(self, plan: StudyPlan) -> int:
        """Bytes that the process holds while the largest bank of a plan is trained: on a CPU, the data as well."""
        kind = torch.device(self.device).type
        bank = bank_bytes(self.members(plan, plan.heads[-1]), self.recipe(plan), kind)
        return bank + (resident() if kind == "cpu" else 0)

    @torch.no_grad()
    def milliseconds(self, plan: StudyPlan, heads: int) -> float:
        """What one sequence of full length takes through the plain network here, the median of several."""
        net = Transformer(plan.arch(heads, self.outputs), self.data.x.shape[2], seed=0).to(self.device)
        x = torch.zeros(1, *self.data.x.shape[1:], device=self.device)
        taken = []
        for _ in range(CALLS):
            start = time.perf_counter()
            net(x).sum().item()  # waits for the device
            taken.append(1000 * (time.perf_counter() - start))
        return float(f"{np.median(taken):.3g}")

    def shortened(self, samples: int) -> Subject:
        """The same with the first training samples alone, to time a step."""
        return replace(self, parts=replace(self.parts, training=self.parts.training.at(np.arange(samples))))

    def facts(self) -> dict[str, str]:
        """The data in a few words each."""
        data = self.data
        shortest, longest = int(data.lengths.min()), int(data.lengths.max())
        lengths = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
        numbers = "a number" if data.y.shape[1] == 1 else f"{data.y.shape[1]} numbers"
        features = f"{data.x.shape[2]} feature{'s' if data.x.shape[2] > 1 else ''}"
        return {
            "sequences": f"{len(data):,} sequences",
            "tokens": f"{lengths} tokens with {features}",
            "target": f"{len(data.classes)} classes" if data.classes else numbers,
        }

    def notes(self) -> list[str]:
        """What was decided for the user."""
        halves = f"{len(self.split.training)} to train on, {len(self.split.validation)} to validate"
        return [f"{halves}, split {self.split.words}.", *(f"{n[:1].upper()}{n[1:]}." for n in self.data.notes)]

    def lines(self) -> list[str]:
        """What was read, in words."""
        facts = self.facts()
        return [f"{facts['sequences']} of {facts['tokens']}; the target is {facts['target']}.", *self.notes()]
