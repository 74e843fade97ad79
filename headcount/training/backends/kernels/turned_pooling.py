# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""Pooling with scores lying (head, token): what `pooling` computes, for tiles that one warp or two can hold.

A softmax is then a row, which few lanes share, so its maximum and sum are a shuffle or two instead of a pass through
shared memory; weights and their gradients are left factors of the products with activations as they come.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.training.backends.kernels.pooling import (
    LOG2E,
    _dot,
    _fine_dot,
    _first_layer,
    _hidden,
    _place,
    _slopes,
    _tokens,
)

__all__ = ["turned_backward", "turned_forward"]


@triton.jit
def _mixed(p, a, PRECISION: tl.constexpr):
    """p a and the sum of each row of p; of the weights as they were rounded, so that they add up to one."""
    if PRECISION == "half":
        p = p.to(tl.float16)
        ones = tl.full((p.shape[1], 16), 1.0, tl.float16)
        mixed, total = tl.dot(p, a.to(tl.float16)), tl.max(tl.dot(p, ones), 1)
    else:
        mixed, total = _fine_dot(p, a, PRECISION), tl.sum(p, 1)
    return mixed, total


@triton.jit(do_not_specialize=("samples", "batch", "longest"))
def turned_forward(
    data, which, rows, lengths, weight, bias, directions, pooled, level,
    weight_row, bias_row, samples, batch, longest, heads, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr, SINGLE: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """pooled = sum_t softmax_t(<u_h, a_t>) a_t, and the softmaxes' tops and inverse sums, online over the length."""
    model, parts = tl.program_id(0).to(tl.int64), tl.num_programs(1)
    n = tl.arange(0, WIDTH)
    r, c = tl.arange(0, SAMPLES * TOKENS), tl.arange(0, SAMPLES * HEADS)
    row_sample, column_sample, head = r // TOKENS, c // HEADS, c % HEADS
    own = column_sample[:, None] == row_sample[None, :]
    wide = (n < width)[None, :]
    u = directions + (model * heads + head)[:, None] * width + n[None, :]
    u = tl.load(u, mask=(head < heads)[:, None] & wide, other=0.0) * LOG2E
    first = _first_layer(weight + model * weight_row, bias + model * bias_row, width, FEATURES, LANES, SLOTS, WIDTH)
    data += tl.load(which + model) * samples * longest * STRIDE
    rows += model * batch
    pooled += model * batch * heads * width
    inverse = level + (tl.num_programs(0) + model) * batch * heads
    level += model * batch * heads
    length = longest
    if RAGGED:
        length = tl.load(lengths + model).to(tl.int32)
    t = r % TOKENS
    within = tl.minimum(t, longest - 1)
    line = _place(rows, tl.program_id(1), row_sample, batch, longest, SAMPLES)
    x = _tokens(data, line + within, LANES, FEATURES, PRECISION)
    line = _place(rows, tl.program_id(1) + parts, row_sample, batch, longest, SAMPLES)
    for block in range(tl.program_id(1), tl.cdiv(batch, SAMPLES), parts):
        coming = _tokens(data, line + within, LANES, FEATURES, PRECISION)
        after = _place(rows, block + 2 * parts, row_sample, batch, longest, SAMPLES)
        a = _hidden(x, first, SLOTS, PRECISION)
        score = tl.where(own & (t < length)[None, :], _fine_dot(u, tl.trans(a), PRECISION), float("-inf"))
        top = tl.max(score, 1)
        mixed, total = _mixed(tl.exp2(score - top[:, None]), a, PRECISION)
        if not SINGLE:
            here = _place(rows, block, row_sample, batch, longest, SAMPLES)
            for start in range(TOKENS, length, TOKENS):
                x = _tokens(data, here + tl.minimum(start + t, longest - 1), LANES, FEATURES, PRECISION)
                a = _hidden(x, first, SLOTS, PRECISION)
                score = _fine_dot(u, tl.trans(a), PRECISION)
                score = tl.where(own & (start + t < length)[None, :], score, float("-inf"))
                higher = tl.maximum(top, tl.max(score, 1))
                shrink = tl.exp2(top - higher)
                more, weights = _mixed(tl.exp2(score - higher[:, None]), a, PRECISION)
                mixed, total, top = mixed * shrink[:, None] + more, total * shrink + weights, higher
        asked = (head < heads) & (block * SAMPLES + column_sample < batch)
        place = (block * SAMPLES + column_sample) * heads + head
        share = 1.0 / total
        tl.store(pooled + place[:, None] * width + n[None, :], mixed * share[:, None], mask=asked[:, None] & wide)
        tl.store(level + place, top, mask=asked)
        tl.store(inverse + place, share, mask=asked)
        x, line = coming, after


@triton.jit
def _tile_backward(x, first, u, scaled, g, top, mean, own, SLOTS: tl.constexpr, PRECISION: tl.constexpr):
    a = _hidden(x, first, SLOTS, PRECISION)
    score = _fine_dot(scaled, tl.trans(a), PRECISION)
    p = tl.where(own, tl.exp2(score - top[:, None]), 0.0)
    ds = p * (_dot(g, tl.trans(a), PRECISION) - mean[:, None])
    da = tl.where(a > 0.0, _dot(tl.trans(p), g, PRECISION) + _dot(tl.trans(ds), u, PRECISION), 0.0)
    return _dot(tl.trans(x), da, PRECISION), _dot(ds, a, PRECISION)


@triton.jit(do_not_specialize=("samples", "batch", "longest", "size_parts", "size_rows"))
def turned_backward(
    data, which, rows, lengths, weight, bias, directions, level, slope, delta, sizes,
    d_weight, d_bias, d_directions,
    size_parts, size_rows, weight_row, bias_row, samples, batch, longest, heads, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr, SINGLE: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Gradients of W1, b1 and the directions, as `pool_backward` makes them."""
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    n = tl.arange(0, WIDTH)
    r, c = tl.arange(0, SAMPLES * TOKENS), tl.arange(0, SAMPLES * HEADS)
    row_sample, column_sample, head = r // TOKENS, c // HEADS, c % HEADS
    own = column_sample[:, None] == row_sample[None, :]
    wide = (n < width)[None, :]
    u = directions + (model * heads + head)[:, None] * width + n[None, :]
    u = tl.load(u, mask=(head < heads)[:, None] & wide, other=0.0)
    scaled = u * LOG2E  # rounded as in the forward pass
    first = _first_layer(weight + model * weight_row, bias + model * bias_row, width, FEATURES, LANES, SLOTS, WIDTH)
    data += tl.load(which + model) * samples * longest * STRIDE
    rows += model * batch
    slope += model * batch * heads * width
    level += model * batch * heads
    delta += model * batch * heads
    sizes += model * size_parts
    length = longest
    if RAGGED:
        length = tl.load(lengths + model).to(tl.int32)
    d_first = tl.zeros((LANES, WIDTH), tl.float32)
    d_u = tl.zeros((SAMPLES * HEADS, WIDTH), tl.float32)
    t = r % TOKENS
    within = tl.minimum(t, longest - 1)
    line = _place(rows, part, row_sample, batch, longest, SAMPLES)
    x = _tokens(data, line + within, LANES, FEATURES, PRECISION)
    line = _place(rows, part + parts, row_sample, batch, longest, SAMPLES)
    g, top, mean = _slopes(slope, level, delta, part, column_sample, head, batch, heads, width, SAMPLES, WIDTH)
    for block in range(part, tl.cdiv(batch, SAMPLES), parts):
        coming = _tokens(data, line + within, LANES, FEATURES, PRECISION)
        after = _place(rows, block + 2 * parts, row_sample, batch, longest, SAMPLES)
        next_g, next_top, next_mean = _slopes(
            slope, level, delta, block + parts, column_sample, head, batch, heads, width, SAMPLES, WIDTH
        )
        size = tl.load(sizes + block * SAMPLES // size_rows)
        seen = own & (t < length)[None, :]
        more_first, more_u = _tile_backward(x, first, u, scaled, g, top, mean, seen, SLOTS, PRECISION)
        if not SINGLE:
            here = _place(rows, block, row_sample, batch, longest, SAMPLES)
            for start in range(TOKENS, length, TOKENS):
                x = _tokens(data, here + tl.minimum(start + t, longest - 1), LANES, FEATURES, PRECISION)
                seen = own & (start + t < length)[None, :]
                one, two = _tile_backward(x, first, u, scaled, g, top, mean, seen, SLOTS, PRECISION)
                more_first += one
                more_u += two
        d_first += more_first * size
        d_u += more_u * size
        x, line, g, top, mean = coming, after, next_g, next_top, next_mean
    here = model * parts + part
    f = tl.arange(0, SLOTS)
    by_feature = tl.sum(tl.reshape(d_first, (LANES // SLOTS, SLOTS, WIDTH)), 0)
    out = d_weight + (here * width + n)[None, :] * FEATURES + f[:, None]
    tl.store(out, by_feature, mask=wide & (f < FEATURES)[:, None])
    b = tl.sum(tl.where((f == FEATURES)[:, None], by_feature, 0.0), 0)
    tl.store(d_bias + here * width + n, b, mask=n < width)
    by_head = tl.sum(tl.reshape(d_u, (SAMPLES, HEADS, WIDTH)), 0)
    j = tl.arange(0, HEADS)
    out = d_directions + (here * heads + j)[:, None] * width + n[None, :]
    tl.store(out, by_head, mask=(j < heads)[:, None] & wide)
