# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What touches every token: hidden activations, scores, softmax and pooling, forward and backward.

A program takes one member and tiles of `SAMPLES` sequences by `TOKENS` positions. The tile's rows (sample, head) and
columns (sample, token) make one matrix: a row belongs to a column when their samples agree, and outside these blocks
the weights are zero. So scores, pooling and all their gradients are plain matrix products, and activations never leave
the chip. A softmax is a row, which few lanes share, so its maximum and sum are a shuffle or two. Sums over the batch
are kept for each program and added up afterwards in a fixed order: no atomics, the same numbers every time.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _dot(x, y, PRECISION: tl.constexpr):
    """x y with float32 sums. "half" rounds the factors to float16: as many bits as TF32, rounded, not cut off."""
    if PRECISION == "half" or PRECISION == "fine":
        out = tl.dot(x.to(tl.float16), y.to(tl.float16))
    else:
        out = tl.dot(x, y, input_precision=PRECISION)
    return out


@triton.jit
def _rest(x):
    """What rounding to float16 leaves out."""
    return (x - x.to(tl.float16).to(tl.float32)).to(tl.float16)


@triton.jit
def _fine_dot(x, y, PRECISION: tl.constexpr):
    """x y; "fine" adds the products with what the rounding of either factor left out, for twice the bits."""
    out = _dot(x, y, PRECISION)
    if PRECISION == "fine":
        out = tl.dot(x.to(tl.float16), _rest(y), out)
        out = tl.dot(_rest(x), y.to(tl.float16), out)
    return out


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


@triton.jit
def _tokens(data, place, LANES: tl.constexpr, FEATURES: tl.constexpr, PRECISION: tl.constexpr):
    """The tile's tokens (rows, LANES), a one after the last feature: the bias is one more weight."""
    f = tl.arange(0, LANES)
    if PRECISION == "half" or PRECISION == "fine":  # packed: [x, 1] rounded to float16, then what the rounding left out
        x = tl.load(data + place[:, None] * LANES + f[None, :])
    else:
        x = tl.load(data + place[:, None] * FEATURES + f[None, :], mask=(f < FEATURES)[None, :], other=0.0)
        x = tl.where((f == FEATURES)[None, :], 1.0, x)
    return x


