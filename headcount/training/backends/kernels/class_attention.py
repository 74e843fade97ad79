# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""The class token asking the tokens' states: one program takes one sample, whose states it reads once."""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.training.backends.kernels.pooling import _dot
from headcount.training.backends.kernels.token_attention import _keep, _score_slopes, _tile, _weights

__all__ = ["ask_backward", "ask_forward"]


@triton.jit(do_not_specialize=("length",))
def ask_forward(
    states, directions, heard, length, heads, embed,
    LENGTH: tl.constexpr, HEADS: tl.constexpr, EMBED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """heard_h = sum_t softmax_t(<u_h, x_t>) x_t for every head's direction u_h."""
    sample = tl.program_id(0).to(tl.int64)
    x = _tile(states + sample * length * embed, embed, length, embed, LENGTH, EMBED)
    u = _tile(directions + sample * heads * embed, embed, heads, embed, HEADS, EMBED)
    p = _weights(u, x, length, LENGTH, PRECISION)
    _keep(heard + sample * heads * embed, embed, heads, embed, _dot(p, x, PRECISION), HEADS, EMBED)


@triton.jit(do_not_specialize=("length", "batch"))
def ask_backward(
    states, directions, slope, sizes, d_states, d_directions, length, heads, embed, batch,
    LENGTH: tl.constexpr, HEADS: tl.constexpr, EMBED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From g = dL/dheard: dp = g x^T, ds = p (dp - sum_t p dp), dx = p^T g + ds^T u, du = ds x."""
    sample = tl.program_id(0).to(tl.int64)
    size = tl.load(sizes + sample // batch)
    x = _tile(states + sample * length * embed, embed, length, embed, LENGTH, EMBED)
    u = _tile(directions + sample * heads * embed, embed, heads, embed, HEADS, EMBED)
    g = _tile(slope + sample * heads * embed, embed, heads, embed, HEADS, EMBED) / size
    p = _weights(u, x, length, LENGTH, PRECISION)
    ds = _score_slopes(p, _dot(g, tl.trans(x), PRECISION))
    dx = (_dot(tl.trans(p), g, PRECISION) + _dot(tl.trans(ds), u, PRECISION)) * size
    _keep(d_states + sample * length * embed, embed, length, embed, dx, LENGTH, EMBED)
    _keep(d_directions + sample * heads * embed, embed, heads, embed, _dot(ds, x, PRECISION) * size, HEADS, EMBED)
