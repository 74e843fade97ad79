"""The parts of a bank's step that touch every token or every parameter, as Triton kernels.

A program takes one member and tiles of `SAMPLES` sequences by `TOKENS` positions. The tile's rows (sample, token)
and columns (sample, head) make one matrix: a row belongs to a column when their samples agree, and outside these
blocks the weights are zero. So scores, pooling and all their gradients are plain matrix products, and activations
never leave the chip. Sums over the batch are kept for each program and added up afterwards in a fixed order: no
atomics, the same numbers every time.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["adamw", "pool_backward", "pool_forward", "tail"]

LOG2E = tl.constexpr(1.4426950408889634)
SQRT_HALF = tl.constexpr(0.7071067811865476)
SQRT_2PI_INVERSE = tl.constexpr(0.3989422804014327)


@triton.jit
def _tokens(line, t, here, FEATURES: tl.constexpr, LANES: tl.constexpr):
    """The tile's tokens (rows, LANES), a one after the last feature: the bias is one more weight."""
    f = tl.arange(0, LANES)
    there = here[:, None] & (f < FEATURES)[None, :]
    x = tl.load(line[:, None] + (t * FEATURES)[:, None] + f[None, :], mask=there, other=0.0)
    return tl.where((f == FEATURES)[None, :], 1.0, x)


@triton.jit
def _first_layer(weight, bias, model, width, FEATURES: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr):
    """[W1, b1] as (LANES, WIDTH)."""
    f, n = tl.arange(0, LANES), tl.arange(0, WIDTH)
    place = (model * width + n)[None, :]
    inside = (n < width)[None, :]
    w = tl.load(weight + place * FEATURES + f[:, None], mask=inside & (f < FEATURES)[:, None], other=0.0)
    b = tl.load(bias + place, mask=inside, other=0.0)
    return tl.where((f == FEATURES)[:, None], b, w)


