"""Train a bank: K networks of any kind, one loop, no look at the device between evaluations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.kernels.backend import Backend
from headcount.kernels.bank import Bank
from headcount.kernels.optimiser import AdamW
from headcount.kernels.preference import best
from headcount.nets.causal import DecoderShape
from headcount.results.store import address
from headcount.results.study import Row
from headcount.training.checkpoints import BankState, Checkpoint
from headcount.training.data import Evaluation, Resident, Samples
from headcount.training.member import Member, Recipe
from headcount.training.strings import LetterStrings
from headcount.training.width_factors import stacked_factors

StepsMade = Callable[[int], None]  # called with the number of steps made since the last call
DIVERGED = 1e3  # a validation level a thousand times the constant predictor's is no training any more
DONE, FROZEN, LOST = 0, 1, 2
STATUS = ("done", "frozen", "diverged")


@dataclass(frozen=True)
class Outcome:
    """A trained bank: a row for each member, each member's network as it was kept, and the backend that ran."""

    rows: tuple[Row, ...]
    bank: Bank
    backend: Backend

    def net(self, member: int) -> Any:
        """The plain network of one member. Of a class-token network the output is the scaled target."""
        return self.bank.module(member)


def train(
    members: Sequence[Member],
    recipe: Recipe,
    *,
    device: torch.device | str = "cpu",
    backend: Backend | None = None,
    data: Samples | None = None,
    start: Sequence[nn.Module] | None = None,
    on_progress: StepsMade | None = None,
    checkpoint: Checkpoint | None = None,
    compiled: bool = False,
) -> Outcome:
    """Train the members as one bank and return a row for each.

    `data` makes the source of the batches: samples or strings that the members' tasks draw, unless given. `backend` is
    how the bank is computed: the fastest that is verified on the first batch, unless given; with `compiled` also where
    a compiler takes longer than the training. With `start`, training goes on from these networks; their output is the
    scaled target. With `checkpoint`, the state is kept between rounds as that says, and a run that finds it goes on
    from there, bit for bit on the same kind of device.

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
    saved = checkpoint.read(content) if checkpoint is not None else None
    run = _Run(members, recipe, device, backend, data or _drawn(members[0]), start, compiled)
    begin = run.resume(saved) if saved is not None else 0
    if any(member.start for member in members):
        run.evaluate(-1)  # a network that was built may be the best there is
    for number in range(begin, run.source.rounds):
        run.round(number)
        if run.evaluates(number):
            run.evaluate(number)
            if not run.any_active():
                break
        if on_progress is not None:
            on_progress(run.steps_per_round)
        if checkpoint is not None and checkpoint.due:
            checkpoint.write(content, run.state(number + 1))
    return run.outcome()


def _drawn(member: Member) -> Samples:
    """Where the batches of a member's task come from."""
    return LetterStrings if isinstance(member.net, DecoderShape) else Resident


def _address_of_state(members: Sequence[Member], recipe: Recipe, device: torch.device | str) -> str:
    """The address of everything that determines a state: that of another bank or device is not taken for ours."""
    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else kind
    return address({"runs": [m.run(recipe) for m in members], "device": name, "torch": torch.__version__})


