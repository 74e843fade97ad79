# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportPossiblyUnboundVariable=false
"""A feed-forward on every row, a chunk of hidden units after the other: W2 act(W1 x + b1) + b2, and x where `RESIDUAL`.

Hidden activations live on the chip alone and are computed again backwards. A program takes one member, a chunk of its
hidden units, and of each every so-many-th tile of rows, so that the gradients of the chunk's matrices stay in registers
from tile to tile; with several chunks outputs and slopes are added up in memory. The activation is relu or, with
`GELU`, the exact GELU; with `NORM` the rows pass a layer norm first. Parameters are read in the member's row, and a
program's partial gradient is written at the same places of a row of its own.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.tile_rows import (
    _columns,
    _factor,
    _keep_columns,
    _keep_numbers,
    _left_out,
    _normed,
    _numbers,
    _product,
    _row_places,
    _size,
    _through_norm,
)

ROOT_HALF = tl.constexpr(0.7071067811865476)
DENSITY = tl.constexpr(0.3989422804014327)


@triton.jit
def _normal(z):
    """P(Z < z) of a normal Z to 1e-7, and exp(-z^2 / 2), which its density and this formula for erf share.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
    """
    t = 1.0 / (1.0 + 0.3275911 * ROOT_HALF * tl.abs(z))
    bell = tl.exp(-0.5 * z * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    beyond = 0.5 * series * bell
    return tl.where(z > 0.0, 1.0 - beyond, beyond), bell


@triton.jit
def _before(rounded, remainder, w1, w1_rest, b1, FINE: tl.constexpr, PRECISION: tl.constexpr):
    """W1 x + b1; `FINE` adds the products with what rounding left out: near zero they decide which units are awake."""
    z = _product(rounded, w1, PRECISION)
    if FINE:
        z = tl.dot(rounded, w1_rest, z)
        z = tl.dot(remainder, w1, z)
    return z + b1[None, :]


@triton.jit
def _outer(at, outputs, hidden, tall, OUTPUTS: tl.constexpr, CHUNK: tl.constexpr):
    """Where W2 of a chunk lies as (CHUNK, OUTPUTS)."""
    n, o = tl.arange(0, CHUNK), tl.arange(0, OUTPUTS)
    return at + o[None, :] * hidden + n[:, None], (o < outputs)[None, :] & (n < tall)[:, None]


@triton.jit(do_not_specialize=("rows", "chunks"))
def hidden_forward(
    x, theta, out,
    row, at_inner, at_bias, at_outer, at_shift, at_scaling, at_moving, rows, chunks, inputs, hidden, outputs,
    ROWS: tl.constexpr, INPUTS: tl.constexpr, CHUNK: tl.constexpr, OUTPUTS: tl.constexpr, RESIDUAL: tl.constexpr,
    GELU: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr, FINE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out = W2 act(W1 x + b1) + b2, and x added where it is a residual step."""
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    theta += model * row
    x += model * rows * inputs
    out += model * rows * outputs
    if NORM:
        weight, bias = _numbers(theta + at_scaling, inputs, INPUTS), _numbers(theta + at_moving, inputs, INPUTS)
    b2 = _numbers(theta + at_shift, outputs, OUTPUTS)
    for chunk in range(chunks):
        begin = chunk * CHUNK
        tall = tl.minimum(hidden - begin, CHUNK)
        w = _columns(theta + at_inner + begin * inputs, tall, inputs, CHUNK, INPUTS)
        w1, w1_rest = _factor(w, PRECISION), _left_out(w)
        at, real = _outer(theta + at_outer + begin, outputs, hidden, tall, OUTPUTS, CHUNK)
        w = tl.load(at, mask=real, other=0.0)
        large = tl.maximum(tl.max(tl.max(tl.abs(w), 1), 0), 1e-30)  # small weights keep their digits in float16
        w2 = _factor(w * (1.0 / large), PRECISION)
        b1 = _numbers(theta + at_bias + begin, tall, CHUNK)
        first = tl.where(chunk == 0, 1.0, 0.0)
        for block in range(part, tl.cdiv(rows, ROWS), parts):
            place, within = _row_places(block, rows, inputs, ROWS, ROWS, INPUTS)
            to, inside = _row_places(block, rows, outputs, ROWS, ROWS, OUTPUTS)
            y = tl.load(x + place, mask=within, other=0.0)
            taken = y
            if NORM:
                _, _, taken = _normed(y, weight, bias, inputs, EPS, INPUTS)
            z = _before(_factor(taken, PRECISION), _left_out(taken), w1, w1_rest, b1, FINE, PRECISION)
            if GELU:
                below, _ = _normal(z)
                a = z * below
            else:
                a = tl.maximum(z, 0.0)
            # No branch: Triton 3.6 cannot compile one around a product of 64 rows.
            accumulated = tl.load(out + to, mask=inside & (chunk > 0), other=0.0) + first * b2[None, :]
            if RESIDUAL:
                accumulated += first * y
            tl.store(out + to, accumulated + _product(_factor(a, PRECISION), w2, PRECISION) * large, mask=inside)
        tl.debug_barrier()  # the next chunk reads what this one wrote


