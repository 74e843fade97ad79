"""Train a bank: K networks, one loop, no look at the device between evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.nets import Transformer
from headcount.results.store import address
from headcount.results.study import Row
from headcount.training.backends.choice import Path, choose, eager, proved, recorded
from headcount.training.bank import Bank
from headcount.training.checkpoints import BankState, Checkpoint
from headcount.training.data import Resident, Samples
from headcount.training.member import Member, Recipe
from headcount.training.optimiser import AdamW
from headcount.training.shuffling import Orders, seed_of
from headcount.training.width_factors import stacked_factors

__all__ = ["Outcome", "StepsMade", "train"]

StepsMade = Callable[[int], None]  # called with the number of steps made since the last call
DIVERGED = 1e3  # a validation NMSE a thousand times the constant predictor's is no training any more
DONE, FROZEN, LOST = 0, 1, 2
STATUS = ("done", "frozen", "diverged")


@dataclass(frozen=True)
class Outcome:
    """A trained bank: a row for each member, and each member's network at its smallest validation NMSE."""

    rows: tuple[Row, ...]
    bank: Bank
    path: str

    @property
    def backend(self) -> str:
        """The path that made it: the chosen one, or a plainer one where that one could not prove itself."""
        return self.path

    def net(self, member: int) -> Transformer:
        """The plain network of one member, as it was at its best evaluation. Its output is the scaled target."""
        return self.bank.module(member)


def train(
    members: Sequence[Member],
    recipe: Recipe,
    *,
    device: torch.device | str = "cpu",
    path: Path | None = None,
    data: Samples = Resident,
    start: Sequence[Transformer] | None = None,
    on_progress: StepsMade | None = None,
    checkpoint: Checkpoint | None = None,
) -> Outcome:
    """Train the members as one bank and return a row for each.

    `data` makes the resident samples: drawn, or given. With `start`, training goes on from these networks; their output
    is the scaled target. With `checkpoint`, the state is kept between epochs as that says, and a run that finds it goes
    on from there, bit for bit on the same kind of device.

    >>> from headcount.nets import Architecture
    >>> from headcount.tasks import KthLargest
    >>> member = Member(KthLargest(rank=1, length=4), Architecture(layers=((1, 4),), width=8))
    >>> outcome = train([member], Recipe(samples=64, validation=32, epochs=2, batch=32))
    >>> outcome.rows[0]["status"], 0 < outcome.rows[0]["nmse"] < 3
    ('done', True)
    """
    if not members:
        raise ValueError("a bank needs at least one member")
    if checkpoint is not None and start is not None:
        raise ValueError("a checkpoint is told by what determines its rows, which networks given to start from do not")
    if start is not None and recipe.read_out != 1:
        raise ValueError(f"read_out multiplies a random start, and these networks are given; got {recipe.read_out}")
    content = _address_of_state(members, recipe, device)
    kept = checkpoint.read(content) if checkpoint is not None else None
    path = path or choose(members, device, recipe.dtype, recipe.steps)
    run = _Run(members, recipe, device, path if kept is None else _as_before(path, kept.way), data, start)
    begin = run.resume(kept) if kept is not None else 0
    if any(member.start for member in members):
        run.evaluate(-1)  # a network that was built may be the best there is
    for epoch in range(begin, recipe.epochs):
        run.epoch(epoch)
        if run.evaluates(epoch):
            run.evaluate(epoch)
            if not run.any_active():
                break
        if on_progress is not None:
            on_progress(recipe.steps_per_epoch)
        if checkpoint is not None and checkpoint.due:
            checkpoint.write(content, run.state(epoch + 1))
    return run.outcome()


def _address_of_state(members: Sequence[Member], recipe: Recipe, device: torch.device | str) -> str:
    """The address of everything that determines a state: that of another bank or device is not taken for ours."""
    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else kind
    return address({"runs": [m.run(recipe) for m in members], "device": name, "torch": torch.__version__})


def _as_before(path: Path, way: str) -> Path:
    """The one of the path and its rivals that made a state: timing them anew might choose another."""
    return next((replace(p, rivals=()) for p in (path, *path.rivals, recorded, eager) if p.name == way), path)


