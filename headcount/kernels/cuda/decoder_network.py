"""The gradient of a bank of decoders in 2 + 4 L + 3 launches: embeddings, layers, logits, and back, written out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.kernels.backend import Backend, Problem, graph, rounding
from headcount.kernels.bank import Bank
from headcount.kernels.cuda.cuts import AttentionSize, Cut, FeedSize
from headcount.kernels.cuda.programs import shared_limit
from headcount.kernels.cuda.sublayers import Rows, added, begins
from headcount.kernels.cuda.token_sublayers import TokenAttention, TokenFeeding
from headcount.kernels.fused import update
from headcount.kernels.next_letter import NextLetter, StringBatch
from headcount.kernels.tiles import power, spread
from headcount.kernels.triton import letters_backward, letters_forward, say
from headcount.nets.causal import EPS, DecoderShape

TALL = 64  # rows of a tile at the two ends


def decoder_held(shape: DecoderShape, length: int, device: str = "cuda") -> bool:
    """Whether programs can hold the layers of this shape at this length: rotary positions are not among them."""
    if shape.positions == "rotary" or shape.vocab > 128:
        return False
    most, embed = shared_limit(device), shape.embed_dim
    sizes = [AttentionSize(length, embed, heads, dim, norm=True) for heads, dim in shape.layers]
    return all(size.forwards(most) and size.backwards(most) for size in (*sizes, _feed(shape)))


def _feed(shape: DecoderShape) -> FeedSize:
    return FeedSize(shape.embed_dim, shape.width, shape.embed_dim, gelu=True, norm=True, posted=True)


def decoder_gradient(
    shape: DecoderShape, theta: Float[Tensor, "models parameters"], strings: StringBatch
) -> tuple[Float[Tensor, "models parameters"], Float[Tensor, " models"]]:
    """The gradient of every member's mean cross-entropy over its judged places, and that loss."""
    theta = theta.detach()
    models, batch, length = strings.size
    parts = _parts(shape, models, batch * length, theta.device.type)
    layers = _layers(shape, theta, parts)
    rows = Rows(theta, theta.new_empty(models, parts, theta.shape[1]), None)
    x, activations = _looked_up(shape, rows, strings), []
    for attending, feeding in layers:
        middle, _ = attending.forward(rows, x, None)
        activations.append((x, middle))
        x = feeding.forward(rows, middle)
    slope, loss = _loss_and_slope(shape, rows, x, strings, parts)
    for (attending, feeding), (before, middle) in zip(reversed(layers), reversed(activations), strict=True):
        slope = feeding.backward(rows, middle, slope)
        slope, _ = attending.backward(rows, before, slope, None, None)
    _looked_up_back(shape, rows, slope, strings, parts)
    return added(rows.share), loss.sum(dim=1)


def _parts(shape: DecoderShape, models: int, rows: int, device: str) -> int:
    """Programs of each member in every kernel backwards, the same for all: they write every partial gradient."""
    cut = _feed(shape).backwards(shared_limit(device))
    assert isinstance(cut, Cut), "a program has no place for it"
    return spread(models, -(-rows // (16 * cut.warps)), cut.warps)


def _layers(shape: DecoderShape, theta: Tensor, parts: int) -> list[tuple[TokenAttention, TokenFeeding]]:
    at, embed, device = begins(shape.tensors()), shape.embed_dim, theta.device.type
    out = []
    for i, (heads, dim) in enumerate(shape.layers):
        read, wide = at[f"layer{i}.read"], heads * dim * embed
        places = {"query": read, "key": read + wide, "value": read + 2 * wide, "output": at[f"layer{i}.write"]}
        places |= {"scaling": at[f"layer{i}.norm.weight"], "moving": at[f"layer{i}.norm.bias"]}
        scale = _equal(dim**-0.5, len(theta), torch.float32, theta.device)
        counts = _equal(heads, len(theta), torch.int32, theta.device)
        steps = (dim, heads * dim)
        attending = TokenAttention(places, heads, dim, embed, steps, scale, counts, True, EPS, parts, device)
        names = {"inner": "inner.weight", "bias": "inner.bias", "outer": "outer.weight", "shift": "outer.bias"}
        names |= {"scaling": "before.weight", "moving": "before.bias"}
        where = {short: at[f"layer{i}.{name}"] for short, name in names.items()}
        out.append((attending, TokenFeeding(where, embed, shape.width, embed, True, True, EPS, parts, device)))
    return out


@lru_cache(64)
def _equal(value: float, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same number for every member, made once: a step that is recorded should not fill it in anew."""
    return torch.full((count,), value, dtype=dtype, device=device)


def _looked_up(shape: DecoderShape, rows: Rows, strings: StringBatch) -> Tensor:
    models, batch, length = strings.size
    out = rows.theta.new_empty(models, batch, length, shape.embed_dim)
    letters_forward[models, -(-batch * length // TALL)](
        rows.theta, strings.ids, strings.offset, out, rows.row, batch * length, length, shape.vocab, shape.embed_dim,
        ROWS=TALL, EMBED=power(shape.embed_dim), PLACES=shape.positions == "absolute", num_warps=4,
    )  # fmt: skip
    return out


def _looked_up_back(shape: DecoderShape, rows: Rows, slope: Tensor, strings: StringBatch, parts: int) -> None:
    models, batch, length = strings.size
    table = shape.vocab + (shape.context if shape.positions == "absolute" else 0)
    tall = min(64, max(16, power(table)))
    letters_backward[models, parts, -(-table // tall)](
        strings.ids, strings.offset, slope, rows.share, rows.row, rows.share.stride(0), batch * length, length,
        shape.vocab, table, shape.embed_dim, ROWS=TALL, EMBED=max(16, power(shape.embed_dim)), TABLE=tall,
        PLACES=shape.positions == "absolute", num_warps=4, num_stages=1,
    )  # fmt: skip


def _loss_and_slope(
    shape: DecoderShape, rows: Rows, x: Tensor, strings: StringBatch, parts: int
) -> tuple[Tensor, Tensor]:
    models, batch, length = strings.size
    at, d_x = begins(shape.tensors()), torch.empty_like(x)
    loss = rows.theta.new_empty(models, parts)
    say[models, parts](
        x, rows.theta, strings.targets, strings.judged, strings.counts, loss, d_x, rows.share,
        rows.row, rows.share.stride(0), at["last.weight"], at["last.bias"], at["logits"], batch * length, shape.vocab,
        shape.embed_dim, ROWS=TALL, EMBED=max(16, power(shape.embed_dim)), VOCAB=max(16, power(shape.vocab)), EPS=EPS,
        PRECISION="half", num_warps=4, num_stages=1,
    )  # fmt: skip
    return d_x, loss


def _holds(problem: Problem, bank: Bank[DecoderShape], batch: Any) -> bool:
    supported = isinstance(problem, NextLetter) and problem.precision == "full" and bank.theta.is_cuda
    return supported and bank.theta.dtype == torch.float32 and decoder_held(bank.net, batch.size[2])


def _gradient(problem: Problem, bank: Bank[DecoderShape], batch: StringBatch) -> Tensor:
    return decoder_gradient(bank.net, bank.theta, batch)[0]


backend = Backend("cuda", _holds, _gradient, update=update, record=graph, tolerance=rounding)
