"""What touches every sample once: from pooled activations to the squared gap, and back."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["tail"]

SQRT_HALF = tl.constexpr(0.7071067811865476)
SQRT_2PI_INVERSE = tl.constexpr(0.3989422804014327)


@triton.jit
def tail(
    pooled, target, mix, shift, out_weight, out_bias,
    loss, slope, delta, d_mix, d_shift, d_out_weight, d_out_bias,
    row, batch, heads, width,
    WIDTH: tl.constexpr, SAMPLES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """From pooled activations to the squared gap and back: y = <w, gelu(sum_h C_h pooled_h + c)> + b.

    A program takes one member and `SAMPLES` samples; it leaves dL/dpooled, delta = <dL/dpooled, pooled> and its
    part of every other gradient of the member's mean squared gap.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    n = tl.arange(0, WIDTH)
    wide = n < width
    sample = part * SAMPLES + tl.arange(0, SAMPLES)
    inside = sample < batch
    line = (model * batch + sample) * heads
    both, square = inside[:, None] & wide[None, :], wide[:, None] & wide[None, :]
    z = tl.zeros((SAMPLES, WIDTH), tl.float32) + tl.load(shift + model * width + n, mask=wide, other=0.0)[None, :]
    for h in range(heads):
        x = tl.load(pooled + (line + h)[:, None] * width + n[None, :], mask=both, other=0.0)
        m = tl.load(mix + ((model * heads + h) * width + n[None, :]) * width + n[:, None], mask=square, other=0.0)
        z = tl.dot(x, m, z, input_precision=PRECISION)
    below = 0.5 * (1.0 + tl.erf(z * SQRT_HALF))
    w = tl.load(out_weight + model * row + n, mask=wide, other=0.0)
    y = tl.sum(z * below * w[None, :], 1) + tl.load(out_bias + model * row)
    gap = tl.where(inside, y - tl.load(target + model * batch + sample, mask=inside, other=0.0), 0.0)
    dy = gap * (2.0 / batch)
    bell = tl.exp(-0.5 * z * z) * SQRT_2PI_INVERSE
    dz = dy[:, None] * w[None, :] * (below + z * bell)
    here = model * parts + part
    tl.store(loss + here, tl.sum(gap * gap, 0) / batch)
    tl.store(d_out_bias + here, tl.sum(dy, 0))
    tl.store(d_out_weight + here * width + n, tl.sum(z * below * dy[:, None], 0), mask=wide)
    tl.store(d_shift + here * width + n, tl.sum(dz, 0), mask=wide)
    for h in range(heads):
        place = (line + h)[:, None] * width + n[None, :]
        x = tl.load(pooled + place, mask=both, other=0.0)
        m = tl.load(mix + ((model * heads + h) * width + n[:, None]) * width + n[None, :], mask=square, other=0.0)
        g = tl.dot(dz, m, input_precision=PRECISION)
        tl.store(slope + place, g, mask=both)
        tl.store(delta + line + h, tl.sum(g * x, 1), mask=inside)
        dm = tl.dot(tl.trans(dz), x, input_precision=PRECISION)
        tl.store(d_mix + ((here * heads + h) * width + n[:, None]) * width + n[None, :], dm, mask=square)
