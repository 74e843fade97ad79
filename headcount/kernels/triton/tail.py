# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What touches every sample once: from pooled activations to the squared gap, and back."""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.pooling import _dot, _fine_dot

SQRT_HALF = tl.constexpr(0.7071067811865476)
SQRT_2PI_INVERSE = tl.constexpr(0.3989422804014327)


@triton.jit(do_not_specialize=("batch",))
def tail(
    pooled, inverse, target, mix, shift, out_weight, out_bias,
    loss, slope, delta, sizes, d_mix, d_shift, d_out_weight, d_out_bias,
    row, batch, heads, width,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SAMPLES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From pooled activations to the squared gap and back: y = <w, gelu(sum_h C_h pooled_h + c)> + b.

    A program takes one member and `SAMPLES` samples, each a row of all its heads' pooled activations. It leaves
    slope = dL/dpooled times the softmax's `inverse` sum, divided by the program's `sizes`, delta = <slope, pooled> and
    its part of every other gradient of the member's mean squared gap.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    n, c = tl.arange(0, WIDTH), tl.arange(0, HEADS * WIDTH)
    wide = n < width
    head, unit = c // WIDTH, c % WIDTH
    real = (head < heads) & (unit < width)
    sample = part * SAMPLES + tl.arange(0, SAMPLES)
    inside = sample < batch
    place = (model * batch + sample)[:, None] * (heads * width) + (head * width + unit)[None, :]
    x = tl.load(pooled + place, mask=inside[:, None] & real[None, :], other=0.0)
    inner = (head * width * width + unit)[None, :] + n[:, None] * width
    m = tl.load(mix + model * heads * width * width + inner, mask=wide[:, None] & real[None, :], other=0.0)
    z = _fine_dot(x, tl.trans(m), PRECISION) + tl.load(shift + model * width + n, mask=wide, other=0.0)[None, :]
    below = 0.5 * (1.0 + tl.erf(z * SQRT_HALF))
    w = tl.load(out_weight + model * row + n, mask=wide, other=0.0)
    y = tl.sum(z * below * w[None, :], 1) + tl.load(out_bias + model * row)
    gap = tl.where(inside, y - tl.load(target + model * batch + sample, mask=inside, other=0.0), 0.0)
    dy = gap * (2.0 / batch)
    program = model * parts + part
    tl.store(loss + program, tl.sum(gap * gap, 0) / batch)
    tl.store(d_out_bias + program, tl.sum(dy, 0))
    tl.store(d_out_weight + program * width + n, tl.sum(z * below * dy[:, None], 0), mask=wide)
    dz = dy[:, None] * w[None, :] * (below + z * tl.exp(-0.5 * z * z) * SQRT_2PI_INVERSE)
    tl.store(d_shift + program * width + n, tl.sum(dz, 0), mask=wide)
    size = tl.maximum(tl.max(tl.abs(dz)), 1e-30)
    dz *= 1.0 / size
    h = tl.arange(0, HEADS)
    at = (model * batch + sample)[:, None] * heads + h[None, :]
    normaliser = tl.load(inverse + at, mask=inside[:, None] & (h < heads)[None, :], other=0.0)
    g = tl.reshape(_dot(dz, m, PRECISION), (SAMPLES, HEADS, WIDTH)) * normaliser[:, :, None]
    g = tl.reshape(g, (SAMPLES, HEADS * WIDTH))
    scale = tl.maximum(tl.max(tl.abs(g)), 1e-30)
    tl.store(sizes + program, size * scale)
    g = (g * (1.0 / scale)).to(slope.dtype.element_ty)  # delta must be that of the rounded slope
    tl.store(slope + place, g, mask=inside[:, None] & real[None, :])
    by_head = tl.sum(tl.reshape(g.to(tl.float32) * x.to(tl.float32), (SAMPLES, HEADS, WIDTH)), 2)
    tl.store(delta + at, by_head, mask=inside[:, None] & (h < heads)[None, :])
    dm = _dot(tl.trans(dz), x, PRECISION) * size
    tl.store(d_mix + program * heads * width * width + inner, dm, mask=wide[:, None] & real[None, :])
