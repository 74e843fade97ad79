"""Banks of decoders on a CPU in compiled C++ (`decoders.cpp`): places that no answer depends on are left out."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.backend import Backend, Problem
from headcount.kernels.bank import Bank
from headcount.kernels.cpp.compiled import (
    LONG,
    address_of,
    are_compiled,
    compiled_update,
    library_for,
    summed,
    whole_numbers,
)
from headcount.kernels.next_letter import NextLetter, StringBatch
from headcount.nets.causal import DecoderShape


def compiled_decoder_gradient(
    problem: Problem, bank: Bank[DecoderShape], batch: StringBatch
) -> Float[Tensor, "models parameters"]:
    """The gradient of every member's mean cross-entropy over its judged places."""
    shape, (models, strings, length), theta = bank.net, batch.size, bank.theta.detach()
    context = shape.context if shape.positions == "absolute" else 0
    sizes = (shape.depth, shape.embed_dim, shape.width, shape.vocab, context, length, strings, models, theta.shape[1])
    layers = (ctypes.c_int32 * (2 * shape.depth))(*(n for layer in shape.layers for n in layer))
    parts = (batch.ids, batch.targets, batch.judged, batch.offset, batch.counts)
    buffers = [part.contiguous() for part in parts]
    out = torch.empty_like(theta)
    library_for(theta, "decoders").decoder_gradient(
        whole_numbers((*sizes, torch.get_num_threads())), layers, *map(address_of, (theta, *buffers, out))
    )
    return out


def _holds(problem: Problem, bank: Bank[DecoderShape], batch: Any) -> bool:
    """Full products on a CPU, places that are not rotary, where there is a compiler."""
    supported = isinstance(problem, NextLetter) and problem.precision == "full" and bank.net.positions != "rotary"
    return supported and are_compiled(bank, "bank", "decoders")


backend = Backend("cpp", _holds, compiled_decoder_gradient, update=compiled_update, tolerance=summed, long=LONG)
