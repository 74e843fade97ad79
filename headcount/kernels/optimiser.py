"""AdamW for a bank: every member its own learning rate and decay, one update for all."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.kernels.rate_schedule import COSINE, Schedule

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class AdamW:
    """Decoupled weight decay, as torch.optim.AdamW does it, on one matrix of stacked parameters.

    All state lives on the device, the step number too, so that an update can be recorded in a CUDA graph. Rate and
    decay are numbers of a member, or of each of its parameters (see `widths`).
    """

    def __init__(
        self,
        theta: Float[Tensor, "models parameters"],
        lr: Float[Tensor, " models"] | Float[Tensor, "models parameters"],
        decay: Float[Tensor, " models"] | Float[Tensor, "models parameters"],
        steps: int,
        warmup: float,
        shape: Schedule = COSINE,
        beta2: float = BETA2,
    ) -> None:
        self.first, self.second = torch.zeros_like(theta), torch.zeros_like(theta)
        self.lr, self.decay = (numbers.view(len(theta), -1) for numbers in (lr, decay))
        self.steps, self.warmup, self.shape, self.beta2 = steps, warmup, shape, beta2
        self.step = torch.zeros((), dtype=torch.float64, device=theta.device)

    @property
    def usual(self) -> bool:
        """Whether it is the update that the kernels make: one rate a member, on a cosine, the usual moments."""
        return self.shape == COSINE and self.beta2 == BETA2 and self.lr.shape[1] == self.decay.shape[1] == 1

    @torch.no_grad()
    def update(
        self,
        theta: Float[Tensor, "models parameters"],
        gradient: Float[Tensor, "models parameters"],
        active: Bool[Tensor, " models"],
    ) -> None:
        """Move the active members one step, in place; the others stay where they are."""
        self.step += 1
        self.first.lerp_(gradient, 1 - BETA1)
        self.second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        rate = self.lr * self.shape.share(self.step, self.steps, self.warmup).to(theta.dtype)
        size = (self.second / (1 - self.beta2**self.step).to(theta.dtype)).sqrt_().add_(EPS)
        moved = theta * (1 - rate * self.decay) - rate * (self.first / (1 - BETA1**self.step).to(theta.dtype)) / size
        theta.copy_(torch.where(active[:, None], moved, theta))