@triton.jit(do_not_specialize=("rows", "chunks"))
def hidden_backward(
    x, theta, slope, d_x, share,
    row, share_step, at_inner, at_bias, at_outer, at_shift, at_scaling, at_moving,
    rows, chunks, inputs, hidden, outputs,
    ROWS: tl.constexpr, INPUTS: tl.constexpr, CHUNK: tl.constexpr, OUTPUTS: tl.constexpr, RESIDUAL: tl.constexpr,
    GELU: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr, FINE: tl.constexpr, DEEPER: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients from g = dL/dout: da = act'(z) W2^T g, dx = W1^T da, dW1 = sum da x^T, dW2 = sum g a^T.

    `DEEPER`: dx is wanted. A tile's slopes are scaled to one size, and back at the end.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    theta += model * row
    share += model * share_step + part * row
    x += model * rows * inputs
    d_x += model * rows * inputs
    slope += model * rows * outputs
    if NORM:
        weight, bias = _numbers(theta + at_scaling, inputs, INPUTS), _numbers(theta + at_moving, inputs, INPUTS)
        d_weight, d_move = tl.zeros((INPUTS,), tl.float32), tl.zeros((INPUTS,), tl.float32)
    for chunk in range(chunks):
        begin = chunk * CHUNK
        tall = tl.minimum(hidden - begin, CHUNK)
        w = _columns(theta + at_inner + begin * inputs, tall, inputs, CHUNK, INPUTS)
        w1, w1_rest = _factor(w, PRECISION), _left_out(w)
        at, real = _outer(theta + at_outer + begin, outputs, hidden, tall, OUTPUTS, CHUNK)
        w = tl.load(at, mask=real, other=0.0)
        large = tl.maximum(tl.max(tl.max(tl.abs(w), 1), 0), 1e-30)  # small weights keep their digits in float16
        w2 = _factor(w * (1.0 / large), PRECISION)
        b1 = _numbers(theta + at_bias + begin, tall, CHUNK)
        d_w1, d_w2 = tl.zeros((INPUTS, CHUNK), tl.float32), tl.zeros((CHUNK, OUTPUTS), tl.float32)
        d_b1, d_b2 = tl.zeros((CHUNK,), tl.float32), tl.zeros((OUTPUTS,), tl.float32)
        first = tl.where(chunk == 0, 1.0, 0.0)
        for block in range(part, tl.cdiv(rows, ROWS), parts):
            place, within = _row_places(block, rows, inputs, ROWS, ROWS, INPUTS)
            to, inside = _row_places(block, rows, outputs, ROWS, ROWS, OUTPUTS)
            taken = tl.load(x + place, mask=within, other=0.0)
            if NORM:
                unit, rate, taken = _normed(taken, weight, bias, inputs, EPS, INPUTS)
            rounded = _factor(taken, PRECISION)
            z = _before(rounded, _left_out(taken), w1, w1_rest, b1, FINE, PRECISION)
            g = tl.load(slope + to, mask=inside, other=0.0)
            size = _size(g)
            d_b2 += tl.sum(g, 0)
            scaled = _factor(g * (1.0 / size), PRECISION)
            da = _product(scaled, tl.trans(w2), PRECISION)
            if GELU:
                below, bell = _normal(z)
                a = z * below
                da = da * (below + z * bell * DENSITY)
            else:
                a = tl.maximum(z, 0.0)
                da = tl.where(z > 0.0, da, 0.0)
            d_b1 += tl.sum(da, 0) * (size * large)
            da = _factor(da, PRECISION)
            d_w2 += _product(tl.trans(_factor(a, PRECISION)), scaled, PRECISION) * size
            d_w1 += _product(tl.trans(rounded), da, PRECISION) * (size * large)
            if DEEPER:
                dx = _product(da, tl.trans(w1), PRECISION) * (size * large)
                if NORM:
                    d_weight += tl.sum(dx * unit, 0)
                    d_move += tl.sum(dx, 0)
                    dx = _through_norm(dx, unit, rate, weight, inputs)
                dx += tl.load(d_x + place, mask=within & (chunk > 0), other=0.0)
                if RESIDUAL:
                    dx += first * g
                tl.store(d_x + place, dx, mask=within)
        _keep_columns(share + at_inner + begin * inputs, tall, inputs, d_w1, CHUNK, INPUTS)
        at, real = _outer(share + at_outer + begin, outputs, hidden, tall, OUTPUTS, CHUNK)
        tl.store(at, d_w2, mask=real)
        _keep_numbers(share + at_bias + begin, d_b1, tall, CHUNK)
        if chunk == 0:
            _keep_numbers(share + at_shift, d_b2, outputs, OUTPUTS)
        tl.debug_barrier()  # the next chunk reads the slopes that this one wrote
    if NORM:
        _keep_numbers(share + at_scaling, d_weight, inputs, INPUTS)
        _keep_numbers(share + at_moving, d_move, inputs, INPUTS)
