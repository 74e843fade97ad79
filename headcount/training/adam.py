"""A single descent by Adam, for what is trained alone: no bank, no store."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def descend(
    loss: Callable[[int], Tensor], parameters: Iterable[Tensor], steps: int, lr: float, *, cosine: bool = True
) -> None:
    """Move the parameters down `loss(step)`, a number for each step; the rate falls on a cosine to zero, or stays.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> descend(lambda step: x.square().sum(), [x], steps=200, lr=0.1)
    >>> bool(x.abs() < 1e-2)
    True
    """
    optimiser = torch.optim.Adam(parameters, lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps) if cosine else None
    for step in range(steps):
        optimiser.zero_grad()
        loss(step).backward()
        optimiser.step()
        if schedule is not None:
            schedule.step()
