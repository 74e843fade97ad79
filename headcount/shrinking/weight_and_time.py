"""What a model weighs, how fast it runs, and how far two models' outputs are apart."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.nets.pretrained.families import family_of


@dataclass(frozen=True)
class ModelSize:
    """Parameters and stored bytes of a model, and of its attention alone."""

    parameters: int
    attention: int
    bytes: int


def size(model: nn.Module) -> ModelSize:
    """Count a model's numbers and bytes, tied weights once."""
    family = family_of(model)
    parameters = list({p.data_ptr(): p for p in model.parameters()}.values())
    return ModelSize(
        sum(p.numel() for p in parameters),
        sum(_attention(layer) for layer in family.layers(model)),
        sum(p.numel() * p.element_size() for p in parameters),
    )


def stock_head_dims(model: Any) -> list[int]:
    """Each layer's head dimension in the stock model of this configuration, whatever has been cut from it since."""
    config = getattr(model, "config", None)
    if config is None:
        return [dim for _, dim in model.arch.layers]
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return [dim] * len(family_of(model).layers(model))


def tokens_that_fit(model: nn.Module, length: int) -> int:
    """Tokens a batch may hold so that derivatives take about half the memory of the model itself, at least one text."""
    family = family_of(model)
    layers = family.layers(model)
    embed = family.read(layers[0]).value.shape[1]
    model_bytes = size(model).bytes
    return max(
        length, int(model_bytes / 2 / (len(layers) * 30 * embed * 4))
    )  # about 30 vectors per token and layer are kept


@torch.no_grad()
def gap(model: nn.Module, original: nn.Module, batches: Sequence[TextBatch], read: Readout) -> float:
    """Mean squared distance of the two read-outs, relative to the original's size."""
    moved = total = 0.0
    for batch in batches:
        wanted = read(original, batch)
        moved += float((read(model, batch) - wanted).square().sum())
        total += float(wanted.square().sum())
    return moved / total


@torch.no_grad()
def latencies(models: Sequence[nn.Module], batch: TextBatch, repeats: int = 15) -> list[float]:
    """Median seconds of one forward pass of each model, taken in turns so that a busy machine hits all alike."""
    times: list[list[float]] = [[] for _ in models]
    for turn in range(repeats + 2):
        for model, own_times in zip(models, times, strict=True):
            began = time.perf_counter()
            getattr(model, "base_model", model)(**batch.inputs)
            if turn >= 2:
                own_times.append(time.perf_counter() - began)
    return [statistics.median(own_times) for own_times in times]


def _attention(layer: Any) -> int:
    """Parameters of one attention layer as they are stored, rotary queries and keys and stock biases included."""
    holder = getattr(layer, "self_attn", None) or getattr(layer, "attn", None)
    if holder is not None:
        return sum(p.numel() for p in holder.parameters())
    part = layer.attention
    if hasattr(part, "self"):
        return sum(p.numel() for m in (part.self, part.output.dense) for p in m.parameters())
    return sum(p.numel() for p in part.parameters())
