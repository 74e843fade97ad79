# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""Tokens attending to tokens: one program takes one sample and one head, and its scores never leave the chip.

All tokens of a sample fit one tile, so neither pass needs an online softmax, and the backward pass, which computes the
weights again, adds nothing up across programs.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.pooling import _dot, _fine_dot


@triton.jit
def _tile(at, stride, length, dim, LENGTH: tl.constexpr, DIM: tl.constexpr):
    """One head's rows of a sample, (LENGTH, DIM), zero where there are none."""
    t, n = tl.arange(0, LENGTH), tl.arange(0, DIM)
    return tl.load(at + t[:, None] * stride + n[None, :], mask=(t < length)[:, None] & (n < dim)[None, :], other=0.0)


@triton.jit
def _keep(at, stride, length, dim, x, LENGTH: tl.constexpr, DIM: tl.constexpr):
    t, n = tl.arange(0, LENGTH), tl.arange(0, DIM)
    tl.store(at + t[:, None] * stride + n[None, :], x, mask=(t < length)[:, None] & (n < dim)[None, :])


@triton.jit
def _weights(q, k, length, LENGTH: tl.constexpr, PRECISION: tl.constexpr):
    """softmax(q k^T) over the tokens that exist; scores to twice the products' bits, as they are exponents."""
    scores = _fine_dot(q, tl.trans(k), "fine" if PRECISION == "half" else PRECISION)
    scores = tl.where((tl.arange(0, LENGTH) < length)[None, :], scores, float("-inf"))
    p = tl.exp(scores - tl.max(scores, 1)[:, None])
    return p / tl.sum(p, 1)[:, None]


@triton.jit
def _score_slopes(p, dp):
    """Through the softmax: ds = p (dp - sum_t p dp)."""
    return p * (dp - tl.sum(p * dp, 1)[:, None])


@triton.jit(do_not_specialize=("length",))
def mix_forward(
    three, mixed, length, heads, dim, LENGTH: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """mixed = softmax(q k^T) v; `three` holds the queries, keys and values of a token in one row."""
    sample, head, row = tl.program_id(0).to(tl.int64), tl.program_id(1), heads * dim
    at = three + sample * length * 3 * row + head * dim
    q = _tile(at, 3 * row, length, dim, LENGTH, DIM)
    k = _tile(at + row, 3 * row, length, dim, LENGTH, DIM)
    v = _tile(at + 2 * row, 3 * row, length, dim, LENGTH, DIM)
    out = _dot(_weights(q, k, length, LENGTH, PRECISION), v, PRECISION)
    _keep(mixed + sample * length * row + head * dim, row, length, dim, out, LENGTH, DIM)


@triton.jit(do_not_specialize=("length", "batch"))
def mix_backward(
    three, slope, sizes, out, length, heads, dim, batch,
    LENGTH: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, keys and values from g = dL/dmixed, in the layout of `three`.

    With p the weights: dv = p^T g, dp = g v^T, ds = p (dp - sum_t p dp), dq = ds k, dk = ds^T q.
    Slopes may be far below float16's smallest number, so a member's are divided by `sizes` and multiplied at the end.
    """
    sample, head, row = tl.program_id(0).to(tl.int64), tl.program_id(1), heads * dim
    size = tl.load(sizes + sample // batch)
    at = three + sample * length * 3 * row + head * dim
    q = _tile(at, 3 * row, length, dim, LENGTH, DIM)
    k = _tile(at + row, 3 * row, length, dim, LENGTH, DIM)
    v = _tile(at + 2 * row, 3 * row, length, dim, LENGTH, DIM)
    g = _tile(slope + sample * length * row + head * dim, row, length, dim, LENGTH, DIM) / size
    p = _weights(q, k, length, LENGTH, PRECISION)
    ds = _score_slopes(p, _dot(g, tl.trans(v), PRECISION))
    to = out + sample * length * 3 * row + head * dim
    _keep(to, 3 * row, length, dim, _dot(ds, k, PRECISION) * size, LENGTH, DIM)
    _keep(to + row, 3 * row, length, dim, _dot(tl.trans(ds), q, PRECISION) * size, LENGTH, DIM)
    _keep(to + 2 * row, 3 * row, length, dim, _dot(tl.trans(p), g, PRECISION) * size, LENGTH, DIM)
