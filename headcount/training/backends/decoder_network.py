"""The gradient of a bank of decoders in 2 + 4 L + 3 launches: letters, layers, what is said, and back, written out."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets.causal import EPS, DecoderShape
from headcount.training.backends.kernels import letters_backward, letters_forward, say
from headcount.training.backends.sublayers import Attending, Feeding, Rows, added, begins
from headcount.training.backends.tiles import SublayerTile, power, spread
from headcount.training.backends.warp_sublayers import WarpAttending, WarpFeeding, feed_cut, feed_fits, heads_fit
from headcount.training.decoder_paths import DecoderBatch

__all__ = ["decoder_gradient", "decoder_held", "decoders_by_warps"]

TALL = 64  # rows of a tile at the two ends


def decoder_held(shape: DecoderShape, length: int, dtype: torch.dtype, tile: SublayerTile) -> bool:
    """Whether programs can hold the sublayers of this shape at this length: rotary positions are not among them."""
    if shape.positions == "rotary" or dtype != torch.float32 or shape.vocab > 128:
        return False
    heads = all(tile.heads_cut(length, shape.embed_dim, h, n, back) for h, n in shape.layers for back in (False, True))
    return heads and tile.hidden_cut(shape.embed_dim, shape.width, shape.embed_dim, True) is not None


def decoders_by_warps(shape: DecoderShape, length: int) -> bool:
    """Whether programs of warps can hold the layers of this shape at this length, which the kernels hold."""
    embed, width = shape.embed_dim, shape.width
    return feed_fits(embed, width, embed) and all(heads_fit(length, embed, heads, dim) for heads, dim in shape.layers)


def decoder_gradient(
    shape: DecoderShape,
    theta: Float[Tensor, "models parameters"],
    strings: DecoderBatch,
    tile: SublayerTile,
    warps: bool = False,
) -> tuple[Float[Tensor, "models parameters"], Float[Tensor, " models"]]:
    """The gradient of every member's mean cross-entropy over its judged places, and that loss; layers by `warps`."""
    theta = theta.detach()
    models, batch, length = strings.size
    parts = _parts(shape, models, batch * length, warps)
    layers = _layers(shape, theta, tile, parts)
    if warps:
        layers = [_by_warps(*layer, theta.device.type) for layer in layers]
    rows = Rows(theta, theta.new_empty(models, parts, theta.shape[1]), None, tile.precision)
    x, kept = _looked_up(shape, rows, strings), []
    for attending, feeding in layers:
        middle, _ = attending.forward(rows, x, None)
        kept.append((x, middle))
        x = feeding.forward(rows, middle)
    slope, loss = _said(shape, rows, x, strings, parts)
    for (attending, feeding), (before, middle) in zip(reversed(layers), reversed(kept), strict=True):
        slope = feeding.backward(rows, middle, slope)
        slope, _ = attending.backward(rows, before, slope, None, None)
    _looked_up_back(shape, rows, slope, strings, parts)
    return added(rows.share), loss.sum(dim=1)


def _parts(shape: DecoderShape, models: int, rows: int, warps: bool) -> int:
    """Programs of each member in every kernel backwards, the same for all: together they write every share whole."""
    if not warps:
        return spread(models, -(-rows // TALL), 4)
    cut = feed_cut(shape.embed_dim, shape.width, shape.embed_dim)
    return spread(models, -(-rows // (16 * cut.warps)), cut.warps)


def _layers(shape: DecoderShape, theta: Tensor, tile: SublayerTile, parts: int) -> list[tuple[Attending, Feeding]]:
    at, embed = begins(shape.tensors()), shape.embed_dim
    out = []
    for i, (heads, dim) in enumerate(shape.layers):
        read, wide = at[f"layer{i}.read"], heads * dim * embed
        places = {"query": read, "key": read + wide, "value": read + 2 * wide, "output": at[f"layer{i}.write"]}
        places |= {"scaling": at[f"layer{i}.norm.weight"], "moving": at[f"layer{i}.norm.bias"]}
        scale = _equal(dim**-0.5, len(theta), torch.float32, theta.device)
        counts = _equal(heads, len(theta), torch.int32, theta.device)
        attending = Attending(places, heads, dim, embed, (dim, heads * dim), scale, counts, tile, True, EPS, parts)
        names = {"inner": "inner.weight", "bias": "inner.bias", "outer": "outer.weight", "shift": "outer.bias"}
        names |= {"scaling": "before.weight", "moving": "before.bias"}
        where = {short: at[f"layer{i}.{name}"] for short, name in names.items()}
        out.append((attending, Feeding(where, embed, shape.width, embed, tile, True, True, EPS, parts)))
    return out


def _by_warps(attending: Attending, feeding: Feeding, device: str) -> tuple[Attending, Feeding]:
    return WarpAttending(**vars(attending), device=device), WarpFeeding(**vars(feeding), device=device)


@lru_cache(64)
def _equal(value: float, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same number for every member, made once: a step that is recorded should not fill it in anew."""
    return torch.full((count,), value, dtype=dtype, device=device)


def _looked_up(shape: DecoderShape, rows: Rows, strings: DecoderBatch) -> Tensor:
    models, batch, length = strings.size
    out = rows.theta.new_empty(models, batch, length, shape.embed_dim)
    letters_forward[models, -(-batch * length // TALL)](
        rows.theta, strings.ids, strings.offset, out, rows.row, batch * length, length, shape.vocab, shape.embed_dim,
        ROWS=TALL, EMBED=power(shape.embed_dim), PLACES=shape.positions == "absolute", num_warps=4,
    )  # fmt: skip
    return out


def _looked_up_back(shape: DecoderShape, rows: Rows, slope: Tensor, strings: DecoderBatch, parts: int) -> None:
    models, batch, length = strings.size
    table = shape.vocab + (shape.context if shape.positions == "absolute" else 0)
    tall = min(64, max(16, power(table)))
    letters_backward[models, parts, -(-table // tall)](
        strings.ids, strings.offset, slope, rows.share, rows.row, rows.share.stride(0), batch * length, length,
        shape.vocab, table, shape.embed_dim, ROWS=TALL, EMBED=max(16, power(shape.embed_dim)), TABLE=tall,
        PLACES=shape.positions == "absolute", num_warps=4, num_stages=1,
    )  # fmt: skip


def _said(shape: DecoderShape, rows: Rows, x: Tensor, strings: DecoderBatch, parts: int) -> tuple[Tensor, Tensor]:
    models, batch, length = strings.size
    at, d_x = begins(shape.tensors()), torch.empty_like(x)
    loss = rows.theta.new_empty(models, parts)
    say[models, parts](
        x, rows.theta, strings.targets, strings.judged, strings.counts, loss, d_x, rows.share,
        rows.row, rows.share.stride(0), at["last.weight"], at["last.bias"], at["logits"], batch * length, shape.vocab,
        shape.embed_dim, ROWS=TALL, EMBED=max(16, power(shape.embed_dim)), VOCAB=max(16, power(shape.vocab)), EPS=EPS,
        PRECISION=rows.precision, num_warps=4, num_stages=1,
    )  # fmt: skip
    return d_x, loss
