"""The collapsed bank with everything that touches a token, a sample or a parameter in a few kernels.

Once the last layer is collapsed, the tail is linear up to the read-out's GELU, so it too folds into one matrix a
head, with W_in, b_in the read-out's inner layer:

    y = <w, gelu(sum_h C_h pooled_h + c)> + b,  C_h = W_in W_O,h W_V,h W2,  c = W_in (cls + sum_h W_O,h W_V,h b2) + b_in

Composing these small matrices costs nothing beside the batch, and their gradients reach the true parameters.
A step is five kernels: compose, pool, the tail with the squared gap and its gradient, pool backwards, and the
composition backwards; two more are AdamW. Between them only one vector a head and sample leaves the chip, and back.
Heads of wide networks are left as two thin matrices each (`split_heads`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Float16
from torch import Tensor

from headcount.kernels.backend import Backend, Problem, graph, rounding
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.class_token import ClassToken
from headcount.kernels.loss import squared
from headcount.kernels.optimiser import BETA1, BETA2, EPS, AdamW
from headcount.kernels.plain import Batch, collapsed
from headcount.kernels.pool_launch import PoolLaunch, ScaledSlopes, packed, places
from headcount.kernels.split_heads import gradient_by_heads, splits
from headcount.kernels.tiles import Tile, power
from headcount.kernels.triton import (
    adamw,
    compose_backward,
    compose_forward,
    size_slopes,
    tail,
    tick,
)

# Numbers of a member that one program keeps on the chip: E by N when composing, h N by N in the tail. The tail of a
# larger member is left to batched products.
LARGEST, LARGEST_TAIL = 8192, 16384
# Composing wider members into one matrix a head failed now and then with an illegal address on an H200 (Triton 3.6).
# Its products have 64 rows, of which eight warps leave a warp group 8 columns in TF32: a product for which Triton does
# not pad shared memory (triton-lang/triton 7981, 10629). That this is the cause is not shown; `split_heads` has none.
WIDEST = 32
SIZED = 16  # samples whose slopes are brought to one size together: a tile has no more
LARGEST_TOKEN = 65504.0  # of a float16


def pool(
    batch: Batch,
    weight: Float[Tensor, "models width features"],
    bias: Float[Tensor, "models width"],
    directions: Float[Tensor, "models heads width"],
    tile: Tile | None = None,
) -> Float[Tensor, "models batch heads width"]:
    """What `forward.pool` computes, token rows read where they lie and activations kept on the chip."""
    out = _Pool.apply(weight, bias, directions, PoolLaunch(batch, directions, tile or Tile()))
    assert isinstance(out, Tensor)
    return out


def gradient(bank: Bank, batch: Batch, tile: Tile | None = None) -> Float[Tensor, "models parameters"]:
    """The gradient of every member's mean squared gap on its batch, for a bank of one layer."""
    tile, target = tile or Tile(), batch.target
    heads, _, embed = bank.shapes["attention.0.query"]
    wide = max(16, power(bank.shapes["read_out.inner.bias"][0]))
    if splits(bank, tile):
        return gradient_by_heads(bank, batch, tile)
    tail_fits = power(heads) * wide * wide <= LARGEST_TAIL
    if wide <= WIDEST and power(embed) * wide <= LARGEST and tail_fits:
        return _by_kernels(bank, batch, target, tile)
    if tail_fits:
        return _by_products(bank, batch, target, tile)
    theta = bank.theta.detach().requires_grad_()
    with torch.enable_grad():
        gap = collapsed(bank, bank.named(theta), batch, pool=partial(pool, tile=tile)) - target
        (out,) = torch.autograd.grad(gap.square().mean(dim=1).sum(), theta)
    return out


