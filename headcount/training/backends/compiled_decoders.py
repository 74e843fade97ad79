"""Banks of decoders on a CPU in compiled C++ (`native/decoders.cpp`): places that no answer depends on are left out."""

from __future__ import annotations

import ctypes

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets.causal import DecoderShape
from headcount.training.backends.compiled import (
    ROUNDINGS,
    address_of,
    compiled_update,
    library_for,
    whole_numbers,
)
from headcount.training.backends.native_library import native_library
from headcount.training.decoder_bank import DecoderBank
from headcount.training.decoder_paths import DecoderBatch, DecoderPath

__all__ = ["compiled_decoder_gradient", "compiled_decoder_path"]


def compiled_decoder_path(shape: DecoderShape, dtype: str = "float32") -> DecoderPath | None:
    """Decoders in C++ for this processor; None where there is no compiler, or places are rotary."""
    there = shape.positions != "rotary" and native_library(dtype) and native_library(dtype, "decoders")
    if not there:
        return None
    tolerance = ROUNDINGS * torch.finfo(getattr(torch, dtype)).eps
    return DecoderPath("decoders in compiled C++", compiled_decoder_gradient, compiled_update, tolerance)


def compiled_decoder_gradient(bank: DecoderBank, batch: DecoderBatch) -> Float[Tensor, "models parameters"]:
    """The gradient of every member's mean cross-entropy over its judged places."""
    shape, (models, strings, length), theta = bank.shape, batch.size, bank.theta.detach()
    context = shape.context if shape.positions == "absolute" else 0
    sizes = (shape.depth, shape.embed_dim, shape.width, shape.vocab, context, length, strings, models, theta.shape[1])
    layers = (ctypes.c_int32 * (2 * shape.depth))(*(n for layer in shape.layers for n in layer))
    parts = (batch.ids, batch.targets, batch.judged, batch.offset, batch.counts)
    held = [part.contiguous() for part in parts]
    out = torch.empty_like(theta)
    library_for(theta, "decoders").decoder_gradient(
        whole_numbers((*sizes, torch.get_num_threads())), layers, *map(address_of, (theta, *held, out))
    )
    return out