class _Run:
    """The state of one bank in training; tensors stay where they are, so a step can be recorded and replayed."""

    def __init__(
        self,
        members: Sequence[Member],
        recipe: Recipe,
        device: torch.device | str,
        backend: Backend | None,
        data: Samples,
        start: Sequence[nn.Module] | None,
        compiled: bool = False,
    ) -> None:
        self.members, self.recipe = members, recipe
        dtype = getattr(torch, recipe.dtype)
        self.source = data(members, recipe, dtype, device)
        self.problem = self.source.problem
        self.bank = Bank([m.shape for m in members], [m.seed for m in members], dtype=dtype, device=device)
        lr, decay = self._rates(dtype, device)
        if start is not None:
            self.bank.load(start)
        if backend is None:
            self.backend = best(self.problem, self.bank, self.source.first, None if compiled else self.steps)
        else:
            self.backend = backend
        first = self.source.first(self.backend.pack)
        if backend is not None and not backend.holds(self.problem, self.bank, first):
            raise ValueError(f"the backend {backend.name} cannot compute this bank of {self.bank.net.name} here")
        if recipe.read_out != 1:  # after the check: behind a silent read-out there is no gradient to compare
            self.bank.named(self.bank.theta.detach())["read_out.outer.weight"].mul_(recipe.read_out)
        theta, pace = self.bank.theta.detach(), (self.steps, recipe.warmup, recipe.schedule, recipe.beta2)
        self.optimiser = AdamW(theta, lr, decay, *pace)
        ones = torch.ones(len(members), device=device)
        self.active: Bool[Tensor, " models"] = ones.bool()
        self.bank.active = self.active
        self.status = torch.full_like(ones, DONE, dtype=torch.int64)
        self.best, self.final, self.training = (torch.full_like(ones, torch.inf, dtype=dtype) for _ in range(3))
        self.best_step, self.stale = torch.zeros_like(self.status), torch.zeros_like(self.status)
        self.best_theta = self.bank.theta.detach().clone()
        self.curve: list[tuple[int, dict[str, Tensor]]] = []
        adam = self.optimiser
        self.advance = self.backend.record(self._advance, (self.bank.theta, adam.first, adam.second, adam.step))

    @property
    def steps_per_round(self) -> int:
        """Steps between two chances to evaluate."""
        return self.source.chunks * self.source.chunk

    @property
    def steps(self) -> int:
        """Steps in all."""
        return self.source.rounds * self.steps_per_round

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

    def round(self, number: int) -> None:
        """All chunks of a round."""
        for chunk in range(self.source.chunks):
            self.source.begin(number, chunk)
            self.advance()

    def _advance(self) -> None:
        """A chunk of steps, the same tensors every time: what a CUDA graph records."""
        for number in range(self.source.chunk):
            gradient = self.backend.gradient(self.problem, self.bank, self.source.step(number))
            if self.recipe.clip:
                gradient = gradient / (gradient.norm(dim=1, keepdim=True) / self.recipe.clip).clamp(min=1.0)
            self.backend.update(self.optimiser, self.bank.theta, gradient, self.active)

    def evaluates(self, number: int) -> bool:
        """Whether this round ends with an evaluation: evenly spread, and always the last."""
        every = max(1, self.source.rounds // self.recipe.evaluations)
        return (number + 1) % every == 0 or number + 1 == self.source.rounds

    @torch.no_grad()
    def evaluate(self, number: int) -> None:
        """Keep each member's smallest level with its weights; freeze who diverged, stalls or has all right."""
        metrics = self.source.levels(self.means)
        level, step = metrics["level"].to(self.best), (number + 1) * self.steps_per_round
        better = self.active & (level < self.best)  # false for NaN
        self.final = torch.where(self.active, level, self.final)
        self.best = torch.where(better, level, self.best)
        self.training = torch.where(better, metrics.get("training", level).to(level), self.training)
        self.best_step = torch.where(better, step, self.best_step)
        if self.recipe.keep == "best":
            self.best_theta = torch.where(better[:, None], self.bank.theta, self.best_theta)
        else:
            self.curve.append((step, {name: value.clone() for name, value in metrics.items() if name != "right"}))
        self.stale = torch.where(better, 0, self.stale + 1)
        self._freeze(~(level < DIVERGED), LOST)
        if self.recipe.stop == "patience" and self.recipe.patience:
            self._freeze(self.stale >= self.recipe.patience, FROZEN)
        if self.recipe.stop == "all right" and "right" in metrics:
            self._freeze(metrics["right"], FROZEN)

    def _freeze(self, who: Tensor, why: int) -> None:
        who = who & self.active
        self.status = torch.where(who, why, self.status)
        self.active.logical_and_(~who)  # in place: a recorded step reads this very tensor

    @torch.no_grad()
    def means(self, part: str) -> Mapping[str, Float[Tensor, " models"]]:
        """The mean of every score over a part of the data, by member."""
        total: dict[str, Tensor] = {}
        count: dict[str, int] = {}
        for batch in self.source.held_out(part):
            output = self.backend.forward(self.problem, self.bank, self.bank.named(), batch)
            for name, value in self.problem.score(output, batch).items():
                total[name] = total.get(name, torch.zeros_like(value[:, 0])) + value.sum(dim=1)
                count[name] = count.get(name, 0) + value.shape[1]
        return {name: value / count[name] for name, value in total.items()}

    def any_active(self) -> bool:
        """Whether anyone is left to train: the one question asked of the device between rounds."""
        return bool(self.active.any())

    def _tensors(self) -> dict[str, Tensor]:
        adam = self.optimiser
        moving = {"theta": self.bank.theta, "first": adam.first, "second": adam.second, "step": adam.step}
        names = ("active", "status", "best", "final", "training", "best_step", "stale", "best_theta")
        return moving | {name: getattr(self, name) for name in names}

    def state(self, rounds: int) -> BankState:
        """Everything that the rest of the training depends on, and the curve so far."""
        curve = {
            f"curve {step} {name}": value for step, values in self.curve for name, value in values.items()
        }  # fmt: skip
        return BankState(rounds, self.backend.name, self._tensors() | curve)

    def resume(self, saved: BankState) -> int:
        """Take over a saved state, in place: a recorded step reads these very tensors. How many rounds it has made."""
        tensors = self._tensors()
        shapes = {name: tensor.shape for name, tensor in saved.tensors.items() if not name.startswith("curve ")}
        if self.backend.name != saved.way or shapes != {name: tensor.shape for name, tensor in tensors.items()}:
            return 0
        for name, tensor in tensors.items():
            tensor.detach().copy_(saved.tensors[name])
        self.curve = _curve(saved.tensors, self.active.device)
        return saved.epochs

    def outcome(self) -> Outcome:
        """The rows, and the bank with every member's network as it is kept."""
        if self.recipe.keep == "best":
            self.bank.theta = self.best_theta
        final = {name: getattr(self, name).tolist() for name in ("best", "final", "training")}
        curve = [Evaluation(step, {k: v.tolist() for k, v in values.items()}) for step, values in self.curve]
        measured = self.source.columns(final, self.means, curve)
        rows = tuple(
            cast(
                Row,
                {
                    **member.row(self.recipe),
                    **columns,
                    "best_step": step,
                    "status": STATUS[status],
                    "backend": self.backend.name,
                },
            )
            for member, columns, step, status in zip(
                self.members, measured, self.best_step.tolist(), self.status.tolist(), strict=True
            )
        )
        return Outcome(rows, self.bank, self.backend)


def _curve(tensors: Mapping[str, Tensor], device: torch.device) -> list[tuple[int, dict[str, Tensor]]]:
    """The evaluations that a kept state has behind it, in their order."""
    steps: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("curve "):
            _, step, column = name.split(" ", 2)
            steps.setdefault(int(step), {})[column] = value.to(device)
    return sorted(steps.items(), key=lambda item: item[0])
