"""Short self-distillation: the reduced model learns to give back the original's outputs on unlabelled text."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.nets.pretrained.families import family_of

__all__ = ["attention_parameters", "distil"]


def distil(
    student: nn.Module,
    teacher: nn.Module,
    batches: Sequence[TextBatch],
    read: Readout,
    *,
    epochs: int = 1,
    lr: float = 3e-4,
    seconds: float = math.inf,
    seed: int = 0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[float]:
    """Train the reduced attention of `student` towards the teacher's read-out; returns the loss of every step.

    The loss is the mean squared distance of the read-outs, that is twice one minus the cosine for sentence
    embeddings. Only the attention matrices and biases move; Adam with a linear warm-up and cosine decay. The teacher's
    outputs are computed once. Stops after `seconds`, the rate having been lowered to nothing by then.
    """
    if not batches:
        raise ValueError("self-distillation needs text: no batches were given")
    with torch.no_grad():
        wanted = [read(teacher, batch).clone() for batch in batches]
    trained = attention_parameters(student)
    optimiser = torch.optim.Adam(trained, lr=lr, betas=(0.9, 0.98))
    steps, began = epochs * len(batches), time.monotonic()
    order = [i for e in range(epochs) for i in random.Random(seed + e).sample(range(len(batches)), len(batches))]
    losses: list[float] = []
    for step, i in enumerate(order):
        done = max((step + 1) / steps, (time.monotonic() - began) / seconds)
        if done > 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * done))
        loss = (read(student, batches[i]) - wanted[i]).square().flatten(1).sum(1).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        losses.append(float(loss.detach()))
        on_progress(f"self-distillation, step {step + 1} of {steps}, loss {losses[-1]:.4f}")
    student.requires_grad_(False)
    return losses


def attention_parameters(student: nn.Module) -> list[nn.Parameter]:
    """The parameters of every layer's ragged heads and their output projections, and no others."""
    family = family_of(student)
    student.requires_grad_(False)
    found: list[nn.Parameter] = []
    layer: Any
    for layer in family.layers(student):
        heads = family.heads(layer)
        if heads is None:
            raise ValueError("self-distillation trains a reduced model; this one was not reduced")
        weights = family.read(layer)
        wanted = {t.data_ptr() for t in (weights.output, weights.output_bias) if t is not None and t.numel()}
        holder = layer if next(layer.parameters(), None) is not None else layer.attention
        outs = [p for p in holder.parameters() if p.data_ptr() in wanted]
        found += [p.requires_grad_() for p in [*heads.parameters(), *outs] if p.numel()]
    return found
