"""Banks of class-token networks on a CPU in compiled C++: a lane of a vector for every sample, a step near the core.

A tile of samples goes through the network and back before the next one begins, in the member's own shape without
padding: encoder, layers, the class token's last question by directions (as `collapsed` has it), read-out, loss, and the
way back. Jobs are cut by the batch and the member alone and added in order, so that a member's numbers depend neither
on the threads nor on the bank it is in.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.backend import Backend, Problem
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.class_token import ClassToken
from headcount.kernels.cpp.native_library import native_library
from headcount.kernels.loss import cross_entropy, squared
from headcount.kernels.optimiser import BETA1, EPS, AdamW
from headcount.kernels.plain import Batch, collapsed
from headcount.nets.architecture import ClassTokenShape

LOSSES = (squared, cross_entropy)
MEMORY = 2**30  # bytes of a thread: lengths up to about 1,400 with 4 heads in two layers
ROUNDINGS = 2**14  # that may add up in a gradient: as many as the check's samples have tokens, 32 times 512
LONG = 1000  # steps: what a CPU must have to do before a compiler is called, which takes five seconds once


def summed(bank: Bank) -> float:
    """How far sums in another order may take a member's gradient."""
    return ROUNDINGS * torch.finfo(bank.theta.dtype).eps


def compiled_gradient(problem: Problem, bank: Bank, batch: Batch) -> Float[Tensor, "models parameters"]:
    """The gradient of every active member's mean loss on its batch; zeros for those who have stopped."""
    assert isinstance(problem, ClassToken)
    out, classes = torch.empty_like(bank.theta), problem.loss is cross_entropy
    _pass(bank, bank.theta.detach(), batch, target=batch.target.contiguous(), gradient=out, classes=classes)
    return out


def compiled_forward(problem: Problem, bank: Bank, p: Stacked, batch: Batch) -> Float[Tensor, "models batch ..."]:
    """Every member's output; where it is to be differentiated, that of the collapsed bank."""
    if not _fits(bank, batch) or (torch.is_grad_enabled() and any(x.requires_grad for x in p.values())):
        return collapsed(bank, p, batch)
    theta = torch.cat([x.flatten(1) for x in p.values()], dim=1)
    models, samples, outputs = *batch.rows.shape, p["read_out.outer.bias"].shape[1]
    out = theta.new_empty(models, samples, outputs)
    _pass(bank, theta, batch, output=out)
    return out[..., 0] if outputs == 1 else out


@torch.no_grad()
def compiled_update(adam: AdamW, theta: Tensor, gradient: Tensor, active: Tensor) -> None:
    """`AdamW.update` in one pass."""
    adam.step += 1
    step = adam.step.item()
    factor = adam.shape.share(adam.step, adam.steps, adam.warmup).item()
    each = max(adam.lr.shape[1], adam.decay.shape[1])
    lr, decay = (x.expand(-1, each).contiguous() for x in (adam.lr, adam.decay))
    real = ctypes.c_double
    library_for(theta, "bank").bank_adamw(
        *map(ctypes.c_int64, (*theta.shape, each)),
        *map(address_of, (lr, decay)),
        *map(real, (factor, 1 - BETA1**step, 1 - adam.beta2**step, BETA1, adam.beta2, EPS)),
        *map(address_of, (active, gradient.contiguous(), adam.first, adam.second, theta)),
        ctypes.c_int64(torch.get_num_threads()),
    )


def _fits(bank: Bank, batch: Batch) -> bool:
    """Whether a bank's kind is written in C++, and a tile's weights of tokens on tokens fit a thread.

    These weights are the largest it keeps. Written are residuals, and with one layer a feed-forward as encoder.
    """
    length, deep, arch = batch.data.shape[2], range(bank.depth - 1), bank.net.arch
    heads = max((bank.shapes[f"attention.{layer}.query"][0] for layer in deep), default=0)
    linear = bank.depth == 1 and arch.embedding == "linear"
    return arch.residual and not linear and 64 * bank.depth * heads * length**2 <= MEMORY


