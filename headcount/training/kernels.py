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
def _dot(x, y, PRECISION: tl.constexpr):
    """x y with float32 sums. "half" rounds the factors to float16: as many bits as TF32, rounded, not cut off."""
    if PRECISION == "half":
        out = tl.dot(x.to(tl.float16), y.to(tl.float16))
    else:
        out = tl.dot(x, y, input_precision=PRECISION)
    return out


@triton.jit
def _tokens(
    data, place, LANES: tl.constexpr, SLOTS: tl.constexpr, FEATURES: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """The tile's tokens (rows, LANES), a one after the last feature: the bias is one more weight."""
    f = tl.arange(0, LANES)
    if PRECISION == "half":  # packed: [x, 1] rounded to float16, then what the rounding left out
        x = tl.load(data + place[:, None] * LANES + f[None, :])
    else:
        x = tl.load(data + place[:, None] * FEATURES + f[None, :], mask=(f < FEATURES)[None, :], other=0.0)
        x = tl.where((f == FEATURES)[None, :], 1.0, x)
    return x


@triton.jit
def _first_layer(
    weight, bias, model, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """[W1, b1] as (LANES, WIDTH), once for the tokens and once more for what their rounding left out."""
    f, n = tl.arange(0, LANES), tl.arange(0, WIDTH)
    slot = f % SLOTS
    place = (model * width + n)[None, :]
    inside = (n < width)[None, :]
    w = tl.load(weight + place * FEATURES + slot[:, None], mask=inside & (slot < FEATURES)[:, None], other=0.0)
    b = tl.load(bias + place, mask=inside, other=0.0)
    return tl.where((f == FEATURES)[:, None], b, w)


@triton.jit
def _hidden(x, first, SLOTS: tl.constexpr, PRECISION: tl.constexpr):
    """a_t = relu(W1 x_t + b1) for the tile, to more than the products' ten bits: t/T and (t+1)/T must stay apart."""
    if PRECISION == "half":
        high = first.to(tl.float16)
        rest = tl.where((tl.arange(0, first.shape[0]) < SLOTS)[:, None], first - high.to(tl.float32), 0.0)
        a = tl.dot(x, high)
        a = tl.dot(x, rest.to(tl.float16), a)
    else:
        a = tl.dot(x, first, input_precision="ieee" if PRECISION == "ieee" else "tf32x3")
    return tl.maximum(a, 0.0)


@triton.jit
def pool_forward(
    data, which, rows, lengths, weight, bias, directions, pooled, level,
    samples, batch, longest, heads, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr, SINGLE: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """pooled = sum_t softmax_t(<u_h, a_t>) a_t and level = log2 sum_t 2^(score log2 e), online over the length."""
    model = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, WIDTH)
    r, c = tl.arange(0, SAMPLES * TOKENS), tl.arange(0, SAMPLES * HEADS)
    row_sample, column_sample, head = r // TOKENS, c // HEADS, c % HEADS
    own = row_sample[:, None] == column_sample[None, :]
    wide = (n < width)[None, :]
    u = directions + (model * heads + head)[:, None] * width + n[None, :]
    u = tl.load(u, mask=(head < heads)[:, None] & wide, other=0.0) * LOG2E
    first = _first_layer(weight, bias, model, width, FEATURES, LANES, SLOTS, WIDTH)
    data += tl.load(which + model) * samples * longest * STRIDE
    rows += model * batch
    pooled += model * batch * heads * width
    level += model * batch * heads
    length = longest
    if RAGGED:
        length = tl.load(lengths + model).to(tl.int32)
    for block in range(tl.program_id(1), tl.cdiv(batch, SAMPLES), tl.num_programs(1)):
        sample = block * SAMPLES + row_sample
        line = tl.load(rows + sample, mask=sample < batch, other=0).to(tl.int32) * longest
        top = tl.full((SAMPLES * HEADS,), float("-inf"), tl.float32)
        total = tl.zeros((SAMPLES * HEADS,), tl.float32)
        mixed = tl.zeros((SAMPLES * HEADS, WIDTH), tl.float32)
        for start in range(0, TOKENS if SINGLE else length, TOKENS):
            t = start + r % TOKENS
            x = _tokens(data, line + tl.minimum(t, longest - 1), LANES, SLOTS, FEATURES, PRECISION)
            a = _hidden(x, first, SLOTS, PRECISION)
            score = tl.where(own & (t < length)[:, None], _dot(a, tl.trans(u), PRECISION), float("-inf"))
            higher = tl.maximum(top, tl.max(score, 0))
            p = tl.exp2(score - higher[None, :])
            shrink = tl.exp2(top - higher)
            total = total * shrink + tl.sum(p, 0)
            mixed = mixed * shrink[:, None] + _dot(tl.trans(p), a, PRECISION)
            top = higher
        asked = (head < heads) & (block * SAMPLES + column_sample < batch)
        place = (block * SAMPLES + column_sample) * heads + head
        out = mixed / total[:, None]
        tl.store(pooled + place[:, None] * width + n[None, :], out, mask=asked[:, None] & wide)
        tl.store(level + place, top + tl.log2(total), mask=asked)


@triton.jit
def pool_backward(
    data, which, rows, lengths, weight, bias, directions, level, slope, delta,
    d_weight, d_bias, d_directions,
    samples, batch, longest, heads, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr, SINGLE: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Gradients of W1, b1 and the directions from `slope` = dL/dpooled and `delta` = <slope, pooled>.

    With p recomputed from `level`, and sums over the tokens of one sample:
    dp = <slope, a>, ds = p (dp - delta), da = sum_h p slope + ds u, du = sum ds a, d[W1, b1] = sum relu'(a) da [x, 1].
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    n = tl.arange(0, WIDTH)
    r, c = tl.arange(0, SAMPLES * TOKENS), tl.arange(0, SAMPLES * HEADS)
    row_sample, column_sample, head = r // TOKENS, c // HEADS, c % HEADS
    own = row_sample[:, None] == column_sample[None, :]
    wide = (n < width)[None, :]
    u = directions + (model * heads + head)[:, None] * width + n[None, :]
    u = tl.load(u, mask=(head < heads)[:, None] & wide, other=0.0)
    first = _first_layer(weight, bias, model, width, FEATURES, LANES, SLOTS, WIDTH)
    data += tl.load(which + model) * samples * longest * STRIDE
    rows += model * batch
    slope += model * batch * heads * width
    level += model * batch * heads
    delta += model * batch * heads
    length = longest
    if RAGGED:
        length = tl.load(lengths + model).to(tl.int32)
    d_first = tl.zeros((LANES, WIDTH), tl.float32)
    d_u = tl.zeros((SAMPLES * HEADS, WIDTH), tl.float32)
    for block in range(part, tl.cdiv(batch, SAMPLES), parts):
        sample = block * SAMPLES + row_sample
        line = tl.load(rows + sample, mask=sample < batch, other=0).to(tl.int32) * longest
        asked = (head < heads) & (block * SAMPLES + column_sample < batch)
        place = (block * SAMPLES + column_sample) * heads + head
        g = tl.load(slope + place[:, None] * width + n[None, :], mask=asked[:, None] & wide, other=0.0)
        ground = tl.load(level + place, mask=asked, other=float("inf"))  # no weight outside the batch
        mean = tl.load(delta + place, mask=asked, other=0.0)
        size = 1.0
        if PRECISION == "half":  # gradients may be far below float16's smallest number: bring them to size one
            size = tl.maximum(tl.max(tl.abs(g)), 1e-30)
            g, mean = g / size, mean / size
        for start in range(0, TOKENS if SINGLE else length, TOKENS):
            t = start + r % TOKENS
            x = _tokens(data, line + tl.minimum(t, longest - 1), LANES, SLOTS, FEATURES, PRECISION)
            a = _hidden(x, first, SLOTS, PRECISION)
            score = _dot(a, tl.trans(u * LOG2E), PRECISION)  # rounded as in the forward pass
            p = tl.where(own & (t < length)[:, None], tl.exp2(score - ground[None, :]), 0.0)
            ds = p * (_dot(a, tl.trans(g), PRECISION) - mean[None, :])
            da = _dot(p, g, PRECISION) + _dot(ds, u, PRECISION)
            da = tl.where(a > 0.0, da, 0.0)
            d_first += _dot(tl.trans(x), da, PRECISION) * size
            d_u += _dot(tl.trans(ds), a, PRECISION) * size
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
    tl.store(theta + at, tl.where(tl.load(active + model) != 0, moved, x), mask=inside)
