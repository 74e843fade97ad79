"""The layers of deeper banks part by part in Triton kernels: for states and sequences beyond the CUDA programs'.

What `plain` does by batched products is bound by writing scores and hidden activations. Here tokens attending to
tokens, the class token attending to them and feed-forwards are kernels that keep these on the chip; queries, keys and
values are batched products. Factors of products are rounded to float16 and summed in float32 ("half"), or float32
throughout ("ieee").
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int32
from torch import Tensor

from headcount.kernels.attention import Three, attended, written_out
from headcount.kernels.backend import Backend, Problem, by_differentiation, graph, rounding, tf32
from headcount.kernels.bank import Bank, Stacked
from headcount.kernels.class_token import ClassToken
from headcount.kernels.fused import update, within_half
from headcount.kernels.loss import squared
from headcount.kernels.plain import Batch, Touch, collapsed, fed
from headcount.kernels.tiles import power
from headcount.kernels.triton import (
    ask_backward,
    ask_forward,
    feed_backward,
    feed_forward,
    mix_backward,
    mix_forward,
)

# What one program keeps on the chip: a sample's tokens, and a member's matrices. Beyond, batched products do it.
LONGEST, LARGEST = 128, 8192
PROGRAMS = 528  # four for each multiprocessor of a large GPU


def in_kernels(precision: str = "half") -> Touch:
    """The three parts with their products in one precision."""
    return Touch(partial(mix, precision=precision), ask, partial(feed, precision=precision))


def lengths_of(present: Tensor | None, otherwise: Tensor) -> Int32[Tensor, " models"]:
    """How many tokens each member's samples have; what is not asked for is stood in for."""
    return otherwise if present is None else present.sum(dim=1, dtype=torch.int32)


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
) -> Float[Tensor, "models batch heads embed"]:
    """What `attention.attended` computes, every state read once, in float32."""
    large = power(states.shape[2]) * power(states.shape[3]) > LARGEST
    ragged = present is not None and present.ndim > 2
    if ragged or large or states.dtype != torch.float32:
        return attended(states, directions, present)
    out = _ClassAttention.apply(states, directions, present)
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
    out = _Feed.apply(x, inner, bias, outer, shift, {"RESIDUAL": residual, "PRECISION": precision})
    assert isinstance(out, Tensor)
    return out


def _feed_cut(hidden: int, backward: bool) -> dict[str, int]:
    """Rows of a block and warps: as measured fastest on an H200."""
    return {"ROWS": 128 if hidden <= 32 else 32 if backward else 64, "num_warps": 4}


def _sizes(slope: Tensor) -> Float[Tensor, " models"]:
    """Each member's largest slope, which scales the others to at most one."""
    return slope.flatten(1).abs().amax(dim=1).clamp(min=1e-30)


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


class _AttentionLaunch:
    """One launch of the class token's attention: its grid, sizes and options."""

    def __init__(self, states: Tensor, directions: Tensor, lengths: Tensor, ragged: bool) -> None:
        (models, batch, tokens, embed), heads = states.shape, directions.shape[2]
        long, wide = power(tokens), power(embed)
        self.grid, self.sizes, self.lengths = (models * batch,), (tokens, heads, embed, batch), lengths
        self.constants = {
            "LENGTH": long, "EMBED": wide, "RAGGED": ragged,
            "num_warps": min(8, max(1, long * wide // 1024)), "num_stages": 1,
        }  # fmt: skip

    def forward(self, states: Tensor, directions: Tensor) -> Tensor:
        pooled = torch.empty_like(directions)
        ask_forward[self.grid](states, directions, pooled, self.lengths, *self.sizes, **self.constants)
        return pooled

    def backward(self, states: Tensor, directions: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        d_states, d_directions, slope = torch.empty_like(states), torch.empty_like(directions), slope.contiguous()
        ask_backward[self.grid](
            states, directions, slope, d_states, d_directions, self.lengths, *self.sizes, **self.constants
        )
        return d_states, d_directions


class _ClassAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, directions: Tensor, present: Tensor | None) -> Tensor:
        states, directions = states.contiguous(), directions.contiguous()
        none = torch.empty(1, dtype=torch.int32, device=states.device)
        ctx.asking = _AttentionLaunch(states, directions, lengths_of(present, none), present is not None)
        ctx.save_for_backward(states, directions)
        return ctx.asking.forward(states, directions)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return *ctx.asking.backward(*ctx.saved_tensors, slope), None


class _Feed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, inner: Tensor, bias: Tensor, outer: Tensor, shift: Tensor, constants: dict[str, Any]
    ) -> Tensor:
        x = x.contiguous()
        (models, rows, inputs), (hidden, outputs) = x.shape, (inner.shape[1], outer.shape[1])
        ctx.sizes, ctx.strides = (inputs, hidden, outputs), tuple(w.stride(0) for w in (inner, bias, outer))
        ctx.constants = {
            **dict(zip(("INPUTS", "HIDDEN", "OUTPUTS"), (max(16, power(n)) for n in ctx.sizes), strict=True)),
            **constants,
            "num_stages": 1,
        }
        cut, out = _feed_cut(hidden, False), x.new_empty(models, rows, outputs)
        feed_forward[models, _parts(models, rows, cut["ROWS"])](
            x, inner, bias, outer, shift, out, rows, *ctx.strides, shift.stride(0), *ctx.sizes, **cut, **ctx.constants
        )
        ctx.save_for_backward(x, inner, bias, outer)
        return out

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, inner, bias, outer = ctx.saved_tensors
        (models, rows, _), (inputs, hidden, outputs) = x.shape, ctx.sizes
        cut, slope, deeper = _feed_cut(hidden, True), slope.contiguous(), ctx.needs_input_grad[0]
        parts = _parts(models, rows, cut["ROWS"])
        d_x = torch.empty_like(x) if deeper else x
        shapes = ((hidden, inputs), (hidden,), (outputs, hidden), (outputs,))
        partials = [x.new_empty(models, parts, *shape) for shape in shapes]
        feed_backward[models, parts](
            x, inner, bias, outer, slope, d_x, *partials, rows, *ctx.strides, *ctx.sizes,
            DEEPER=deeper, **cut, **ctx.constants,
        )  # fmt: skip
        return d_x if deeper else None, *(stack.sum(dim=1) for stack in partials), None


def _parts(models: int, rows: int, block: int) -> int:
    """Programs of a member: enough to fill the device, none without a block."""
    return min(-(-rows // block), -(-PROGRAMS // models))


def _holds(problem: Problem, bank: Bank, batch: Any) -> bool:
    """Several layers, one output, squared gaps, float32 on a GPU; what a kernel cannot hold goes by products."""
    supported = isinstance(problem, ClassToken) and problem.loss is squared and bank.net.arch.outputs == 1
    return supported and bank.theta.is_cuda and bank.theta.dtype == torch.float32 and bank.depth > 1


def _in_kernels(problem: Problem, bank: Bank, p: Stacked, batch: Batch) -> Tensor:
    return collapsed(bank, p, batch, touch=in_kernels())


def _gradient(problem: Problem, bank: Bank, batch: Batch) -> Tensor:
    with tf32():
        return by_differentiation(_in_kernels)(problem, bank, batch)


backend = Backend("by parts", _holds, _gradient, update=update, record=graph, pack=within_half, tolerance=rounding)
