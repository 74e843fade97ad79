"""Fresh strings for a bank of decoders, drawn where the bank lies, and strings of every range of lengths to test on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headcount.kernels.backend import Pack
from headcount.kernels.next_letter import NextLetter, StringBatch
from headcount.nets.causal import DecoderShape
from headcount.refusals import at_least_one
from headcount.tasks.letters import OnLengths
from headcount.training.data import Curve, Means, longest_chunk
from headcount.training.member import Member, Recipe
from headcount.training.shuffling import seed_of

CHUNK = 16  # steps drawn, and on a GPU recorded, together


def string_recipe(steps: int = 2000, batch: int = 64, *, samples: int = 512, **more: Any) -> Recipe:
    """Fresh strings at every step, the last network kept, `samples` strings an evaluation; steps in whole chunks.

    >>> string_recipe(steps=50, batch=8).steps
    64
    """
    at_least_one(steps=steps, batch=batch, samples=samples)
    usual = {"fresh": True, "keep": "last", "stop": "never", "evaluations": 10, **more}
    return Recipe(samples=CHUNK * batch, validation=samples, epochs=-(-steps // CHUNK), batch=batch, **usual)


class LetterStrings:
    """The strings of a chunk of steps, a range of lengths for each member, and those of an evaluation.

    What a member draws depends on its data seed alone, so it trains the same in any bank.
    """

    chunks = 1

    def __init__(
        self, members: Sequence[Member], recipe: Recipe, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        self.members, self.recipe, self.device = members, recipe, torch.device(device)
        self.tasks = [_on_lengths(member) for member in members]
        shape = members[0].shape
        if not isinstance(shape, DecoderShape):
            raise ValueError(f"strings are read by a DecoderShape, not by {type(shape).__name__}")
        self.shape, self.problem = shape, NextLetter(recipe.precision)
        self.chunk = longest_chunk(recipe.steps, CHUNK)
        self.rounds = recipe.steps // self.chunk
        for task in self.tasks:
            _check(task, shape)
        self.length = max(task.task.longest(task.train[1]) for task in self.tasks)
        size = (self.chunk, len(members), recipe.batch)
        self.ids: Int[Tensor, "chunk models batch length"] = torch.zeros(
            (*size, self.length), dtype=torch.int64, device=device
        )
        self.targets = torch.zeros_like(self.ids)
        self.judged: Bool[Tensor, "chunk models batch length"] = torch.zeros_like(self.ids, dtype=torch.bool)
        self.offset: Int[Tensor, "chunk models batch"] = torch.zeros(size, dtype=torch.int64, device=device)
        self.counts: Int[Tensor, "chunk models"] = torch.zeros(size[:2], dtype=torch.int64, device=device)

    def first(self, pack: Pack) -> StringBatch:
        """The first strings that training will see."""
        self.begin(0, 0)
        return self.step(0)

    def begin(self, number: int, chunk: int) -> None:
        """Draw the strings of a chunk."""
        count = self.chunk * self.recipe.batch
        self.judged.zero_()
        for k, (task, member) in enumerate(zip(self.tasks, self.members, strict=True)):
            generator = self._generator("train", member, number)
            strings = task.task.strings(count, task.train, generator=generator)
            length = strings.ids.shape[1]
            self.ids[:, k, :, :length] = strings.ids.view(self.chunk, -1, length)
            self.targets[:, k, :, :length] = strings.targets.view(self.chunk, -1, length)
            self.judged[:, k, :, :length] = strings.judged.view(self.chunk, -1, length)
            if task.offsets and self.shape.positions == "absolute":
                spare = self.shape.context - self.length + 1
                drawn = torch.randint(spare, (self.chunk, self.recipe.batch), generator=generator, device=self.device)
                self.offset[:, k] = drawn
        self.counts.copy_(self.judged.sum(dim=(2, 3)))

    def step(self, number: int) -> StringBatch:
        """The strings of one step."""
        parts = (self.ids, self.targets, self.judged, self.offset, self.counts)
        return StringBatch(*(part[number] for part in parts))

    def held_out(self, part: str) -> Iterator[StringBatch]:
        """Strings of every member's range with this number, on its first places."""
        batch, samples = self.recipe.batch, self.recipe.validation
        for number, count in enumerate([batch] * (samples // batch) or [samples]):
            yield self._tested(int(part), number, count)

    def _tested(self, which: int, number: int, count: int) -> StringBatch:
        ranges = [task.ranges[min(which, len(task.ranges) - 1)] for task in self.tasks]  # who has fewer: its last
        length = max(task.task.longest(high) for task, (_, high) in zip(self.tasks, ranges, strict=True))
        ids = torch.zeros((len(self.members), count, length), dtype=torch.int64, device=self.device)
        targets, loss_mask = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for k, (task, member, lengths) in enumerate(zip(self.tasks, self.members, ranges, strict=True)):
            generator = self._generator(f"test {lengths}", member, number)
            strings = task.task.strings(count, lengths, generator=generator)
            own = slice(0, strings.ids.shape[1])
            ids[k, :, own], targets[k, :, own], loss_mask[k, :, own] = strings.ids, strings.targets, strings.judged
        offset = torch.zeros(ids.shape[:2], dtype=torch.int64, device=self.device)
        return StringBatch(ids, targets, loss_mask, offset, loss_mask.sum(dim=(1, 2)))

    def levels(self, means: Means) -> dict[str, Tensor]:
        """Loss and accuracy on fresh strings of the training lengths; who has all of them right may stop."""
        metrics = means("0")
        return {"level": metrics["loss"], "right": metrics["string_accuracy"] >= 1, **metrics}

    def columns(self, final: dict[str, list[float]], means: Means, curve: Curve) -> list[dict[str, object]]:
        """The level, loss and accuracies on the training lengths, on every range, and the curve of the first."""
        most = max(len(task.ranges) for task in self.tasks)
        ranges = [{name: value.tolist() for name, value in means(str(i)).items()} for i in range(most)]
        names = ("loss", "token_accuracy", "string_accuracy")
        return [
            {
                "nmse": ranges[0]["loss"][k],  # the level of the study, which its spec names
                "final_nmse": final["final"][k],
                "train_nmse": ranges[0]["loss"][k],
                **{name: ranges[0][name][k] for name in names},
                **{
                    f"string_accuracy {low}-{high}": ranges[i]["string_accuracy"][k]
                    for i, (low, high) in enumerate(task.ranges)
                },
                "tests": [
                    {"lengths": list(lengths), **{name: ranges[i][name][k] for name in names}}
                    for i, lengths in enumerate(task.ranges)
                ],
                "curve": [{"step": at.step, **{name: at.levels[name][k] for name in names}} for at in curve],
            }
            for k, task in enumerate(self.tasks)
        ]

    def _generator(self, part: str, member: Member, number: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed_of(part, member.data_seed, number))


def _on_lengths(member: Member) -> OnLengths:
    if not isinstance(member.task, OnLengths):
        raise ValueError(f"a decoder learns a letter task on lengths, as OnLengths(task, (4, 12)); got {member.task}")
    return member.task


def _check(task: OnLengths, shape: DecoderShape) -> None:
    if task.task.vocab > shape.vocab:
        raise ValueError(f"the task has {task.task.vocab} letters and the shape {shape.vocab}: give it more vocab")
    if shape.positions == "absolute" and task.longest > shape.context:
        raise ValueError(
            f"strings have up to {task.longest} places and the shape {shape.context}: give it more context"
        )
