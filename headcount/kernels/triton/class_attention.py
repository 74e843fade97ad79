# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""The class token attending to the tokens' states: one program takes one sample, whose states it reads once.

There is one query, so no matrix product to win by: every sum is plain float32, head by head, and bound by reading the
states. (With float16 products, tiles of 16 heads by 256 coordinates came out as NaN from Triton 3.6 on an H200.)
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.token_attention import _keep, _tile


@triton.jit
def _weights(x, u, length, LENGTH: tl.constexpr):
    """softmax_t(<u, x_t>) over the tokens that exist."""
    scores = tl.where(tl.arange(0, LENGTH) < length, tl.sum(x * u[None, :], 1), float("-inf"))
    p = tl.exp(scores - tl.max(scores, 0))
    return p / tl.sum(p, 0)


@triton.jit(do_not_specialize=("length", "batch"))
def ask_forward(
    states, directions, heard, lengths, length, heads, embed, batch,
    LENGTH: tl.constexpr, EMBED: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """heard_h = sum_t softmax_t(<u_h, x_t>) x_t for every head's direction u_h."""
    sample = tl.program_id(0).to(tl.int64)
    x = _tile(states + sample * length * embed, embed, length, embed, LENGTH, EMBED)
    if RAGGED:
        length = tl.load(lengths + sample // batch)
    e = tl.arange(0, EMBED)
    for head in range(heads):
        at = (sample * heads + head) * embed + e
        u = tl.load(directions + at, mask=e < embed, other=0.0)
        p = _weights(x, u, length, LENGTH)
        tl.store(heard + at, tl.sum(p[:, None] * x, 0), mask=e < embed)


@triton.jit(do_not_specialize=("length", "batch"))
def ask_backward(
    states, directions, slope, d_states, d_directions, lengths, length, heads, embed, batch,
    LENGTH: tl.constexpr, EMBED: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """From g = dL/dheard: dp_t = <g, x_t>, ds = p (dp - sum p dp), dx_t = sum_h p_t g + ds_t u, du = sum_t ds_t x_t."""
    sample = tl.program_id(0).to(tl.int64)
    x = _tile(states + sample * length * embed, embed, length, embed, LENGTH, EMBED)
    longest = length
    if RAGGED:
        length = tl.load(lengths + sample // batch)
    e = tl.arange(0, EMBED)
    dx = tl.zeros((LENGTH, EMBED), tl.float32)
    for head in range(heads):
        at = (sample * heads + head) * embed + e
        u = tl.load(directions + at, mask=e < embed, other=0.0)
        g = tl.load(slope + at, mask=e < embed, other=0.0)
        p = _weights(x, u, length, LENGTH)
        dp = tl.sum(x * g[None, :], 1)
        ds = p * (dp - tl.sum(p * dp, 0))
        dx += p[:, None] * g[None, :] + ds[:, None] * u[None, :]
        tl.store(d_directions + at, tl.sum(ds[:, None] * x, 0), mask=e < embed)
    _keep(d_states + sample * longest * embed, embed, longest, embed, dx, LENGTH, EMBED)
