"""Banks of standard encoders on a CPU in compiled C++ (`encoders.cpp`): a lane of a vector for every sample.

The same blocks as those of decoders, without their triangle. Where the class token is read out, it is the query of the
last layer, along one direction per head; where the mean is, it is taken before the last matrix, which is linear. Masks
of dropout are those of `dropping`. A member's numbers depend neither on the threads nor on the bank it is in.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.backend import Backend, Problem
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.cpp.compiled import (
    LONG,
    LOSSES,
    MEMORY,
    address_of,
    are_compiled,
    compiled_update,
    library_for,
    summed,
    whole_numbers,
)
from headcount.kernels.dropping import dropping_limit
from headcount.kernels.encoding import EncoderBatch, Encoding, encoder_output
from headcount.kernels.loss import cross_entropy
from headcount.nets.standard import EncoderShape


def compiled_encoder_gradient(
    problem: Problem, bank: Bank[EncoderShape], batch: EncoderBatch
) -> Float[Tensor, "models parameters"]:
    """The gradient of every active member's mean loss on its batch; zeros for those who have stopped."""
    assert isinstance(problem, Encoding)
    out, classes = torch.empty_like(bank.theta), problem.loss is cross_entropy
    _pass(bank.net, bank.theta.detach(), batch, _Written(bank.active, batch.target, gradient=out), classes)
    return out


def compiled_encoder_forward(
    problem: Problem, bank: Bank[EncoderShape], p: Stacked, batch: EncoderBatch
) -> Float[Tensor, "models batch ..."]:
    """Every member's outputs; where they are to be differentiated, those of the batched products."""
    differentiated = torch.is_grad_enabled() and any(x.requires_grad for x in p.values())
    if differentiated or not _fits(bank, batch):
        return encoder_output(bank.net, p, batch)
    theta = torch.cat([x.flatten(1) for x in p.values()], dim=1)
    out = theta.new_empty(*batch.rows.shape, bank.net.outputs)
    _pass(bank.net, theta, batch, _Written(output=out))
    return out[..., 0] if bank.net.outputs == 1 else out


class _Written(NamedTuple):
    """What a pass writes, outputs or the gradient, and what it needs for the gradient."""

    active: Tensor | None = None
    target: Tensor | None = None
    output: Tensor | None = None
    gradient: Tensor | None = None


def _pass(shape: EncoderShape, theta: Tensor, batch: EncoderBatch, written: _Written, classes: bool = False) -> None:
    active, target, output, gradient = written
    (models, samples), length = batch.rows.shape, batch.data.shape[2]
    shape.refuse_longer(length)
    numbers, integers = theta.dtype, torch.int64
    theta, data = theta.contiguous(), batch.data.to(integers if shape.vocab else numbers).contiguous()
    which, rows = (x.to(integers).contiguous() for x in (batch.which, batch.rows))
    present = None if batch.present is None else batch.present.contiguous()
    keys = None if batch.keys is None or not shape.dropout else batch.keys.to(integers).contiguous()
    target = None if target is None else target.to(numbers).contiguous()
    sizes = (shape.depth, shape.embed_dim, shape.width, shape.token_dim, shape.vocab, shape.positions, shape.outputs)
    sizes += (length, samples, shape.pooling == "class token", shape.activation == "gelu")
    sizes += (models, theta.shape[1], classes, torch.get_num_threads(), *data.shape[:2])
    layers = (ctypes.c_int32 * (2 * shape.depth))(*(n for layer in shape.layers for n in layer))
    steps = (0, 0) if present is None else present.stride()[:2]
    wrong = library_for(theta, "encoders").encoder_pass(
        whole_numbers(sizes),
        layers,
        *map(address_of, (theta, None if shape.vocab else data, data if shape.vocab else None)),
        ctypes.c_int64(data.stride(0)),
        *map(address_of, (which, rows, present)),
        whole_numbers(steps),
        *map(address_of, (active, keys)),
        ctypes.c_int64(dropping_limit(shape.dropout)),
        ctypes.c_double(1 / (1 - shape.dropout)),
        *map(address_of, (target, output, gradient)),
    )
    if wrong:
        raise IndexError(
            (f"a row is none of the {data.shape[1]} samples", f"an id is none of the {shape.vocab}")[wrong - 1]
        )


def _fits(bank: Bank[EncoderShape], batch: EncoderBatch) -> bool:
    """Whether a tile's weights of tokens on tokens, the largest it keeps, fit a thread with their dropout."""
    heads, length = max(heads for heads, _ in bank.net.layers), batch.data.shape[2] + 1
    return 128 * bank.depth * heads * length**2 <= MEMORY


def _holds(problem: Problem, bank: Bank[EncoderShape], batch: Any) -> bool:
    """Squared gaps or classes on a CPU, where there is a compiler."""
    supported = isinstance(problem, Encoding) and problem.loss in LOSSES
    return supported and _fits(bank, batch) and are_compiled(bank, "bank", "encoders")


backend = Backend(
    "cpp", _holds, compiled_encoder_gradient, compiled_encoder_forward, compiled_update, tolerance=summed, long=LONG
)
