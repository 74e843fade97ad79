"""Train decoders as a bank: fresh strings drawn where the bank lies, accuracy by letter and by string, resumable."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.nets.causal import CausalTransformer, DecoderShape
from headcount.refusals import at_least_one
from headcount.results.store import address
from headcount.tasks import describe
from headcount.tasks.letters import Lengths, LetterTask
from headcount.training.backends.choice import as_it_is, graph
from headcount.training.checkpoints import BankState, Checkpoint
from headcount.training.decoder_bank import DecoderBank, answer_loss, answers_right
from headcount.training.decoder_paths import DecoderBatch, DecoderPath, choose_decoder, proved_decoder
from headcount.training.optimiser import AdamW
from headcount.training.shuffling import seed_of

__all__ = ["DecoderMember", "DecoderOutcome", "DecoderRecipe", "train_decoders"]

STRETCH = 16  # steps drawn, and on a GPU recorded, together
WAY = "decoders"  # how such a state is computed, beside those of other banks


@dataclass(frozen=True)
class DecoderRecipe:
    """How every member is trained: AdamW, warm-up, cosine decay to zero, fresh strings of `lengths` at every step.

    With `offsets`, absolute positions start anywhere they fit in training, and at 0 in tests. A member stops when all
    of its strings in an evaluation are right, if `stop` says so. `precision` is that of products on a GPU.
    """

    steps: int = 2000
    batch: int = 64
    lengths: Lengths = (4, 20)
    warmup: float = 0.05
    offsets: bool = True
    evaluations: int = 10
    samples: int = 512
    stop: bool = False
    dtype: Literal["float32", "float64"] = "float32"
    precision: Literal["full", "bfloat16"] = "full"

    def __post_init__(self) -> None:
        at_least_one(steps=self.steps, batch=self.batch, evaluations=self.evaluations, samples=self.samples)
        low, high = self.lengths
        if not 1 <= low <= high:
            raise ValueError(f"lengths must be (smallest, largest) with 1 <= smallest <= largest, got {self.lengths}")

    @property
    def stretches(self) -> int:
        """How often strings are drawn: once for every stretch of steps."""
        return -(-self.steps // STRETCH)


@dataclass(frozen=True)
class DecoderMember:
    """One decoder of a bank: its task, two seeds, its rate and decay."""

    task: LetterTask
    seed: int = 0
    data_seed: int = 0
    lr: float = 1e-3
    weight_decay: float = 1e-2


@dataclass(frozen=True)
class DecoderOutcome:
    """A trained bank: a row for each member, with its accuracy on every range of lengths, and the networks."""

    rows: tuple[dict[str, Any], ...]
    bank: DecoderBank

    def net(self, member: int) -> CausalTransformer:
        """The plain network of one member at the end."""
        return self.bank.module(member)


def train_decoders(
    members: Sequence[DecoderMember],
    shape: DecoderShape,
    recipe: DecoderRecipe,
    *,
    tests: Sequence[Lengths] = (),
    device: torch.device | str = "cpu",
    checkpoint: Checkpoint | None = None,
    on_progress: Callable[[int], None] = lambda steps: None,
    path: DecoderPath | None = None,
) -> DecoderOutcome:
    """Train the members as one bank; each row has the curve on the training lengths and the accuracy on every test.

    What a member draws depends on its data seed alone, so it trains the same in any company. With `checkpoint`, the
    state is kept after an evaluation as that says, and a run that finds it goes on from there. `path` is how it is
    computed: by default the fastest way for the device that has the plain gradient on the first strings.
    """
    run = _DecoderRun(members, shape, recipe, tests, device, path)
    begin = run.resume(checkpoint) if checkpoint is not None else 0
    for number in range(begin, recipe.stretches):
        run.stretch(number)
        on_progress(STRETCH)
        if run.evaluates(number):
            run.evaluate(number)
            if checkpoint is not None and checkpoint.due:
                run.keep(checkpoint, number + 1)
            if not bool(run.active.any()):
                break
    return run.outcome()


class _DecoderRun:
    """The state of one bank of decoders in training."""

    def __init__(
        self,
        members: Sequence[DecoderMember],
        shape: DecoderShape,
        recipe: DecoderRecipe,
        tests: Sequence[Lengths],
        device: torch.device | str,
        path: DecoderPath | None = None,
    ) -> None:
        self.members, self.shape, self.recipe, self.tests = members, shape, recipe, tuple(tests)
        self.device = torch.device(device)
        _check(members, shape, recipe, self.tests)
        dtype = getattr(torch, recipe.dtype)
        self.bank = DecoderBank(shape, [m.seed for m in members], dtype=dtype, device=device)
        rates, decays = ([getattr(m, name) for m in members] for name in ("lr", "weight_decay"))
        self.optimiser = AdamW(
            self.bank.theta,
            torch.tensor(rates, dtype=dtype, device=device),
            torch.tensor(decays, dtype=dtype, device=device),
            recipe.stretches * STRETCH,
            recipe.warmup,
        )
        self.length = max(m.task.longest(recipe.lengths[1]) for m in members)
        size = (STRETCH, len(members), recipe.batch)
        self.ids: Int[Tensor, "stretch models batch length"] = torch.zeros(
            (*size, self.length), dtype=torch.int64, device=device
        )
        self.targets = torch.zeros_like(self.ids)
        self.judged: Bool[Tensor, "stretch models batch length"] = torch.zeros_like(self.ids, dtype=torch.bool)
        self.offset: Int[Tensor, "stretch models batch"] = torch.zeros(size, dtype=torch.int64, device=device)
        self.counts: Int[Tensor, "stretch models"] = torch.zeros(size[:2], dtype=torch.int64, device=device)
        self.active: Bool[Tensor, " models"] = torch.ones(len(members), dtype=torch.bool, device=device)
        self.curve: list[tuple[int, list[float], list[float], list[float]]] = []
        chosen = path or choose_decoder(
            shape, self.length, device, recipe.dtype, recipe.precision, recipe.stretches * STRETCH
        )
        self.path = self._proved(chosen)
        adam = self.optimiser
        record = graph if self.device.type == "cuda" else as_it_is
        self.advance = record(self._advance, (self.bank.theta, adam.first, adam.second, adam.step))

    def _proved(self, path: DecoderPath) -> DecoderPath:
        """The path, or the plain one where it differs on the first strings by more than rounding."""
        if not path.tolerance:
            return path
        self._draw(0)
        return proved_decoder(path, self.bank, self._batch(0))

    def _batch(self, step: int) -> DecoderBatch:
        parts = (self.ids, self.targets, self.judged, self.offset, self.counts)
        return DecoderBatch(*(part[step] for part in parts))

    def stretch(self, number: int) -> None:
        """Draw the strings of a stretch and make its steps."""
        self._draw(number)
        self.advance()

    def _draw(self, number: int) -> None:
        count = STRETCH * self.recipe.batch
        self.judged.zero_()
        for k, member in enumerate(self.members):
            generator = self._generator("train", member, number)
            strings = member.task.strings(count, self.recipe.lengths, generator=generator)
            room = strings.ids.shape[1]
            self.ids[:, k, :, :room] = strings.ids.view(STRETCH, -1, room)
            self.targets[:, k, :, :room] = strings.targets.view(STRETCH, -1, room)
            self.judged[:, k, :, :room] = strings.judged.view(STRETCH, -1, room)
            if self.recipe.offsets and self.shape.positions == "absolute":
                spare = self.shape.context - self.length + 1
                drawn = torch.randint(spare, (STRETCH, self.recipe.batch), generator=generator, device=self.device)
                self.offset[:, k] = drawn
        self.counts.copy_(self.judged.sum(dim=(2, 3)))

    def _advance(self) -> None:
        for step in range(STRETCH):
            gradient = self.path.gradient(self.bank, self._batch(step))
            self.path.update(self.optimiser, self.bank.theta, gradient, self.active)

    def evaluates(self, number: int) -> bool:
        """Whether this stretch ends with a look at fresh strings: evenly spread, and always the last."""
        every = max(1, self.recipe.stretches // self.recipe.evaluations)
        return (number + 1) % every == 0 or number + 1 == self.recipe.stretches

    def evaluate(self, number: int) -> None:
        """Loss and accuracy on fresh strings of the training lengths; who gets all of them right may stop."""
        loss, letters, strings = self._measured(self.recipe.lengths)
        self.curve.append(((number + 1) * STRETCH, loss.tolist(), letters.tolist(), strings.tolist()))
        if self.recipe.stop:
            self.active.logical_and_(strings < 1)  # in place: a recorded step reads this very tensor

    @torch.no_grad()
    def _measured(self, lengths: Lengths) -> tuple[Tensor, Tensor, Tensor]:
        """Mean loss, share of right answers and of right strings, by member, on strings no training draws."""
        total: Float[Tensor, "three models"] = torch.zeros(
            (3, len(self.members)), dtype=torch.float64, device=self.device
        )
        parts = [self.recipe.batch] * (self.recipe.samples // self.recipe.batch) or [self.recipe.samples]
        for part, count in enumerate(parts):
            ids, targets, judged = self._drawn(lengths, part, count)
            logits = self.bank.logits(self.bank.named(), ids)
            letters, strings = answers_right(logits, targets, judged)
            total += torch.stack([answer_loss(logits, targets, judged).double(), letters, strings])
        loss, letters, strings = total / len(parts)
        return loss, letters, strings

    def _drawn(self, lengths: Lengths, part: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        room = max(m.task.longest(lengths[1]) for m in self.members)
        ids = torch.zeros((len(self.members), count, room), dtype=torch.int64, device=self.device)
        targets, judged = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
        for k, member in enumerate(self.members):
            strings = member.task.strings(count, lengths, generator=self._generator(f"test {lengths}", member, part))
            mine = slice(0, strings.ids.shape[1])
            ids[k, :, mine], targets[k, :, mine], judged[k, :, mine] = strings.ids, strings.targets, strings.judged
        return ids, targets, judged

    def _generator(self, part: str, member: DecoderMember, number: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed_of(part, member.data_seed, number))

    @property
    def _content(self) -> str:
        """The address of everything that determines the state: another run's checkpoint is not taken for ours."""
        members = [{**dataclasses.asdict(m), "task": describe(m.task)} for m in self.members]
        parts = {"members": members, "shape": dataclasses.asdict(self.shape), "recipe": dataclasses.asdict(self.recipe)}
        return address({**parts, "device": self.device.type})

    def _state(self) -> dict[str, Tensor]:
        adam = self.optimiser
        moving = {"theta": self.bank.theta, "first": adam.first, "second": adam.second, "step": adam.step}
        return {**moving, "active": self.active}

    def keep(self, checkpoint: Checkpoint, stretches: int) -> None:
        """Write the state after so many stretches."""
        curve = torch.tensor([[[step] * len(self.members), *rest] for step, *rest in self.curve], dtype=torch.float64)
        checkpoint.write(self._content, BankState(stretches, WAY, {**self._state(), "curve": curve}))

    def resume(self, checkpoint: Checkpoint) -> int:
        """Take over a kept state, if there is one; how many stretches it has behind it."""
        kept = checkpoint.read(self._content)
        if kept is None:
            if checkpoint.path.is_file():
                raise ValueError(
                    f"{checkpoint.path} is the state of another run: remove it, or give another checkpoint"
                )
            return 0
        for name, mine in self._state().items():
            mine.detach().copy_(kept.tensors[name])
        self.curve = [(int(c[0][0]), c[1].tolist(), c[2].tolist(), c[3].tolist()) for c in kept.tensors["curve"]]
        return kept.epochs

    def outcome(self) -> DecoderOutcome:
        """The rows: what was trained, its curve, and its accuracy on every range of lengths."""
        bins = [
            (lengths, *(t.tolist() for t in self._measured(lengths))) for lengths in (self.recipe.lengths, *self.tests)
        ]
        rows = tuple(
            {
                "task": type(member.task).__name__,
                "layers": self.shape.name,
                "embed_dim": self.shape.embed_dim,
                "seed": member.seed,
                "data_seed": member.data_seed,
                "lr": member.lr,
                "parameters": self.shape.parameters,
                "backend": self.path.name,
                "steps": self.curve[-1][0] if self.curve else 0,
                "curve": [(step, loss[k], letters[k], strings[k]) for step, loss, letters, strings in self.curve],
                "tests": [
                    {"lengths": list(lengths), "loss": loss[k], "letters": letters[k], "strings": strings[k]}
                    for lengths, loss, letters, strings in bins
                ],
            }
            for k, member in enumerate(self.members)
        )
        return DecoderOutcome(rows, self.bank)


def _check(
    members: Sequence[DecoderMember], shape: DecoderShape, recipe: DecoderRecipe, tests: Sequence[Lengths]
) -> None:
    if not members:
        raise ValueError("a bank needs at least one member")
    for member in members:
        if member.task.vocab > shape.vocab:
            raise ValueError(
                f"the task has {member.task.vocab} letters and the shape {shape.vocab}: give it more vocab"
            )
        longest = max(member.task.longest(high) for _, high in (recipe.lengths, *tests))
        if shape.positions == "absolute" and longest > shape.context:
            raise ValueError(f"strings have up to {longest} places and the shape {shape.context}: give it more context")