@triton.jit
def _first_layer(
    weight, bias, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """[W1, b1] as (LANES, WIDTH), once for the tokens and once more for what their rounding left out."""
    f, n = tl.arange(0, LANES), tl.arange(0, WIDTH)
    slot = f % SLOTS
    inside = (n < width)[None, :]
    w = weight + n[None, :] * FEATURES + slot[:, None]
    w = tl.load(w, mask=inside & (slot < FEATURES)[:, None], other=0.0)
    b = tl.load(bias + n[None, :], mask=inside, other=0.0)
    return tl.where((f == FEATURES)[:, None], b, w)


@triton.jit
def _hidden(x, first, SLOTS: tl.constexpr, PRECISION: tl.constexpr):
    """a_t = relu(W1 x_t + b1) for the tile, to more than the products' ten bits: t/T and (t+1)/T must stay apart."""
    if PRECISION == "half" or PRECISION == "fine":
        high = first.to(tl.float16)
        rest = tl.where((tl.arange(0, first.shape[0]) < SLOTS)[:, None], first - high.to(tl.float32), 0.0)
        a = tl.dot(x, high)
        a = tl.dot(x, rest.to(tl.float16), a)
    else:
        a = tl.dot(x, first, input_precision="ieee" if PRECISION == "ieee" else "tf32x3")
    return tl.maximum(a, 0.0)


@triton.jit
def _place(rows, block, row_sample, batch, longest, SAMPLES: tl.constexpr):
    """Where the rows' sequences begin; past the batch, somewhere harmless."""
    sample = block * SAMPLES + row_sample
    return tl.load(rows + sample, mask=sample < batch, other=0).to(tl.int32) * longest


@triton.jit(do_not_specialize=("samples", "batch", "longest"))
def pool_forward(
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
        # The next tile is on its way while this one is worked on, the rows of the one after it too.
        coming = _tokens(data, line + within, LANES, FEATURES, PRECISION)
        after = _place(rows, block + 2 * parts, row_sample, batch, longest, SAMPLES)
        a = _hidden(x, first, SLOTS, PRECISION)
        score = tl.where(own & (t < length)[None, :], _fine_dot(u, tl.trans(a), PRECISION), float("-inf"))
        top = tl.max(score, 1)
        mixed, total = _mixed(tl.exp2(score - top[:, None]), a, PRECISION)
        if not SINGLE:
            base = _place(rows, block, row_sample, batch, longest, SAMPLES)
            for start in range(TOKENS, length, TOKENS):
                x = _tokens(data, base + tl.minimum(start + t, longest - 1), LANES, FEATURES, PRECISION)
                a = _hidden(x, first, SLOTS, PRECISION)
                score = _fine_dot(u, tl.trans(a), PRECISION)
                score = tl.where(own & (start + t < length)[None, :], score, float("-inf"))
                higher = tl.maximum(top, tl.max(score, 1))
                shrink = tl.exp2(top - higher)
                more, weights = _mixed(tl.exp2(score - higher[:, None]), a, PRECISION)
                mixed, total, top = mixed * shrink[:, None] + more, total * shrink + weights, higher
        mask = (head < heads) & (block * SAMPLES + column_sample < batch)
        place = (block * SAMPLES + column_sample) * heads + head
        normaliser = 1.0 / total
        tl.store(pooled + place[:, None] * width + n[None, :], mixed * normaliser[:, None], mask=mask[:, None] & wide)
        tl.store(level + place, top, mask=mask)  # not top + log2(total): a logarithm is thirty instructions
        tl.store(inverse + place, normaliser, mask=mask)
        x, line = coming, after


@triton.jit
def _slopes(
    slope, level, delta, block, column_sample, head, batch, heads, width, SAMPLES: tl.constexpr, WIDTH: tl.constexpr
):
    """Slopes, the softmaxes' tops and <slope, pooled> of a tile; no weight and no slope past the batch."""
    n = tl.arange(0, WIDTH)
    mask = (head < heads) & (block * SAMPLES + column_sample < batch)
    place = (block * SAMPLES + column_sample) * heads + head
    g = slope + place[:, None] * width + n[None, :]
    g = tl.load(g, mask=mask[:, None] & (n < width)[None, :], other=0.0)
    return g, tl.load(level + place, mask=mask, other=float("inf")), tl.load(delta + place, mask=mask, other=0.0)


@triton.jit
def _tile_backward(x, first, u, scaled, g, top, mean, own, SLOTS: tl.constexpr, PRECISION: tl.constexpr):
    a = _hidden(x, first, SLOTS, PRECISION)
    score = _fine_dot(scaled, tl.trans(a), PRECISION)
    p = tl.where(own, tl.exp2(score - top[:, None]), 0.0)
    ds = p * (_dot(g, tl.trans(a), PRECISION) - mean[:, None])
    da = tl.where(a > 0.0, _dot(tl.trans(p), g, PRECISION) + _dot(tl.trans(ds), u, PRECISION), 0.0)
    return _dot(tl.trans(x), da, PRECISION), _dot(ds, a, PRECISION)


@triton.jit(do_not_specialize=("samples", "batch", "longest", "size_parts", "size_rows"))
def pool_backward(
    data, which, rows, lengths, weight, bias, directions, level, slope, delta, sizes,
    d_weight, d_bias, d_directions,
    size_parts, size_rows, weight_row, bias_row, samples, batch, longest, heads, width,
    FEATURES: tl.constexpr, LANES: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr, HEADS: tl.constexpr,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr, SINGLE: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    """Gradients of W1, b1 and the directions from `slope` and `delta` = <slope, pooled>.

    A softmax's weights are p / S, with p <= 1 recomputed from its top and S their sum; slope = (1/S) dL/dpooled brings
    the 1/S along. With sums over the tokens of one sample:
    dp = <slope, a>, ds = p (dp - delta), da = sum_h p slope + ds u, du = sum ds a, d[W1, b1] = sum relu'(a) da [x, 1].
    Slopes may be far below float16's smallest number, so they come divided by `sizes`, one for `size_rows` samples.
    """
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
        mask = own & (t < length)[None, :]
        more_first, more_u = _tile_backward(x, first, u, scaled, g, top, mean, mask, SLOTS, PRECISION)
        if not SINGLE:
            base = _place(rows, block, row_sample, batch, longest, SAMPLES)
            for start in range(TOKENS, length, TOKENS):
                x = _tokens(data, base + tl.minimum(start + t, longest - 1), LANES, FEATURES, PRECISION)
                mask = own & (start + t < length)[None, :]
                one, two = _tile_backward(x, first, u, scaled, g, top, mean, mask, SLOTS, PRECISION)
                more_first += one
                more_u += two
        d_first += more_first * size
        d_u += more_u * size
        x, line, g, top, mean = coming, after, next_g, next_top, next_mean
    base = model * parts + part
    f = tl.arange(0, SLOTS)
    by_feature = tl.sum(tl.reshape(d_first, (LANES // SLOTS, SLOTS, WIDTH)), 0)
    out = d_weight + (base * width + n)[None, :] * FEATURES + f[:, None]
    tl.store(out, by_feature, mask=wide & (f < FEATURES)[:, None])
    b = tl.sum(tl.where((f == FEATURES)[:, None], by_feature, 0.0), 0)
    tl.store(d_bias + base * width + n, b, mask=n < width)
    by_head = tl.sum(tl.reshape(d_u, (SAMPLES, HEADS, WIDTH)), 0)
    j = tl.arange(0, HEADS)
    out = d_directions + (base * heads + j)[:, None] * width + n[None, :]
    tl.store(out, by_head, mask=(j < heads)[:, None] & wide)
