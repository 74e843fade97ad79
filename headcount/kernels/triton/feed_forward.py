# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""A member's feed-forward on every token: hidden activations live on the chip alone, and are computed again backwards.

A program takes one member and every so-many-th block of its rows; it reads the member's matrices once. Gradients of
the matrices are kept for each program and added up afterwards in a fixed order: no atomics.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.composition import _keep_vector, _vector
from headcount.kernels.triton.pooling import _dot, _fine_dot


@triton.jit
def _matrix(at, height, width, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """The transpose of a (height, width) matrix, (WIDTH, HEIGHT), zeros beyond."""
    i, j = tl.arange(0, HEIGHT), tl.arange(0, WIDTH)
    return tl.load(at + i[None, :] * width + j[:, None], mask=(i < height)[None, :] & (j < width)[:, None], other=0.0)


@triton.jit
def _keep_matrix(at, height, width, x, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    i, j = tl.arange(0, HEIGHT), tl.arange(0, WIDTH)
    tl.store(at + i[None, :] * width + j[:, None], x, mask=(i < height)[None, :] & (j < width)[:, None])


@triton.jit
def _rows(at, block, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    r, j = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    return tl.load(at + r[:, None] * width + j[None, :], mask=(r < rows)[:, None] & (j < width)[None, :], other=0.0)


@triton.jit
def _keep_rows(at, block, rows, width, x, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    r, j = block * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    tl.store(at + r[:, None] * width + j[None, :], x, mask=(r < rows)[:, None] & (j < width)[None, :])


@triton.jit
def _hidden(x, w1, b1, INPUTS: tl.constexpr, PRECISION: tl.constexpr):
    """relu(W1 x + b1), to more than the products' ten bits: positions need them, and which units are awake."""
    if PRECISION == "half" and INPUTS <= 64:
        a = _fine_dot(x, w1, "fine")
    else:
        a = _dot(x, w1, PRECISION)
    return tl.maximum(a + b1[None, :], 0.0)


@triton.jit(do_not_specialize=("rows", "inner_row", "bias_row", "outer_row", "shift_row"))
def feed_forward(
    x, inner, bias, outer, shift, out,
    rows, inner_row, bias_row, outer_row, shift_row, inputs, hidden, outputs,
    ROWS: tl.constexpr, INPUTS: tl.constexpr, HIDDEN: tl.constexpr, OUTPUTS: tl.constexpr, RESIDUAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """out = W2 relu(W1 x + b1) + b2, and x added where it is a residual step."""
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    w1 = _matrix(inner + model * inner_row, hidden, inputs, HIDDEN, INPUTS)
    w2 = _matrix(outer + model * outer_row, outputs, hidden, OUTPUTS, HIDDEN)
    b1, b2 = _vector(bias + model * bias_row, hidden, HIDDEN), _vector(shift + model * shift_row, outputs, OUTPUTS)
    x += model * rows * inputs
    out += model * rows * outputs
    for block in range(part, tl.cdiv(rows, ROWS), parts):
        tile = _rows(x, block, rows, inputs, ROWS, INPUTS)
        a = _hidden(tile, w1, b1, INPUTS, PRECISION)
        y = _dot(a, w2, PRECISION) + b2[None, :]
        if RESIDUAL:
            y += tile
        _keep_rows(out, block, rows, outputs, y, ROWS, OUTPUTS)


@triton.jit(do_not_specialize=("rows", "inner_row", "bias_row", "outer_row"))
def feed_backward(
    x, inner, bias, outer, slope, d_x, d_inner, d_bias, d_outer, d_shift,
    rows, inner_row, bias_row, outer_row, inputs, hidden, outputs,
    ROWS: tl.constexpr, INPUTS: tl.constexpr, HIDDEN: tl.constexpr, OUTPUTS: tl.constexpr, RESIDUAL: tl.constexpr,
    DEEPER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients from g = dL/dout: da = relu'(a) W2^T g, dx = W1^T da, dW1 = sum da x^T, dW2 = sum g a^T.

    `DEEPER`: dx is wanted. The matrices' gradients are this program's part. A block's slopes are brought to
    one size, as float16 holds none that are much smaller.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    w1 = _matrix(inner + model * inner_row, hidden, inputs, HIDDEN, INPUTS)
    w2 = _matrix(outer + model * outer_row, outputs, hidden, OUTPUTS, HIDDEN)
    b1 = _vector(bias + model * bias_row, hidden, HIDDEN)
    x += model * rows * inputs
    d_x += model * rows * inputs
    slope += model * rows * outputs
    d_w1, d_w2 = tl.zeros((INPUTS, HIDDEN), tl.float32), tl.zeros((HIDDEN, OUTPUTS), tl.float32)
    d_b1, d_b2 = tl.zeros((HIDDEN,), tl.float32), tl.zeros((OUTPUTS,), tl.float32)
    for block in range(part, tl.cdiv(rows, ROWS), parts):
        tile = _rows(x, block, rows, inputs, ROWS, INPUTS)
        g = _rows(slope, block, rows, outputs, ROWS, OUTPUTS)
        size = tl.maximum(tl.max(tl.max(tl.abs(g), 1), 0), 1e-30)
        g = g / size
        a = _hidden(tile, w1, b1, INPUTS, PRECISION)
        da = tl.where(a > 0.0, _dot(g, tl.trans(w2), PRECISION), 0.0)
        if DEEPER:
            dx = _dot(da, tl.trans(w1), PRECISION)
            if RESIDUAL:
                dx += g
            _keep_rows(d_x, block, rows, inputs, dx * size, ROWS, INPUTS)
        d_w1 += _dot(tl.trans(tile), da, PRECISION) * size
        d_w2 += _dot(tl.trans(a), g, PRECISION) * size
        d_b1 += tl.sum(da, 0) * size
        d_b2 += tl.sum(g, 0) * size
    program = model * parts + part
    _keep_matrix(d_inner + program * hidden * inputs, hidden, inputs, d_w1, HIDDEN, INPUTS)
    _keep_matrix(d_outer + program * outputs * hidden, outputs, hidden, d_w2, OUTPUTS, HIDDEN)
    _keep_vector(d_bias + program * hidden, d_b1, hidden, HIDDEN)
    _keep_vector(d_shift + program * outputs, d_b2, outputs, OUTPUTS)
