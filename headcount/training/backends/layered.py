"""The layers of deeper banks in kernels: tokens asking tokens, the class token asking them, and feed-forwards.

What `forward` does by batched products is bound by writing scores and hidden activations; these never leave the chip
here, forwards or backwards. Queries, keys, values and outputs of attention stay batched products. Factors of products
are rounded to float16 and summed in float32 ("half"), or float32 throughout ("ieee").
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.training.backends.attention import Three, asked, written_out
from headcount.training.backends.kernels import (
    ask_backward,
    ask_forward,
    feed_backward,
    feed_forward,
    mix_backward,
    mix_forward,
)
from headcount.training.backends.plain import Touch, fed
from headcount.training.backends.tiles import power

__all__ = ["ask", "feed", "in_kernels", "mix"]

# What one program keeps on the chip: a sample's tokens, and a member's matrices. Beyond, batched products do it.
LONGEST, LARGEST = 128, 8192
PROGRAMS = 528  # four for each multiprocessor of a large GPU


def in_kernels(precision: str = "half") -> Touch:
    """All three parts with their products in one precision."""
    return Touch(*(partial(part, precision=precision) for part in (mix, ask, feed)))


def mix(
    three: Three, present: Bool[Tensor, "models ... tokens"] | None = None, precision: str = "half"
) -> Float[Tensor, "models batch tokens heads head_dim"]:
    """What `attention.written_out` computes, without scores in memory; written out where some tokens are absent."""
    if present is not None or three.shape[2] > LONGEST or three.dtype != torch.float32:
        return written_out(three, present)
    out = _Mix.apply(three, precision)
    assert isinstance(out, Tensor)
    return out


def ask(
    states: Float[Tensor, "models batch tokens embed"],
    directions: Float[Tensor, "models batch heads embed"],
    present: Bool[Tensor, "models ... tokens"] | None = None,
    precision: str = "half",
) -> Float[Tensor, "models batch heads embed"]:
    """What `attention.asked` computes, every state read once."""
    large = power(states.shape[2]) * power(states.shape[3]) > LARGEST
    if present is not None or large or states.dtype != torch.float32:
        return asked(states, directions, present)
    out = _Ask.apply(states, directions, precision)
    assert isinstance(out, Tensor)
    return out


def feed(
    x: Float[Tensor, "models rows inputs"],
    inner: Float[Tensor, "models hidden inputs"],
    bias: Float[Tensor, "models hidden"],
    outer: Float[Tensor, "models outputs hidden"],
    shift: Float[Tensor, "models outputs"],
    residual: bool,
    precision: str = "half",
) -> Float[Tensor, "models rows outputs"]:
    """What `forward.fed` computes, without hidden activations in memory."""
    hidden, inputs = inner.shape[1:]
    if x.dtype != torch.float32 or power(hidden) * max(power(inputs), power(outer.shape[1])) > LARGEST:
        return fed(x, inner, bias, outer, shift, residual)
    out = _Feed.apply(x, inner, bias, outer, shift, residual, precision)
    assert isinstance(out, Tensor)
    return out


def _feed_cut(hidden: int, backward: bool) -> dict[str, int]:
    """Rows of a block and warps, as measured fastest on an H200."""
    return {"ROWS": 128 if hidden <= 32 else 32 if backward else 64, "num_warps": 4}


def _sizes(slope: Tensor) -> Float[Tensor, " models"]:
    """Each member's largest slope, which scales the others to at most one."""
    return torch.linalg.vector_norm(slope.flatten(1), ord=math.inf, dim=1).clamp(min=1e-30)


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, three: Tensor, precision: str) -> Tensor:
        three = three.contiguous()
        models, batch, tokens, _, heads, dim = three.shape
        long = max(16, power(tokens))
        ctx.grid, ctx.sizes = (models * batch, heads), (tokens, heads, dim)
        ctx.constants = {
            "LENGTH": long, "DIM": max(16, power(dim)), "PRECISION": precision,
            "num_warps": min(8, max(1, long // 16)), "num_stages": 1,
        }  # fmt: skip
        mixed = three.new_empty(models, batch, tokens, heads, dim)
        mix_forward[ctx.grid](three, mixed, *ctx.sizes, **ctx.constants)
        ctx.save_for_backward(three)
        return mixed

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        (three,) = ctx.saved_tensors
        out, batch = torch.empty_like(three), three.shape[1]
        slope = slope.contiguous()
        mix_backward[ctx.grid](three, slope, _sizes(slope), out, *ctx.sizes, batch, **ctx.constants)
        return out, None


class _Ask(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, directions: Tensor, precision: str) -> Tensor:
        states, directions = states.contiguous(), directions.contiguous()
        (models, batch, tokens, embed), heads = states.shape, directions.shape[2]
        long, wide = max(16, power(tokens)), max(16, power(embed))
        ctx.grid, ctx.sizes = (models * batch,), (tokens, heads, embed)
        ctx.constants = {
            "LENGTH": long, "HEADS": max(16, power(heads)), "EMBED": wide, "PRECISION": precision,
            "num_warps": min(8, max(1, long * wide // 2048)), "num_stages": 1,
        }  # fmt: skip
        heard = torch.empty_like(directions)
        ask_forward[ctx.grid](states, directions, heard, *ctx.sizes, **ctx.constants)
        ctx.save_for_backward(states, directions)
        return heard

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        states, directions = ctx.saved_tensors
        d_states, d_directions, slope = torch.empty_like(states), torch.empty_like(directions), slope.contiguous()
        ask_backward[ctx.grid](
            states, directions, slope, _sizes(slope), d_states, d_directions, *ctx.sizes, states.shape[1],
            **ctx.constants,
        )  # fmt: skip
        return d_states, d_directions, None


class _Feed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, shift: Tensor, residual: bool, precision: str
    ) -> Tensor:
        x = x.contiguous()
        (models, rows, inputs), (hidden, outputs) = x.shape, (inner.shape[1], outer.shape[1])
        ctx.sizes, ctx.strides = (inputs, hidden, outputs), tuple(w.stride(0) for w in (inner, bias, outer))
        ctx.constants = {
            **dict(zip(("INPUTS", "HIDDEN", "OUTPUTS"), (max(16, power(n)) for n in ctx.sizes), strict=True)),
            "RESIDUAL": residual, "PRECISION": precision, "num_stages": 1,
        }  # fmt: skip
        cut, out = _feed_cut(hidden, backward=False), x.new_empty(models, rows, outputs)
        feed_forward[models, _parts(models, rows, cut["ROWS"])](
            x, inner, bias, outer, shift, out, rows, *ctx.strides, shift.stride(0), *ctx.sizes, **cut, **ctx.constants
        )
        ctx.save_for_backward(x, inner, bias, outer)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, inner, bias, outer = ctx.saved_tensors
        (models, rows, _), (inputs, hidden, outputs) = x.shape, ctx.sizes
        cut, slope, deeper = _feed_cut(hidden, backward=True), slope.contiguous(), ctx.needs_input_grad[0]
        parts = _parts(models, rows, cut["ROWS"])
        d_x = torch.empty_like(x) if deeper else x
        shapes = ((hidden, inputs), (hidden,), (outputs, hidden), (outputs,))
        shares = [x.new_empty(models, parts, *shape) for shape in shapes]
        feed_backward[models, parts](
            x, inner, bias, outer, slope, _sizes(slope), d_x, *shares, rows, *ctx.strides, *ctx.sizes,
            DEEPER=deeper, **cut, **ctx.constants,
        )  # fmt: skip
        return d_x if deeper else None, *(share.sum(dim=1) for share in shares), None, None


def _parts(models: int, rows: int, block: int) -> int:
    """Programs of a member: enough to fill the device, none without a block."""
    return min(-(-rows // block), -(-PROGRAMS // models))
