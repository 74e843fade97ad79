# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportPossiblyUnboundVariable=false
"""A layer for the tokens: attention and its residual, in one program for a tile of samples, and where it is small the
feed-forward with its residual too (`FEED`); larger ones have a kernel of their own.

Queries, keys, values, scores and hidden activations live on the chip alone; only the residual stream goes to memory.
A program takes one member and every so-many-th tile of `SAMPLES` sequences by `TOKENS` positions, whose rows make one
matrix: a row hears a column when their samples agree. Gradients of the matrices are kept for each program and added
up afterwards in a fixed order: no atomics, the same numbers every time.

Where states are narrow (`COMPOSED`), a head is two matrices: with A_h = W_Q,h^T W_K,h and B_h = W_V,h^T W_O,h^T the
scores are x A_h x^T and what a head adds is p x B_h, four products instead of six and eleven instead of eighteen
backwards. Else it is four, with queries, keys and values as usual.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.training.backends.kernels.composition import _keep_vector, _vector
from headcount.training.backends.kernels.pooling import _fine_dot

__all__ = ["layer_backward", "layer_forward"]

# Slopes are scaled to this size: far above float16's smallest number after a softmax over a hundred tokens, and still
# a thousandfold below its largest.
HIGH = tl.constexpr(16.0)


@triton.jit
def _times(x, y, PRECISION: tl.constexpr):
    """x y with float32 sums; under "half" both factors are float16 already."""
    if PRECISION == "half":
        out = tl.dot(x, y)
    else:
        out = tl.dot(x, y, input_precision=PRECISION)
    return out


@triton.jit
def _rounded(x, PRECISION: tl.constexpr):
    """As a factor of products."""
    if PRECISION == "half":
        x = x.to(tl.float16)
    return x


@triton.jit
def _whole(at, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Where the elements of a padded matrix lie, aligned and without a hole."""
    i, j = tl.arange(0, HEIGHT), tl.arange(0, WIDTH)
    return at + i[:, None] * WIDTH + j[None, :]


@triton.jit
def _head(at, which: tl.constexpr, EMBED: tl.constexpr, DIM: tl.constexpr):
    """One of a head's matrices (query scaled, key, value, output; or A, B), (EMBED, DIM), padded with zeros."""
    return tl.load(_whole(at + which * EMBED * DIM, EMBED, DIM))


