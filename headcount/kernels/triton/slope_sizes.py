# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""Slopes of pooled activations brought to one size and rounded, and their products with what was pooled."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("batch", "heads", "by_model", "by_sample", "by_head", "by_unit"))
def size_slopes(
    slope, pooled, inverse, scaled, delta, sizes, by_model, by_sample, by_head, by_unit, batch, heads, width,
    SAMPLES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """scaled = slope inverse / size with one size for `SAMPLES` samples, and delta = <scaled, pooled>, rounded."""
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    slope += model * by_model
    pooled += model * batch * heads * width
    scaled += model * batch * heads * width
    delta += model * batch * heads
    inverse += model * batch * heads
    sample, n = part * SAMPLES + tl.arange(0, SAMPLES), tl.arange(0, WIDTH)
    within = (sample < batch)[:, None] & (n < width)[None, :]
    at = sample[:, None] * by_sample + n[None, :] * by_unit
    large = tl.zeros((SAMPLES, WIDTH), tl.float32)
    for head in range(heads):
        normaliser = tl.load(inverse + sample * heads + head, mask=sample < batch, other=0.0)
        g = tl.load(slope + at + head * by_head, mask=within, other=0.0) * normaliser[:, None]
        large = tl.maximum(large, tl.abs(g))
    size = tl.maximum(tl.max(tl.max(large, 1), 0), 1e-30)
    tl.store(sizes + model * parts + part, size)
    for head in range(heads):
        normaliser = tl.load(inverse + sample * heads + head, mask=sample < batch, other=0.0) * (1.0 / size)
        g = tl.load(slope + at + head * by_head, mask=within, other=0.0) * normaliser[:, None]
        g = g.to(scaled.dtype.element_ty)
        place = (sample * heads + head)[:, None] * width + n[None, :]
        tl.store(scaled + place, g, mask=within)
        x = tl.load(pooled + place, mask=within, other=0.0).to(tl.float32)
        tl.store(delta + sample * heads + head, tl.sum(g.to(tl.float32) * x, 1), mask=sample < batch)
