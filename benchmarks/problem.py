"""The work every contestant does: K networks, one resident data set, AdamW with the recipe's schedule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.kernels.backend import Backend
from headcount.kernels.bank import Bank
from headcount.kernels.class_token import ClassToken
from headcount.kernels.optimiser import AdamW
from headcount.kernels.plain import Batch, collapsed, with_positions
from headcount.nets import Architecture
from headcount.nets.architecture import ClassTokenShape
from headcount.tasks import LinearMax
from headcount.training.shuffling import epoch_order

LR, DECAY, STEPS, WARMUP, TOKEN_DIM, SEEDS = 2e-3, 1e-4, 10_000, 0.05, 4, 16
Train = tuple[Callable[[], None], Callable[[], Tensor]]  # one epoch; the parameters, (models, parameters)


@dataclass(frozen=True)
class Size:
    """How many networks of which shape on how much data."""

    models: int
    length: int
    batch: int = 256
    heads: int = 4
    steps_per_epoch: int = 32
    layers: int = 1
    width: int = 32

    @property
    def samples(self) -> int:
        return self.batch * self.steps_per_epoch

    @property
    def steps(self) -> int:
        """Model-steps in an epoch."""
        return self.models * self.steps_per_epoch

    @property
    def arch(self) -> Architecture:
        return Architecture(layers=((self.heads, 8),) * self.layers, width=self.width, positions=1)

    @property
    def net(self) -> ClassTokenShape:
        return self.arch.reading(TOKEN_DIM)

    def operations(self) -> int:
        """Operations a model-step cannot avoid: 2 (d N + 2 N h) per token, three times with gradients.

        With more layers also the encoder's second half and, in every layer before the last, queries, keys and values,
        scores and mixing, output and feed-forward; the class token's own rows are left out.
        """
        width, embed, length = self.width, 8 * self.heads, self.length
        between = 4 * embed * embed + 2 * length * embed + 2 * embed * width
        deep = width * embed + (self.layers - 1) * between if self.layers > 1 else 0
        last_layer = 2 * (embed if self.layers > 1 else width) * self.heads
        return 3 * 2 * ((TOKEN_DIM + 1) * width + deep + last_layer) * self.batch * length

    def traffic(self, parameters: int) -> int:
        """Bytes a model-step cannot avoid: its tokens once, and AdamW's seven passes over the parameters."""
        return 4 * (self.batch * self.length * (TOKEN_DIM + 1) + 7 * parameters)


class Problem:
    """Initial parameters, resident data and the fixed order in which every contestant visits it."""

    def __init__(self, size: Size, device: str, seed: int = 0) -> None:
        self.size, self.device = size, device
        generator = torch.Generator().manual_seed(seed)
        task = LinearMax.random(4, TOKEN_DIM, size.length)
        x, y = task.sample(size.samples, generator=generator, dtype=torch.float64)
        self.x = with_positions(x, size.length, 1)[None].float().to(device)
        self.y = ((y - y.mean()) / y.std())[None].float().to(device)
        few = min(SEEDS, size.models)  # networks are drawn one by one; beyond a few, they are copies in another order
        self.few = Bank([size.net] * few, list(range(few)), device=device)
        self.theta = self.few.theta.repeat(-(-size.models // few), 1)[: size.models].contiguous()
        self.order = epoch_order(torch.arange(size.models, device=device), 0, size.samples)
        self.which = torch.zeros(size.models, dtype=torch.int64, device=device)

    def bank(self) -> Bank:
        """A fresh bank with the initial parameters."""
        bank = Bank([self.size.net], [0], device=self.device)
        bank.nets, bank.theta = (self.size.net,) * self.size.models, self.theta.clone()
        bank.scale = bank.scale.expand(self.size.models, -1).contiguous()
        bank.heads = bank.heads.expand(self.size.models, -1).contiguous()
        return bank

    def adamw(self, theta: Tensor) -> AdamW:
        ones = torch.ones(theta.shape[0], device=self.device)
        return AdamW(theta, LR * ones, DECAY * ones, STEPS, WARMUP)

    @torch.no_grad()
    def losses(self, theta: Tensor, count: int = 512) -> Tensor:
        """Every member's mean squared gap on the first samples, in float32 by the collapsed bank, a few at a time."""
        losses, was = [], torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        for part in theta.to(self.device).split(64):
            bank = Bank([self.size.net], [0], device=self.device)
            bank.scale, bank.heads = (x.expand(part.shape[0], -1) for x in (bank.scale, bank.heads))
            rows = torch.arange(min(count, self.size.samples), device=self.device).expand(part.shape[0], -1)
            batch = Batch(self.x, self.which[: part.shape[0]], rows, self.y[0][rows])
            losses.append((collapsed(bank, bank.named(part), batch) - batch.target).square().mean(dim=1))
        torch.backends.cuda.matmul.allow_tf32 = was
        return torch.cat(losses).cpu()


def of_backend(problem: Problem, backend: Backend) -> Train:
    """A bank trained by one of the package's backends, exactly as the training loop does it."""
    size, bank, loss = problem.size, problem.bank(), ClassToken()
    adam, packed = problem.adamw(bank.theta), backend.pack(problem.x)
    active = torch.ones(size.models, dtype=torch.bool, device=problem.device)
    visited = problem.order.view(size.models, size.steps_per_epoch, size.batch).transpose(0, 1).contiguous()
    targets = problem.y[0][visited]

    def epoch() -> None:
        for rows, target in zip(visited, targets, strict=True):
            gradient = backend.gradient(loss, bank, Batch(problem.x, problem.which, rows, target, None, packed))
            backend.update(adam, bank.theta, gradient, active)

    return backend.record(epoch, (bank.theta, adam.first, adam.second, adam.step)), lambda: bank.theta
