# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What touches every sample of a wide network once: from pooled activations to the squared gap and back, by heads."""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.head_maps import _window
from headcount.kernels.triton.hidden_sublayer import DENSITY, _normal
from headcount.kernels.triton.pooling import _dot, _fine_dot


@triton.jit
def _head_output(x, b, s, PRECISION: tl.constexpr):
    """B pooled + b of one head, for every sample."""
    return _fine_dot(x, tl.trans(b), PRECISION) + s[None, :]


@triton.jit(do_not_specialize=("batch", "groups"))
def tail_by_heads(
    pooled, inverse, target, before, after, still, largest, shift, out_weight, out_bias,
    loss, slope, delta, sizes, d_before, d_after, d_still, d_shift, d_out_weight, d_out_bias,
    row, batch, heads, head_dim, width, groups,
    DIM: tl.constexpr, WIDTH: tl.constexpr, SAMPLES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y = <w, gelu(sum_h A_h (B_h pooled_h + b_h) + c)> + b and everything's gradient, head by head.

    A program takes one member and `SAMPLES` samples. It leaves slope = dL/dpooled times the softmax's `inverse` sum,
    divided by the program's `sizes`, delta = <slope, pooled> and its part of every other gradient of the member's
    mean squared gap.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    n, d = tl.arange(0, WIDTH), tl.arange(0, DIM)
    wide, sample = n < width, part * SAMPLES + tl.arange(0, SAMPLES)
    inside, lines = sample < batch, heads * head_dim
    within = inside[:, None] & wide[None, :]
    place = ((model * batch + sample) * heads * width)[:, None] + n[None, :]
    before += model * lines * width
    after += model * lines * width
    still += model * lines
    z = tl.zeros((SAMPLES, WIDTH), tl.float32)
    for h in range(heads):
        x = tl.load(pooled + place + h * width, mask=within, other=0.0)
        b = _window(before + h * head_dim * width, d, n, width, head_dim, width)
        s = tl.load(still + h * head_dim + d, mask=d < head_dim, other=0.0)
        a = _window(after + h * head_dim * width, d, n, width, head_dim, width)
        z += _fine_dot(_head_output(x, b, s, PRECISION), a, PRECISION)
    z += tl.load(shift + model * width + n, mask=wide, other=0.0)[None, :]
    below, bell = _normal(z)
    w = tl.load(out_weight + model * row + n, mask=wide, other=0.0)
    y = tl.sum(z * below * w[None, :], 1) + tl.load(out_bias + model * row)
    gap = tl.where(inside, y - tl.load(target + model * batch + sample, mask=inside, other=0.0), 0.0)
    dy = gap * (2.0 / batch)
    program = model * parts + part
    tl.store(loss + program, tl.sum(gap * gap, 0) / batch)
    tl.store(d_out_bias + program, tl.sum(dy, 0))
    tl.store(d_out_weight + program * width + n, tl.sum(z * below * dy[:, None], 0), mask=wide)
    dz = dy[:, None] * w[None, :] * (below + z * bell * DENSITY)
    tl.store(d_shift + program * width + n, tl.sum(dz, 0), mask=wide)
    size = tl.maximum(tl.max(tl.abs(dz)), 1e-30)
    dz *= 1.0 / size
    if PRECISION == "half" or PRECISION == "fine":
        dz = dz.to(tl.float16)
    top = tl.zeros((SAMPLES, DIM), tl.float32)
    for h in range(heads):
        a = _window(after + h * head_dim * width, d, n, width, head_dim, width)
        normaliser = tl.load(inverse + (model * batch + sample) * heads + h, mask=inside, other=0.0)
        top = tl.maximum(top, tl.abs(_dot(dz, tl.trans(a), PRECISION)) * normaliser[:, None])
    top = tl.maximum(tl.max(top), 1e-30)
    most = tl.load(largest + model * groups)
    for group in range(1, groups):
        most = tl.maximum(most, tl.load(largest + model * groups + group))
    most = tl.maximum(most, 1e-30)
    tl.store(sizes + program, size * top * most)  # not the largest slope itself, but near it
    heard_size = size * top
    for h in range(heads):
        x = tl.load(pooled + place + h * width, mask=within, other=0.0)
        b = _window(before + h * head_dim * width, d, n, width, head_dim, width)
        s = tl.load(still + h * head_dim + d, mask=d < head_dim, other=0.0)
        a = _window(after + h * head_dim * width, d, n, width, head_dim, width)
        attended, dh = _head_output(x, b, s, PRECISION), _dot(dz, tl.trans(a), PRECISION) * (1.0 / top)
        normaliser = tl.load(inverse + (model * batch + sample) * heads + h, mask=inside, other=0.0)
        g = _dot(dh * normaliser[:, None], b, PRECISION) * (1.0 / most)
        g = g.to(slope.dtype.element_ty)  # delta is that of the rounded slope
        tl.store(slope + place + h * width, g, mask=within)
        by_head = tl.sum(g.to(tl.float32) * x.to(tl.float32), 1)
        tl.store(delta + (model * batch + sample) * heads + h, by_head, mask=inside)
        line = program * lines + h * head_dim + d
        to = line[:, None] * width + n[None, :]
        thin = (d < head_dim)[:, None] & wide[None, :]
        tl.store(d_after + to, _dot(tl.trans(attended), dz, PRECISION) * size, mask=thin)
        tl.store(d_before + to, _dot(tl.trans(dh), x, PRECISION) * heard_size, mask=thin)
        tl.store(d_still + line, tl.sum(dh, 0) * heard_size, mask=d < head_dim)