def update(
    optimiser: AdamW,
    theta: Float[Tensor, "models parameters"],
    gradient: Float[Tensor, "models parameters"],
    active: Bool[Tensor, " models"],
) -> None:
    """What `AdamW.update` does, in one pass over the parameters; it does it itself for schedules and factors."""
    if not optimiser.usual:
        optimiser.update(theta, gradient, active)
        return
    models, parameters = theta.shape
    rise, now = max(1, round(optimiser.warmup * optimiser.steps)), theta.new_empty(3)
    tick[(1,)](
        optimiser.step, now, rise, max(1, optimiser.steps - rise),
        LOG_BETA1=math.log(BETA1), LOG_BETA2=math.log(BETA2), num_warps=1,
    )  # fmt: skip
    block = 1024
    adamw[(models, -(-parameters // block))](
        theta, gradient, optimiser.first, optimiser.second, optimiser.lr, optimiser.decay, active, now, parameters,
        BETA1=BETA1, BETA2=BETA2, EPS=EPS, BLOCK=block,
    )  # fmt: skip


def pack(data: Float[Tensor, "sets samples length features"]) -> Float16[Tensor, "sets samples length lanes"]:
    """[x, 1] rounded to float16 and, beside it, what the rounding left out: aligned rows for the half tiles.

    >>> pack(torch.full((1, 1, 1, 2), 0.1))[0, 0, 0, [0, 1, 2, 8, 9]].tolist()
    [0.0999755859375, 0.0999755859375, 1.0, 2.4437904357910156e-05, 2.4437904357910156e-05]
    """
    within_half(data)
    return packed(data)


def within_half(data: Float[Tensor, "sets samples length features"]) -> None:
    """Refuse tokens that float16 cannot hold, in which the kernels multiply them."""
    largest = data.abs().max().item()
    if not largest <= LARGEST_TOKEN:
        raise ValueError(
            f"the fused bank reads tokens up to {LARGEST_TOKEN:g}, and these reach {largest:g}: "
            "scale them, or pass backend=headcount.kernels.backend.recorded"
        )


class Shares(NamedTuple):
    """The programs' partial gradients of everything the kernels read: (models, programs, *its shape)."""

    weight: Tensor
    bias: Tensor
    directions: Tensor
    mix: Tensor
    shift: Tensor
    out_weight: Tensor
    out_bias: Tensor


def _by_kernels(bank: Bank, batch: Batch, target: Tensor, tile: Tile) -> Tensor:
    theta, p = bank.theta.detach(), bank.named()
    heads, head_dim, embed = bank.shapes["attention.0.query"]
    models, width, features = p["encoder.inner.weight"].shape
    new = theta.new_empty
    directions, mix = new(models, heads, width), new(models, heads, width, width)
    shift, out = new(models, width), torch.empty_like(theta)
    sizes = {
        **places(bank), "heads": heads, "head_dim": head_dim, "embed": embed, "width": width,
        "EMBED": max(16, power(embed)), "WIDTH": max(16, power(width)), "DIM": max(16, power(head_dim)),
        "num_warps": 8 if power(embed) * power(width) > 1024 else 4, "num_stages": 1, "maxnreg": 128,
    }  # fmt: skip
    first = {f"at_{name}": sizes.pop(f"at_{name}") for name in ("weight", "bias", "out_weight", "out_bias")}
    exact = "ieee" if tile.precision == "ieee" else "tf32x3"  # what is folded once is read by every sample
    compose_forward[(models,)](theta, bank.scale, directions, mix, shift, **sizes, PRECISION=exact)
    partials = _partial_gradients(p, directions, mix, shift, batch, target, tile)
    compose_backward[(models,)](
        theta, bank.scale, out, partials.directions, partials.mix, partials.shift, partials.weight, partials.bias,
        partials.out_weight, partials.out_bias, **sizes, **first,
        parts=partials.weight.shape[1], tail_parts=partials.mix.shape[1], FEATURES=features, LANES=power(features),
        PRECISION="half" if tile.precision == "half" else exact,
    )  # fmt: skip
    return out


def _by_products(bank: Bank, batch: Batch, target: Tensor, tile: Tile) -> Tensor:
    """The same with the small matrices composed, and their gradients taken apart, by batched products."""
    theta = bank.theta.detach().requires_grad_()
    with torch.enable_grad():
        p = bank.named(theta)
        folded = _folded(p, bank.scale[:, 0])
    directions, mix, shift = (x.detach() for x in folded)
    partials = _partial_gradients(
        {name: x.detach() for name, x in p.items()}, directions, mix, shift, batch, target, tile
    )
    sums = Shares(*(stack.sum(dim=1) for stack in partials))
    names = ("encoder.inner.weight", "encoder.inner.bias", "read_out.outer.weight", "read_out.outer.bias")
    gradients = (sums.weight, sums.bias, sums.out_weight, sums.out_bias)
    ends = [*folded, *(p[name] for name in names)]
    slopes = [
        sums.directions,
        sums.mix,
        sums.shift,
        *(g.view(p[n].shape) for g, n in zip(gradients, names, strict=True)),
    ]
    (out,) = torch.autograd.grad(ends, theta, slopes)
    return out


def _folded(p: Stacked, scale: Float[Tensor, " models"]) -> tuple[Tensor, Tensor, Tensor]:
    """Directions, C_h and c: what the kernels read of everything between the encoder's hidden layer and the GELU."""
    query, key, value, output = (p[f"attention.0.{name}"] for name in ("query", "key", "value", "output"))
    outer, moved, inner = p["encoder.outer.weight"], p["encoder.outer.bias"], p["read_out.inner.weight"]
    queries = torch.einsum("khne,ke->khn", query, p["cls"]) * scale[:, None, None]
    directions = torch.einsum("khn,khne->khe", queries, key) @ outer
    through = inner[:, None] @ output  # models, heads, width, head_dim
    mix = through @ (value @ outer[:, None])
    bias_term = torch.einsum("khwn,khn->kw", through, torch.einsum("khne,ke->khn", value, moved))
    shift = torch.einsum("kwe,ke->kw", inner, p["cls"]) + bias_term + p["read_out.inner.bias"]
    return directions.contiguous(), mix.contiguous(), shift.contiguous()


def _partial_gradients(
    p: Stacked, directions: Tensor, mix: Tensor, shift: Tensor, batch: Batch, target: Tensor, tile: Tile
) -> Shares:
    """Forward, gap and backward in one go: the tail knows the loss, so it turns around."""
    weight, bias = p["encoder.inner.weight"], p["encoder.inner.bias"]
    out_weight, out_bias = p["read_out.outer.weight"], p["read_out.outer.bias"]
    launch = PoolLaunch(batch, directions, tile)
    pooled, level = launch.forward(weight, bias, directions, launch.kind)
    models, samples, heads, width = pooled.shape
    padded, wide = power(heads), max(16, power(width))
    count = max(16, min(power(samples), tile.tail // (padded * wide)))
    parts = -(-samples // count)
    new = level.new_empty
    loss, sizes, d_shift = new(models, parts), new(models, parts), new(models, parts, width)
    d_mix, d_out_weight, d_out_bias = (
        new(models, parts, heads, width, width),
        new(models, parts, width),
        new(models, parts),
    )
    slope, delta = torch.empty_like(pooled, dtype=launch.slope_kind), torch.empty_like(level[0])
    tail[(models, parts)](
        pooled, level[1], target.contiguous(), mix, shift, out_weight, out_bias,
        loss, slope, delta, sizes, d_mix, d_shift, d_out_weight, d_out_bias,
        out_weight.stride(0), samples, heads, width,
        HEADS=padded, WIDTH=wide, SAMPLES=count, PRECISION=tile.precision,
        num_warps=8 if max(count, wide) * padded * wide > 4096 else 4, num_stages=1,
    )  # fmt: skip
    first = launch.backward(weight, bias, directions, level, ScaledSlopes(slope, delta, sizes, count))
    return Shares(*first, d_mix, d_shift, d_out_weight, d_out_bias)


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, directions: Tensor, launch: PoolLaunch) -> Tensor:
        weight, bias, directions = weight.contiguous(), bias.contiguous(), directions.contiguous()
        pooled, level = launch.forward(weight, bias, directions)
        ctx.launch = launch
        ctx.save_for_backward(weight, bias, directions, pooled, level)
        return pooled

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        weight, bias, directions, pooled, level = ctx.saved_tensors
        models, samples, heads, width = slope.shape
        scaled, delta = torch.empty_like(pooled, dtype=ctx.launch.slope_kind), torch.empty_like(level[0])
        sizes = level.new_empty(models, -(-samples // SIZED))
        size_slopes[sizes.shape](
            slope, pooled, level[1], scaled, delta, sizes, *slope.stride(), samples, heads, width,
            SAMPLES=SIZED, WIDTH=max(16, power(width)), num_warps=4,
        )  # fmt: skip
        partials = ctx.launch.backward(weight, bias, directions, level, ScaledSlopes(scaled, delta, sizes, SIZED))
        d_weight, d_bias, d_directions = (stack.sum(dim=1) for stack in partials)
        return d_weight, d_bias, d_directions, None  # pyright: ignore[reportReturnType]


def _holds(problem: Problem, bank: Bank, batch: Any) -> bool:
    """One layer behind a ReLU encoder, one output, squared gaps, float32 on a GPU, lengths that are the members'."""
    if not isinstance(problem, ClassToken) or problem.loss is not squared or not bank.theta.is_cuda:
        return False
    arch, ragged = bank.net.arch, batch.present is not None and batch.present.ndim > 2
    return bank.theta.dtype == torch.float32 and bank.depth == arch.outputs == 1 and arch.relu_encoder and not ragged


def _gradient(problem: Problem, bank: Bank, batch: Batch) -> Tensor:
    return gradient(bank, batch)


def _forward(problem: Problem, bank: Bank, p: Stacked, batch: Batch) -> Tensor:
    return collapsed(bank, p, batch, pool=partial(pool, tile=Tile(precision="fine")))


backend = Backend("fused", _holds, _gradient, _forward, update, graph, pack, rounding)
