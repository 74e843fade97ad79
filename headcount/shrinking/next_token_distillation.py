"""A cut language model learns to give back the original's next-token probabilities, its attention alone moving."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.shrinking.distillation import attention_parameters

__all__ = ["divergence_of", "learn_from"]

WARM_UP = 20  # steps
CLIP = 1.0


def divergence_of(student: Any, teacher: Any, windows: Int[Tensor, "batch length"]) -> Float[Tensor, ""]:
    """Mean over tokens of KL(teacher || student)."""
    with torch.no_grad():
        wanted = teacher(input_ids=windows, use_cache=False).logits.log_softmax(-1)
    found = student(input_ids=windows, use_cache=False).logits.log_softmax(-1)
    return (wanted.exp() * (wanted - found)).sum(-1).mean()


def learn_from(
    student: nn.Module,
    teacher: nn.Module,
    windows: Int[Tensor, "windows length"],
    *,
    steps: int,
    batch: int = 8,
    lr: float = 2e-4,
    seconds: float = math.inf,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> list[float]:
    """Train the attention of a cut model towards the original's probabilities; returns the divergence of every step.

    Adam with a linear warm-up and cosine decay; it ends after `seconds`, the rate having fallen to nothing by then.
    """
    if steps < 1 or batch < 1:
        raise ValueError(f"steps and batch must be at least 1, got {steps} and {batch}")
    trained, there = attention_parameters(student), next(student.parameters()).device
    optimiser = torch.optim.Adam(trained, lr=lr, betas=(0.9, 0.98))
    draw, began, found = torch.Generator().manual_seed(seed), time.monotonic(), []
    order = torch.cat([torch.randperm(len(windows), generator=draw) for _ in range(-(-steps * batch // len(windows)))])
    for step in range(steps):
        done = max((step + 1) / steps, (time.monotonic() - began) / seconds)
        if done > 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * done))
        loss = divergence_of(student, teacher, windows[order[step * batch : (step + 1) * batch]].to(there))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, CLIP)
        optimiser.step()
        found.append(float(loss.detach()))
        say(f"distillation, step {step + 1} of {steps}, divergence {found[-1]:.4f}")
    student.requires_grad_(False)
    return found