class _Run:
    """The state of one bank in training; tensors stay where they are, so a step can be recorded and replayed."""

    def __init__(
        self,
        members: Sequence[Member],
        recipe: Recipe,
        device: torch.device | str,
        path: Path,
        data: Samples = Resident,
        start: Sequence[Transformer] | None = None,
    ) -> None:
        self.members, self.recipe = members, recipe
        dtype = getattr(torch, recipe.dtype)
        self.data = data(members, recipe, dtype, device, path.pack)
        archs, seeds = [m.arch for m in members], [m.seed for m in members]
        self.bank = Bank(archs, members[0].task.token_dim, seeds, dtype=dtype, device=device)
        lr, decay = self._rates(dtype, device)
        if start is not None:
            self.bank.load(start)
        first = torch.arange(recipe.batch, device=device).expand(len(members), -1)
        self.path = proved(path, self.bank, *self.data.batch(first))
        if recipe.read_out != 1:  # after the proof: behind a silent read-out there is no gradient to prove
            self.bank.named(self.bank.theta.detach())["read_out.outer.weight"].mul_(recipe.read_out)
        self.optimiser = AdamW(
            self.bank.theta.detach(),
            lr,
            decay,
            recipe.steps,
            recipe.warmup,
            recipe.schedule,
        )
        streams = [seed_of("order", m.seed, m.data_seed) for m in members]
        self.streams: Int[Tensor, " models"] = torch.tensor(streams, device=device)
        self.orders = Orders(self.streams, recipe.samples, recipe.epochs)
        self.stretch = _stretch(recipe.steps_per_epoch)
        self.rows: Int[Tensor, "stretch models batch"] = torch.zeros(
            (self.stretch, len(members), recipe.batch), dtype=torch.int64, device=device
        )
        outputs = self.data.y.shape[2:]
        self.targets: Float[Tensor, "stretch models batch ..."] = self.data.y.new_zeros((*self.rows.shape, *outputs))
        ones = torch.ones(len(members), device=device)
        self.active: Bool[Tensor, " models"] = ones.bool()
        self.bank.active = self.active
        self.status = torch.full_like(ones, DONE, dtype=torch.int64)
        self.best, self.final, self.train_at_best = (torch.full_like(ones, torch.inf, dtype=dtype) for _ in range(3))
        self.best_step, self.stale = torch.zeros_like(self.status), torch.zeros_like(self.status)
        self.best_theta = self.bank.theta.detach().clone()
        adam = self.optimiser
        self.advance = self.path.record(self._advance, (self.bank.theta, adam.first, adam.second, adam.step))

    def _rates(self, dtype: torch.dtype, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Every member's rate and decay, of each parameter where a member has a base, which also moves its start."""
        lr, decay = (
            torch.tensor([getattr(m, name) for m in self.members], dtype=dtype, device=device)
            for name in ("lr", "weight_decay")
        )
        if all(m.base is None for m in self.members):
            return lr, decay
        rate, start = stacked_factors(self.bank, [m.base for m in self.members])
        self.bank.theta = self.bank.theta * start
        return lr[:, None] * rate, decay[:, None] / rate

    def epoch(self, number: int) -> None:
        """Visit every sample once, each member in its own order."""
        self.data.begin(number)
        visited = self.stretch * self.recipe.batch
        for rows in self.orders[number][:, : self.recipe.steps_per_epoch * self.recipe.batch].split(visited, dim=1):
            self.rows.copy_(rows.view(len(self.members), self.stretch, -1).transpose(0, 1))
            self.targets.copy_(self.data.y[self.data.which[:, None], self.rows])
            self.advance()

    def _advance(self) -> None:
        """A stretch of steps, the same tensors every time: what a CUDA graph records."""
        for rows, target in zip(self.rows, self.targets, strict=True):
            gradient = self.path.gradient(self.bank, self.data.seen(rows), target)
            self.path.update(self.optimiser, self.bank.theta, gradient, self.active)

    def evaluates(self, epoch: int) -> bool:
        """Whether this epoch ends with a look at the validation set: evenly spread, and always the last."""
        every = max(1, self.recipe.epochs // self.recipe.evaluations)
        return (epoch + 1) % every == 0 or epoch + 1 == self.recipe.epochs

    @torch.no_grad()
    def evaluate(self, epoch: int) -> None:
        """Keep each member's smallest validation NMSE with its weights; freeze who diverged or stalls."""
        nmse = self._mean_gap(self.data.held_out, self.recipe.validation) * self.data.to_nmse
        seen = self._mean_gap(self.data.batch, min(self.recipe.validation, self.recipe.samples))
        seen = seen * self.data.to_train_nmse
        better = self.active & (nmse < self.best)  # false for NaN
        self.final = torch.where(self.active, nmse, self.final)
        self.best = torch.where(better, nmse, self.best)
        self.train_at_best = torch.where(better, seen, self.train_at_best)
        self.best_step = torch.where(better, (epoch + 1) * self.recipe.steps_per_epoch, self.best_step)
        self.best_theta = torch.where(better[:, None], self.bank.theta, self.best_theta)
        self.stale = torch.where(better, 0, self.stale + 1)
        self._freeze(~(nmse < DIVERGED), LOST)
        if self.recipe.patience:
            self._freeze(self.stale >= self.recipe.patience, FROZEN)

    def _freeze(self, who: Tensor, why: int) -> None:
        who = who & self.active
        self.status = torch.where(who, why, self.status)
        self.active.logical_and_(~who)  # in place: a recorded step reads this very tensor

    def _mean_gap(self, source, count: int) -> Float[Tensor, " models"]:
        total = torch.zeros_like(self.best)
        rows = torch.arange(count, device=total.device).expand(len(self.members), -1)
        for part in rows.split(4 * self.recipe.batch, dim=1):
            batch, target = source(part)
            total += self.path.loss(self.path.forward(self.bank, self.bank.named(), batch), target).sum(dim=1)
        return total / count

    def any_active(self) -> bool:
        """Whether anyone is left to train: the one question asked of the device between epochs."""
        return bool(self.active.any())

    def _tensors(self) -> dict[str, Tensor]:
        adam = self.optimiser
        moving = {"theta": self.bank.theta, "first": adam.first, "second": adam.second, "step": adam.step}
        names = ("active", "status", "best", "final", "train_at_best", "best_step", "stale", "best_theta")
        return moving | {name: getattr(self, name) for name in names}

    def state(self, epochs: int) -> BankState:
        """Everything that the rest of the training depends on."""
        return BankState(epochs, self.path.name, self._tensors())

    def resume(self, kept: BankState) -> int:
        """Take over a kept state, in place: a recorded step reads these very tensors. How many epochs it has made."""
        mine = self._tensors()
        shapes = {name: tensor.shape for name, tensor in kept.tensors.items()}
        if self.path.name != kept.way or shapes != {name: tensor.shape for name, tensor in mine.items()}:
            return 0
        for name, tensor in mine.items():
            tensor.detach().copy_(kept.tensors[name])
        return kept.epochs

    def outcome(self) -> Outcome:
        """The rows, and the bank at every member's best."""
        numbers = (self.best, self.final, self.train_at_best, self.best_step, self.status)
        rows = tuple(
            Row(
                **member.row(self.recipe),
                nmse=nmse,
                final_nmse=final_nmse,
                train_nmse=train_nmse,
                best_step=best_step,
                status=STATUS[status],
                backend=self.path.backend,
            )
            for member, nmse, final_nmse, train_nmse, best_step, status in zip(
                self.members, *(column.tolist() for column in numbers), strict=True
            )
        )
        self.bank.theta = self.best_theta
        return Outcome(rows, self.bank, self.path.backend)


def _stretch(steps_per_epoch: int, longest: int = 32) -> int:
    """Steps recorded together: the largest divisor of an epoch's steps that is not too long to record."""
    return max(n for n in range(1, longest + 1) if steps_per_epoch % n == 0)