@triton.jit
def _hidden(
    x, first, line, t, here, weight, bias, model, width,
    FEATURES: tl.constexpr, WIDTH: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """a_t = relu(W1 x_t + b1) for the tile: one product, or a sum of outer products on the ordinary cores."""
    if DOT:
        a = tl.dot(x, first, input_precision=PRECISION)
    else:
        n = tl.arange(0, WIDTH)
        b = tl.load(bias + model * width + n, mask=n < width, other=0.0)
        a = tl.zeros((x.shape[0], WIDTH), tl.float32) + b[None, :]
        for f in tl.static_range(FEATURES):
            w = tl.load(weight + (model * width + n) * FEATURES + f, mask=n < width, other=0.0)
            a += tl.load(line + t * FEATURES + f, mask=here, other=0.0)[:, None] * w[None, :]
    return tl.maximum(a, 0.0)


@triton.jit
def pool_forward(
    data, which, rows, lengths, weight, bias, directions, pooled, level,
    samples, batch, longest, heads, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr,
    RAGGED: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """pooled = sum_t softmax_t(<u_h, a_t>) a_t and level = log2 sum_t 2^(score log2 e), online over the length."""
    model = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, WIDTH)
    r, c = tl.arange(0, SAMPLES * TOKENS), tl.arange(0, SAMPLES * HEADS)
    row_sample, column_sample, head = r // TOKENS, c // HEADS, c % HEADS
    own = row_sample[:, None] == column_sample[None, :]
    real = (head < heads)[:, None] & (n < width)[None, :]
    u = tl.load(directions + (model * heads + head)[:, None] * width + n[None, :], mask=real, other=0.0) * LOG2E
    first = _first_layer(weight, bias, model, width, FEATURES, LANES, WIDTH)
    data += tl.load(which + model) * samples * longest * FEATURES
    length = longest
    if RAGGED:
        length = tl.load(lengths + model).to(tl.int32)
    for block in range(tl.program_id(1), tl.cdiv(batch, SAMPLES), tl.num_programs(1)):
        sample = block * SAMPLES + row_sample
        inside = sample < batch
        line = data + tl.load(rows + model * batch + sample, mask=inside, other=0) * longest * FEATURES
        top = tl.full((SAMPLES * HEADS,), float("-inf"), tl.float32)
        total = tl.zeros((SAMPLES * HEADS,), tl.float32)
        mixed = tl.zeros((SAMPLES * HEADS, WIDTH), tl.float32)
        for start in range(0, length, TOKENS):
            t = start + r % TOKENS
            here = inside & (t < length)
            x = _tokens(line, t, here, FEATURES, LANES)
            a = _hidden(x, first, line, t, here, weight, bias, model, width, FEATURES, WIDTH, DOT, PRECISION)
            score = tl.dot(a, tl.trans(u), input_precision=PRECISION)
            score = tl.where(own & here[:, None], score, float("-inf"))
            higher = tl.maximum(top, tl.max(score, 0))
            ground = tl.where(higher == float("-inf"), 0.0, higher)  # a column past the batch has no rows
            p = tl.exp2(score - ground[None, :])
            shrink = tl.exp2(top - ground)
            total = total * shrink + tl.sum(p, 0)
            mixed = mixed * shrink[:, None] + tl.dot(tl.trans(p), a, input_precision=PRECISION)
            top = higher
        place = (model * batch + block * SAMPLES + column_sample) * heads + head
        asked = (head < heads) & (block * SAMPLES + column_sample < batch)
        total = tl.where(asked, total, 1.0)
        out = mixed / total[:, None]
        tl.store(pooled + place[:, None] * width + n[None, :], out, mask=asked[:, None] & (n < width)[None, :])
        tl.store(level + place, top + tl.log2(total), mask=asked)


@triton.jit
def pool_backward(
    data, which, rows, lengths, weight, bias, directions, level, slope, delta,
    d_weight, d_bias, d_directions,
    samples, batch, longest, heads, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr,
    RAGGED: tl.constexpr, DOT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of W1, b1 and the directions from `slope` = dL/dpooled and `delta` = <slope, pooled>.

    With p recomputed from `level`, and sums over the tokens of one sample:
    dp = <slope, a>, ds = p (dp - delta), da = sum_h p slope + ds u, du = sum ds a, d[W1, b1] = sum relu'(a) da [x, 1].
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    n, f = tl.arange(0, WIDTH), tl.arange(0, LANES)
    r, c = tl.arange(0, SAMPLES * TOKENS), tl.arange(0, SAMPLES * HEADS)
    row_sample, column_sample, head = r // TOKENS, c // HEADS, c % HEADS
    own = row_sample[:, None] == column_sample[None, :]
    wide = (n < width)[None, :]
    real = (head < heads)[:, None] & wide
    u = tl.load(directions + (model * heads + head)[:, None] * width + n[None, :], mask=real, other=0.0)
    first = _first_layer(weight, bias, model, width, FEATURES, LANES, WIDTH)
    data += tl.load(which + model) * samples * longest * FEATURES
    length = longest
    if RAGGED:
        length = tl.load(lengths + model).to(tl.int32)
    d_first = tl.zeros((LANES, WIDTH), tl.float32)
    d_u = tl.zeros((SAMPLES * HEADS, WIDTH), tl.float32)
    for block in range(part, tl.cdiv(batch, SAMPLES), parts):
        sample = block * SAMPLES + row_sample
        inside = sample < batch
        line = data + tl.load(rows + model * batch + sample, mask=inside, other=0) * longest * FEATURES
        place = (model * batch + block * SAMPLES + column_sample) * heads + head
        asked = (head < heads) & (block * SAMPLES + column_sample < batch)
        g = tl.load(slope + place[:, None] * width + n[None, :], mask=asked[:, None] & wide, other=0.0)
        ground = tl.load(level + place, mask=asked, other=0.0)
        mean = tl.load(delta + place, mask=asked, other=0.0)
        for start in range(0, length, TOKENS):
            t = start + r % TOKENS
            here = inside & (t < length)
            x = _tokens(line, t, here, FEATURES, LANES)
            a = _hidden(x, first, line, t, here, weight, bias, model, width, FEATURES, WIDTH, DOT, PRECISION)
            score = tl.dot(a, tl.trans(u), input_precision=PRECISION) * LOG2E
            p = tl.where(own & here[:, None] & asked[None, :], tl.exp2(score - ground[None, :]), 0.0)
            ds = p * (tl.dot(a, tl.trans(g), input_precision=PRECISION) - mean[None, :])
            da = tl.dot(p, g, input_precision=PRECISION)
            da = tl.dot(ds, u, da, input_precision=PRECISION)
            da = tl.where(a > 0.0, da, 0.0)
            d_first = tl.dot(tl.trans(x), da, d_first, input_precision=PRECISION)
            d_u = tl.dot(tl.trans(ds), a, d_u, input_precision=PRECISION)
    here_out = model * parts + part
    out = d_weight + (here_out * width + n)[None, :] * FEATURES + f[:, None]
    tl.store(out, d_first, mask=wide & (f < FEATURES)[:, None])
    b = tl.sum(tl.where((f == FEATURES)[:, None], d_first, 0.0), 0)
    tl.store(d_bias + here_out * width + n, b, mask=n < width)
    by_head = tl.sum(tl.reshape(d_u, (SAMPLES, HEADS, WIDTH)), 0)
    j = tl.arange(0, HEADS)
    out = d_directions + (here_out * heads + j)[:, None] * width + n[None, :]
    tl.store(out, by_head, mask=(j < heads)[:, None] & wide)


@triton.jit
def tail(
    pooled, target, mix, shift, out_weight, out_bias,
    loss, slope, delta, d_mix, d_shift, d_out_weight, d_out_bias,
    batch, heads, width,
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
    w = tl.load(out_weight + model * width + n, mask=wide, other=0.0)
    y = tl.sum(z * below * w[None, :], 1) + tl.load(out_bias + model)
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


@triton.jit
def adamw(
    theta, gradient, first, second, lr, decay, active, step,
    parameters, rise, fall,
    BETA1: tl.constexpr, BETA2: tl.constexpr, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr,
    EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One AdamW update of one member's parameters, its rate from the schedule; a frozen member stays in place."""
    model = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < parameters
    at = model * parameters + i
    now = tl.load(step)  # float64: 1 - beta^step cancels in float32
    up = now / rise
    down = 0.5 * (1.0 + tl.cos(3.141592653589793 * tl.maximum(now - rise, 0.0) / fall))
    rate = tl.load(lr + model) * tl.minimum(up, down).to(tl.float32)
    unbias1 = (1.0 - tl.exp(now * LOG_BETA1)).to(tl.float32)
    unbias2 = (1.0 - tl.exp(now * LOG_BETA2)).to(tl.float32)
    g = tl.load(gradient + at, mask=inside, other=0.0)
    m = tl.load(first + at, mask=inside, other=0.0)
    v = tl.load(second + at, mask=inside, other=0.0)
    x = tl.load(theta + at, mask=inside, other=0.0)
    m += (1.0 - BETA1) * (g - m)
    v = BETA2 * v + (1.0 - BETA2) * g * g
    moved = x * (1.0 - rate * tl.load(decay + model)) - rate * (m / unbias1) / (tl.sqrt(v / unbias2) + EPS)
    tl.store(first + at, m, mask=inside)
    tl.store(second + at, v, mask=inside)
    tl.store(theta + at, moved, mask=inside & tl.load(active + model))