def _pass(
    bank: Bank,
    theta: Tensor,
    batch: Batch,
    *,
    target: Tensor | None = None,
    output: Tensor | None = None,
    gradient: Tensor | None = None,
    classes: bool = False,
) -> None:
    theta, data, rows, present = theta.contiguous(), batch.data.contiguous(), batch.rows.contiguous(), batch.present
    layout, active = _layout(bank), bank.active if gradient is not None else None
    (models, samples), (_, _, longest, features) = rows.shape, data.shape
    sizes = (bank.depth, features, layout.outputs, longest, samples, models, theta.shape[1])
    arch = bank.net.arch
    sizes += (arch.class_token == "every", classes, torch.get_num_threads())
    sizes += (arch.embedding == "linear", arch.activation == "gelu")
    steps = (0, 0)
    if present is not None:
        present = present.contiguous()
        steps = (present.stride(0), 0 if present.ndim == 2 else present.stride(1))
    library_for(theta, "bank").bank_pass(
        whole_numbers(sizes),
        layout.places,
        layout.members,
        *map(address_of, (layout.scale, theta, data)),
        ctypes.c_int64(data.stride(0)),
        *map(address_of, (batch.which, rows, present)),
        whole_numbers(steps),
        *map(address_of, (active, target, output, gradient)),
    )


@dataclass(frozen=True, eq=False)
class _Layout:
    """What of a bank stays the same from step to step: where parameters lie, and each member's own shape."""

    nets: tuple[ClassTokenShape, ...]
    scale: Tensor
    outputs: int
    places: ctypes.Array[ctypes.c_int64]
    members: ctypes.Array[ctypes.c_int32]


_LAYOUTS: WeakKeyDictionary[Bank, _Layout] = WeakKeyDictionary()


def _layout(bank: Bank) -> _Layout:
    layout = _LAYOUTS.get(bank)
    if layout is None or layout.nets is not bank.nets or layout.scale is not bank.scale:
        sizes = [
            n
            for a in (net.arch for net in bank.nets)
            for n in (a.width, a.embed_dim, *(n for layer in a.layers for n in layer))
        ]
        members = (ctypes.c_int32 * len(sizes))(*sizes)
        outputs = bank.shapes["read_out.outer.bias"][0]
        layout = _LAYOUTS[bank] = _Layout(bank.nets, bank.scale, outputs, whole_numbers(_places(bank)), members)
    return layout


def _places(bank: Bank) -> list[int]:
    """Where every parameter begins in a row, and its strides: the order is that of `member.h`."""
    feed = ("inner.weight", "inner.bias", "outer.weight", "outer.bias")
    entering = feed if bank.net.arch.embedding == "feed-forward" else ("weight", "bias")
    names = [*(f"encoder.{part}" for part in entering), "cls"]
    for layer in range(bank.depth):
        names += [f"attention.{layer}.{part}" for part in ("query", "key", "value", "output")]
        names += [f"between.{layer}.{part}" for part in feed] if layer + 1 < bank.depth else []
    begins = dict(zip(bank.shapes, accumulate((s.numel() for s in bank.shapes.values()), initial=0), strict=False))
    out: list[int] = []
    for name in (*names, *(f"read_out.{part}" for part in feed)):
        *_, middle, last = (0, *bank.shapes[name])
        out += [begins[name], middle * last if len(bank.shapes[name]) == 3 else last, last]
    return out


def library_for(numbers: Tensor, program: str) -> ctypes.CDLL:
    """The program for these numbers, which a backend has seen to be there."""
    library = native_library(_name_of(numbers.dtype), program)
    assert library is not None
    return library


def are_compiled(bank: Bank, *programs: str) -> bool:
    """Whether a bank lies on a CPU, and these programs are there for its numbers."""
    name = _name_of(bank.theta.dtype)
    return bank.theta.device.type == "cpu" and all(native_library(name, each) is not None for each in programs)


def _name_of(dtype: torch.dtype) -> str:
    """The name of a type of numbers that programs are compiled under."""
    return str(dtype).removeprefix("torch.")


def address_of(tensor: Tensor | None) -> ctypes.c_void_p:
    """Where the numbers of a tensor lie, as C takes it."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def whole_numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """A list as C takes it."""
    return (ctypes.c_int64 * len(values))(*values)


def _holds(problem: Problem, bank: Bank, batch: Any) -> bool:
    """Squared gaps or classes on a CPU, within what is written, where there is a compiler."""
    supported = isinstance(problem, ClassToken) and problem.loss in LOSSES
    return supported and _fits(bank, batch) and are_compiled(bank, "bank")


backend = Backend("cpp", _holds, compiled_gradient, compiled_forward, compiled_update, tolerance=summed, long=LONG)
