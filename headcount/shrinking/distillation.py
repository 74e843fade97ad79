"""Self-distillation: a cut model learns to give back the original's outputs on text without labels, attention alone
moving. One loop; what is compared (next-token probabilities, or any read-out) is the loss that it is given."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.nets.pretrained.families import family_of

Progress = Callable[[str], None]
WARM_UP = 20  # steps
CLIP = 1.0
SAID = 10  # steps between two looks at the loss
AT_ONCE = 4096  # tokens whose probabilities are held at once


@dataclass(frozen=True)
class Lessons:
    """How long and how fast: so many steps or seconds, whichever ends first, at the rate `lr` at its height."""

    steps: int
    lr: float = 3e-4
    seconds: float = math.inf
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"self-distillation takes at least 1 step, got {self.steps}")

    def rate(self, step: int, done: float) -> float:
        """A linear warm-up, and half a cosine to nothing at `done` = 1.

        >>> Lessons(100, lr=2.0).rate(step=50, done=0.5)
        1.0
        """
        return self.lr * min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * done))

    def order(self, pieces: int) -> Int[Tensor, " steps"]:
        """Which piece each step is taught on: all of them once, in a new order, before any comes again."""
        draw = torch.Generator().manual_seed(self.seed)
        rounds = [torch.randperm(pieces, generator=draw) for _ in range(-(-self.steps // pieces))]
        return torch.cat(rounds)[: self.steps]


def taught(
    student: nn.Module,
    order: Iterable[int],
    loss_of: Callable[[int], Float[Tensor, ""]],
    lessons: Lessons,
    say: Progress = lambda _: None,
) -> list[float]:
    """Train the attention of `student` by Adam on the losses of pieces of text, in this order; every step's loss.

    A loss is looked at once in a while only: to look is to wait for a device.
    """
    trained = attention_parameters(student)
    optimiser = torch.optim.Adam(trained, lr=lessons.lr, betas=(0.9, 0.98))
    began, losses = time.monotonic(), list[Tensor]()
    for step, piece in enumerate(order):
        done = max((step + 1) / lessons.steps, (time.monotonic() - began) / lessons.seconds)
        if done > 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = lessons.rate(step, done)
        loss = loss_of(piece)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, CLIP)
        optimiser.step()
        losses.append(loss.detach())
        if step % SAID == 0:
            say(f"self-distillation, step {step + 1} of {lessons.steps}, loss {float(losses[-1]):.4f}")
    student.requires_grad_(False)
    return torch.stack(losses).tolist() if losses else []


def distil(
    student: nn.Module,
    teacher: nn.Module,
    batches: Sequence[TextBatch],
    read: Readout,
    lessons: Lessons,
    say: Progress = lambda _: None,
) -> list[float]:
    """Towards the teacher's read-outs, which are computed once.

    The loss is the mean squared distance of the read-outs, that is twice one minus the cosine for sentence embeddings.
    """
    if not batches:
        raise ValueError("self-distillation needs text: no batches were given")
    with torch.no_grad():
        wanted = [read(teacher, batch).clone() for batch in batches]

    def loss_of(piece: int) -> Tensor:
        return (read(student, batches[piece]) - wanted[piece]).square().flatten(1).sum(1).mean()

    return taught(student, lessons.order(len(batches)).tolist(), loss_of, lessons, say)


def learn_from(
    student: nn.Module,
    teacher: nn.Module,
    windows: Int[Tensor, "windows length"],
    lessons: Lessons,
    batch: int = 8,
    say: Progress = lambda _: None,
) -> list[float]:
    """Towards the teacher's next-token probabilities, `batch` windows a step, other ones together in every round."""
    if not 0 < batch <= len(windows):
        raise ValueError(f"a batch must have from 1 to the {len(windows)} windows that there are, got {batch}")
    there, count = next(student.parameters()).device, len(windows) // batch
    rounds = -(-lessons.steps // count)
    draw = torch.Generator().manual_seed(lessons.seed)
    pieces = torch.cat([torch.randperm(len(windows), generator=draw)[: count * batch] for _ in range(rounds)])

    def loss_of(piece: int) -> Tensor:
        return _divergence(student, teacher, windows[pieces[piece * batch : (piece + 1) * batch]].to(there))

    return taught(student, range(lessons.steps), loss_of, lessons, say)


def _divergence(student: Any, teacher: Any, windows: Int[Tensor, "batch length"]) -> Float[Tensor, ""]:
    """Mean over tokens of KL(teacher || student)."""
    with torch.no_grad():
        wanted = _states(teacher, windows)
    words = teacher.get_output_embeddings().weight, student.get_output_embeddings().weight
    return _MeanDivergence.apply(_states(student, windows), wanted, *words)


def _states(model: Any, windows: Int[Tensor, "batch length"]) -> Float[Tensor, "tokens embed"]:
    """On a GPU in bfloat16 up to the last product: 16 bits of a logit would be coarser than what is to be learnt."""
    with torch.autocast(windows.device.type, torch.bfloat16, enabled=windows.is_cuda):
        states = model.base_model(input_ids=windows, use_cache=False).last_hidden_state
    return states.float().flatten(0, 1)


class _MeanDivergence(torch.autograd.Function):
    """KL of next-token probabilities and its slope by the student's states, some tokens at a time.

    By a logit the slope is q - p, so it is known as soon as the loss is: no table of probabilities is kept.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, states: Tensor, wanted: Tensor, teachers: Tensor, students: Tensor
    ) -> Tensor:
        total, slopes = states.new_zeros(()), torch.empty_like(states)
        for at in range(0, len(states), AT_ONCE):
            log_p = (wanted[at : at + AT_ONCE] @ teachers.mT).log_softmax(-1)
            log_q = (states[at : at + AT_ONCE] @ students.mT).log_softmax(-1)
            p = log_p.exp()
            total += torch.linalg.vecdot(p.flatten(), (log_p - log_q).flatten())
            slopes[at : at + AT_ONCE] = log_q.exp_().sub_(p) @ students
        ctx.save_for_backward(slopes / len(states))
        return total / len(states)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (slopes,) = ctx.saved_tensors
        return slope * slopes, None, None, None


def attention_parameters(student: nn.Module) -> list[nn.Parameter]:
    """The parameters of every layer's ragged heads and their output projections, and no others."""
    family = family_of(student)
    student.requires_grad_(False)
    parameters: list[nn.Parameter] = []
    layer: Any
    for layer in family.layers(student):
        heads = family.heads(layer)
        if heads is None:
            raise ValueError("self-distillation trains a reduced model; this one was not reduced")
        weights = family.read(layer)
        wanted = {t.data_ptr() for t in (weights.output, weights.output_bias) if t is not None and t.numel()}
        holder = layer if next(layer.parameters(), None) is not None else layer.attention
        outs = [p for p in holder.parameters() if p.data_ptr() in wanted]
        parameters += [p.requires_grad_() for p in [*heads.parameters(), *outs] if p.numel()]
    return parameters