@triton.jit
def _add(at, x, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Add to this program's own share of a matrix's gradient."""
    place = _whole(at, HEIGHT, WIDTH)
    tl.store(place, tl.load(place) + x)


@triton.jit
def _add_head(at, which: tl.constexpr, x, EMBED: tl.constexpr, DIM: tl.constexpr):
    _add(at + which * EMBED * DIM, x, EMBED, DIM)


@triton.jit
def _weights(q, k, hears, PRECISION: tl.constexpr):
    """softmax(q k^T) over the tokens that a row hears; every row hears at least one."""
    scores = tl.where(hears, _times(q, tl.trans(k), PRECISION), float("-inf"))
    p = tl.exp(scores - tl.max(scores, 1)[:, None])
    return p * (1.0 / tl.sum(p, 1))[:, None]


@triton.jit
def _hears(block, batch, length, SAMPLES: tl.constexpr, TOKENS: tl.constexpr, CAUSAL: tl.constexpr):
    """Who hears whom in a tile. A row that is no token of any sample hears its sample's first: no row hears nobody."""
    r = tl.arange(0, SAMPLES * TOKENS)
    sample, t = r // TOKENS, r % TOKENS
    present = t < length
    if CAUSAL:
        out = present[None, :] & (t[None, :] <= t[:, None])
    else:
        out = present[None, :] & (t[:, None] >= 0)
    return out & (sample[:, None] == sample[None, :])


@triton.jit
def _places(block, batch, longest, embed, SAMPLES: tl.constexpr, TOKENS: tl.constexpr, EMBED: tl.constexpr):
    """Where a tile's rows lie in (batch, longest, embed), and which of them exist."""
    r, e = tl.arange(0, SAMPLES * TOKENS), tl.arange(0, EMBED)
    sample, t = block * SAMPLES + r // TOKENS, r % TOKENS
    within = (sample < batch) & (t < longest)
    return (sample * longest + t)[:, None] * embed + e[None, :], within[:, None] & (e < embed)[None, :]


@triton.jit
def _activation(y, w1, b1, FINE: tl.constexpr, PRECISION: tl.constexpr):
    """relu(W1 y + b1), to twice the products' bits where `FINE`: near zero they decide which units are awake."""
    if FINE and PRECISION == "half":
        a = _fine_dot(y.to(tl.float32), w1, "fine")
    else:
        a = _times(_rounded(y, PRECISION), _rounded(w1, PRECISION), PRECISION)
    return tl.maximum(a + b1[None, :], 0.0)


@triton.jit(do_not_specialize=("batch", "longest", "heads", "bias_row", "shift_row"))
def layer_forward(
    x, packed, counts, lengths, inner, bias, outer, shift, middle, out,
    bias_row, shift_row, batch, longest, heads, embed, hidden,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr, EMBED: tl.constexpr, DIM: tl.constexpr, HIDDEN: tl.constexpr,
    COMPOSED: tl.constexpr, RAGGED: tl.constexpr, CAUSAL: tl.constexpr, FINE: tl.constexpr, PRECISION: tl.constexpr,
    FEED: tl.constexpr,
):  # fmt: skip
    """middle = x + sum_h W_O,h softmax(q_h k_h^T) v_h, out = middle + W2 relu(W1 middle + b1) + b2, or middle."""
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    if FEED:
        w1 = tl.load(_whole(inner + model * EMBED * HIDDEN, EMBED, HIDDEN))
        w2 = tl.load(_whole(outer + model * EMBED * HIDDEN, HIDDEN, EMBED))
        b1, b2 = _vector(bias + model * bias_row, hidden, HIDDEN), _vector(shift + model * shift_row, embed, EMBED)
    packed += model * heads * (2 if COMPOSED else 4) * EMBED * DIM
    x += model * batch * longest * embed
    middle += model * batch * longest * embed
    out += model * batch * longest * embed
    count, length = tl.load(counts + model), longest
    if RAGGED:
        length = tl.load(lengths + model)
    for block in range(part, tl.cdiv(batch, SAMPLES), parts):
        place, within = _places(block, batch, longest, embed, SAMPLES, TOKENS, EMBED)
        hears = _hears(block, batch, length, SAMPLES, TOKENS, CAUSAL)
        y = tl.load(x + place, mask=within, other=0.0)
        seen = _rounded(y, PRECISION)
        for head in range(count):
            if COMPOSED:
                at = packed + head * 2 * EMBED * DIM
                asked = _rounded(_times(seen, _head(at, 0, EMBED, DIM), PRECISION), PRECISION)
                p = _rounded(_weights(asked, seen, hears, PRECISION), PRECISION)
                told = _rounded(_times(seen, _head(at, 1, EMBED, DIM), PRECISION), PRECISION)
                y += _times(p, told, PRECISION)
            else:
                at = packed + head * 4 * EMBED * DIM
                q = _rounded(_times(seen, _head(at, 0, EMBED, DIM), PRECISION), PRECISION)
                k = _rounded(_times(seen, _head(at, 1, EMBED, DIM), PRECISION), PRECISION)
                v = _rounded(_times(seen, _head(at, 2, EMBED, DIM), PRECISION), PRECISION)
                p = _rounded(_weights(q, k, hears, PRECISION), PRECISION)
                mixed = _rounded(_times(p, v, PRECISION), PRECISION)
                y += _times(mixed, tl.trans(_head(at, 3, EMBED, DIM)), PRECISION)
        if FEED:
            tl.store(middle + place, y.to(middle.dtype.element_ty), mask=within)
            a = _activation(y, w1, b1, FINE, PRECISION)
            y += _times(_rounded(a, PRECISION), w2, PRECISION) + b2[None, :]
        tl.store(out + place, y, mask=within)


@triton.jit(do_not_specialize=("batch", "longest", "heads", "bias_row"))
def layer_backward(
    x, packed, counts, lengths, inner, bias, outer, middle, slope, d_x,
    d_packed, d_inner, d_bias, d_outer, d_shift,
    bias_row, batch, longest, heads, embed, hidden,
    SAMPLES: tl.constexpr, TOKENS: tl.constexpr, EMBED: tl.constexpr, DIM: tl.constexpr, HIDDEN: tl.constexpr,
    COMPOSED: tl.constexpr, RAGGED: tl.constexpr, CAUSAL: tl.constexpr, FINE: tl.constexpr, PRECISION: tl.constexpr,
    FEED: tl.constexpr, MORE: tl.constexpr,
):  # fmt: skip
    """Gradients from g = dL/dout, everything but `x` and `middle` computed again.

    Through the feed-forward: da = relu'(a) W2^T g, dy = g + W1^T da. Through a head, with p its weights:
    do = W_O^T dy, dv = p^T do, dp = do v^T, ds = p (dp - sum_t p dp), dq = ds k, dk = ds^T q, and x collects
    W_Q^T dq + W_K^T dk + W_V^T dv beside dy; composed, dz = p^T dy, dp = dy z^T, dt = ds x with z = x B, t = x A, and x
    collects dz B^T + dt A^T + ds^T t. With `MORE`, `d_x` comes holding what else the states
    are asked for, and is added to.
    A tile's slopes are scaled to one size, as float16 holds none that are much smaller, and back at the end.
    A feed-forward that is part of this stays on the chip from tile to tile, its gradient too.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    here = model * parts + part
    if FEED:
        w1 = tl.load(_whole(inner + model * EMBED * HIDDEN, EMBED, HIDDEN))
        w2 = tl.load(_whole(outer + model * EMBED * HIDDEN, HIDDEN, EMBED))
        b1 = _vector(bias + model * bias_row, hidden, HIDDEN)
        d_w1, d_w2 = tl.zeros((EMBED, HIDDEN), tl.float32), tl.zeros((HIDDEN, EMBED), tl.float32)
        d_b1, d_b2 = tl.zeros((HIDDEN,), tl.float32), tl.zeros((EMBED,), tl.float32)
    packed += model * heads * (2 if COMPOSED else 4) * EMBED * DIM
    d_packed += here * heads * (2 if COMPOSED else 4) * EMBED * DIM
    x += model * batch * longest * embed
    middle += model * batch * longest * embed
    slope += model * batch * longest * embed
    d_x += model * batch * longest * embed
    count, length = tl.load(counts + model), longest
    if RAGGED:
        length = tl.load(lengths + model)
    for block in range(part, tl.cdiv(batch, SAMPLES), parts):
        place, within = _places(block, batch, longest, embed, SAMPLES, TOKENS, EMBED)
        hears = _hears(block, batch, length, SAMPLES, TOKENS, CAUSAL)
        g = tl.load(slope + place, mask=within, other=0.0)
        size = tl.maximum(tl.max(tl.max(tl.abs(g), 1), 0), 1e-30) / HIGH
        g = g / size
        dx = g
        if FEED:
            y = tl.load(middle + place, mask=within, other=0.0)
            a = _activation(y, w1, b1, FINE, PRECISION)
            rounded = _rounded(g, PRECISION)
            da = tl.where(a > 0.0, _times(rounded, tl.trans(w2), PRECISION), 0.0)
            d_b1 += tl.sum(da, 0) * size
            d_b2 += tl.sum(g, 0) * size
            da = _rounded(da, PRECISION)
            d_w1 += _times(tl.trans(_rounded(y, PRECISION)), da, PRECISION) * size
            d_w2 += _times(tl.trans(_rounded(a, PRECISION)), rounded, PRECISION) * size
            dx += _times(da, tl.trans(_rounded(w1, PRECISION)), PRECISION)
        dy = _rounded(dx, PRECISION)
        seen = _rounded(tl.load(x + place, mask=within, other=0.0), PRECISION)
        turned = tl.trans(seen)
        for head in range(count):
            if COMPOSED:
                at, to = packed + head * 2 * EMBED * DIM, d_packed + head * 2 * EMBED * DIM
                left, right = _head(at, 0, EMBED, DIM), _head(at, 1, EMBED, DIM)
                asked = _rounded(_times(seen, left, PRECISION), PRECISION)
                p = _weights(asked, seen, hears, PRECISION)
                told = _rounded(_times(seen, right, PRECISION), PRECISION)
                dp = _times(dy, tl.trans(told), PRECISION)
                d_told = _rounded(_times(tl.trans(_rounded(p, PRECISION)), dy, PRECISION), PRECISION)
                _add_head(to, 1, _times(turned, d_told, PRECISION) * size, EMBED, DIM)
                dx += _times(d_told, tl.trans(right), PRECISION)
                ds = _rounded(p * (dp - tl.sum(p * dp, 1)[:, None]), PRECISION)
                d_asked = _rounded(_times(ds, seen, PRECISION), PRECISION)
                dx += _times(tl.trans(ds), asked, PRECISION)
                _add_head(to, 0, _times(turned, d_asked, PRECISION) * size, EMBED, DIM)
                dx += _times(d_asked, tl.trans(left), PRECISION)
            else:
                at, to = packed + head * 4 * EMBED * DIM, d_packed + head * 4 * EMBED * DIM
                wq, wk, wv = _head(at, 0, EMBED, DIM), _head(at, 1, EMBED, DIM), _head(at, 2, EMBED, DIM)
                q = _rounded(_times(seen, wq, PRECISION), PRECISION)
                k = _rounded(_times(seen, wk, PRECISION), PRECISION)
                v = _rounded(_times(seen, wv, PRECISION), PRECISION)
                p = _weights(q, k, hears, PRECISION)
                weights = _rounded(p, PRECISION)
                mixed = _rounded(_times(weights, v, PRECISION), PRECISION)
                _add_head(to, 3, _times(tl.trans(dy), mixed, PRECISION) * size, EMBED, DIM)
                do = _rounded(_times(dy, _head(at, 3, EMBED, DIM), PRECISION), PRECISION)
                dv = _rounded(_times(tl.trans(weights), do, PRECISION), PRECISION)
                _add_head(to, 2, _times(turned, dv, PRECISION) * size, EMBED, DIM)
                dx += _times(dv, tl.trans(wv), PRECISION)
                dp = _times(do, tl.trans(v), PRECISION)
                ds = _rounded(p * (dp - tl.sum(p * dp, 1)[:, None]), PRECISION)
                dq = _rounded(_times(ds, k, PRECISION), PRECISION)
                _add_head(to, 0, _times(turned, dq, PRECISION) * size, EMBED, DIM)
                dx += _times(dq, tl.trans(wq), PRECISION)
                dk = _rounded(_times(tl.trans(ds), q, PRECISION), PRECISION)
                _add_head(to, 1, _times(turned, dk, PRECISION) * size, EMBED, DIM)
                dx += _times(dk, tl.trans(wk), PRECISION)
        dx *= size
        if MORE:
            dx += tl.load(d_x + place, mask=within, other=0.0)
        tl.store(d_x + place, dx, mask=within)
        tl.debug_barrier()  # the next tile reads the shares that this one wrote
    if FEED:
        tl.store(_whole(d_inner + here * EMBED * HIDDEN, EMBED, HIDDEN), d_w1)
        tl.store(_whole(d_outer + here * EMBED * HIDDEN, HIDDEN, EMBED), d_w2)
        _keep_vector(d_bias + here * hidden, d_b1, hidden, HIDDEN)
        _keep_vector(d_shift + here * embed, d_b2, embed, EMBED)
