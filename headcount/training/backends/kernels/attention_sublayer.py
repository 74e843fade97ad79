# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportPossiblyUnboundVariable=false
"""Attention with its residual, the heads of a chunk side by side: y = x + sum_h W_O,h softmax(q_h k_h^T) v_h.

A program takes one member, a chunk of its heads after the other, and of each every so-many-th tile of whole sequences,
whose rows make one matrix: a row hears a column of its own sequence, with `CAUSAL` none that comes later, with `NORM`
after a layer norm. Queries, keys and values of a chunk's heads are `CHUNK` columns: a head asks with the other heads'
columns set to zero, and of what comes back it keeps its own. So every product is as wide as the chunk, what they
share is read once, and the gradients of the chunk's four matrices stay in registers from tile to tile. Only the states
of members with more heads than one chunk are added up in memory.

A member's matrices are read where they lie in its row of parameters, and a program's share of their gradient is
written at the same places of a row of its own: no atomics, the same numbers every time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.training.backends.kernels.class_question import _asked_back, _heard
from headcount.training.backends.kernels.tile_rows import (
    _columns,
    _factor,
    _keep_columns,
    _keep_numbers,
    _normed,
    _numbers,
    _product,
    _row_places,
    _size,
    _through_norm,
)

__all__ = ["heads_backward", "heads_forward"]

NEVER = tl.constexpr(-1e30)  # finite: a row that hears nobody must not become NaN


@triton.jit
def _hears(length, longest, ROWS: tl.constexpr, CAUSAL: tl.constexpr):
    """Who hears whom in a tile of whole sequences."""
    r = tl.arange(0, ROWS)
    sample = r // longest
    t = r - sample * longest
    out = (sample[:, None] == sample[None, :]) & (t < length)[None, :]
    if CAUSAL:
        out = out & (t[None, :] <= t[:, None])
    return out


@triton.jit
def _weights(q, k, hears, PRECISION: tl.constexpr):
    """softmax(q k^T) over what a row hears."""
    scores = tl.where(hears, _product(q, tl.trans(k), PRECISION), NEVER)
    p = tl.exp(scores - tl.max(scores, 1)[:, None])
    return p * (1.0 / tl.sum(p, 1))[:, None]


@triton.jit
def _out_places(chunk, heads, embed, head_step, row_step, EMBED: tl.constexpr, CHUNK: tl.constexpr, DIM: tl.constexpr,
                TOGETHER: tl.constexpr):  # fmt: skip
    """Where W_O of a chunk's heads lies as (EMBED, CHUNK): head h, coordinate n of row e."""
    e, c = tl.arange(0, EMBED), tl.arange(0, CHUNK)
    head = c // DIM
    real = (head < TOGETHER) & (chunk * TOGETHER + head < heads)
    place = (chunk * TOGETHER + head) * head_step + c % DIM
    return e[:, None] * row_step + place[None, :], (e < embed)[:, None] & real[None, :]


@triton.jit(do_not_specialize=("batch", "longest", "heads", "chunks", "shared", "head_step", "row_step", "scale_row"))
def heads_forward(
    x, theta, scale, counts, lengths, directions, heard, out,
    row, at_query, at_key, at_value, at_output, at_scaling, at_moving, head_step, row_step, scale_row,
    batch, longest, heads, chunks, shared, embed,
    ROWS: tl.constexpr, EMBED: tl.constexpr, CHUNK: tl.constexpr, DIM: tl.constexpr, TOGETHER: tl.constexpr,
    ASKING: tl.constexpr, HEADS: tl.constexpr, ASK: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr,
    RAGGED: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """out = x + sum_h W_O,h softmax(q_h k_h^T) v_h, chunk by chunk of `TOGETHER` heads; `ASK`: the class token too."""
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    samples = ROWS // longest
    theta += model * row
    x += model * batch * longest * embed
    out += model * batch * longest * embed
    if ASK:
        directions += model * tl.where(shared != 0, 1, batch) * heads * embed
        heard += model * batch * heads * embed
    count, length, sharp = tl.load(counts + model * scale_row), longest, tl.load(scale + model * scale_row)
    if RAGGED:
        length = tl.load(lengths + model)
    if NORM:
        weight, bias = _numbers(theta + at_scaling, embed, EMBED), _numbers(theta + at_moving, embed, EMBED)
    hears, column = _hears(length, longest, ROWS, CAUSAL), tl.arange(0, CHUNK) // DIM
    for chunk in range(chunks):
        begin, tall = chunk * TOGETHER * DIM * embed, (heads - chunk * TOGETHER) * DIM
        tall = tl.minimum(tall, TOGETHER * DIM)
        wq = _factor(_columns(theta + at_query + begin, tall, embed, CHUNK, EMBED) * sharp, PRECISION)
        wk = _factor(_columns(theta + at_key + begin, tall, embed, CHUNK, EMBED), PRECISION)
        wv = _factor(_columns(theta + at_value + begin, tall, embed, CHUNK, EMBED), PRECISION)
        at, real = _out_places(chunk, heads, embed, head_step, row_step, EMBED, CHUNK, DIM, TOGETHER)
        wo = _factor(tl.load(theta + at_output + at, mask=real, other=0.0), PRECISION)
        here, first = tl.minimum(count - chunk * TOGETHER, TOGETHER), tl.where(chunk == 0, 1.0, 0.0)
        for block in range(part, tl.cdiv(batch, samples), parts):
            place, within = _row_places(block, batch * longest, embed, samples * longest, ROWS, EMBED)
            y = tl.load(x + place, mask=within, other=0.0)
            if NORM:
                _, _, normed = _normed(y, weight, bias, embed, EPS, EMBED)
                seen = _factor(normed, PRECISION)
            else:
                seen = _factor(y, PRECISION)
            if ASK:  # noqa: SIM102 # Triton: what is constant decides first
                if chunk == 0:
                    _heard(seen, directions, heard, block, batch, length, longest, heads, shared, embed, ROWS, ASKING,
                           HEADS, EMBED, PRECISION)  # fmt: skip
            y = first * y + tl.load(out + place, mask=within & (chunk > 0), other=0.0)
            q = _factor(_product(seen, wq, PRECISION), PRECISION)
            k = _factor(_product(seen, wk, PRECISION), PRECISION)
            v = _factor(_product(seen, wv, PRECISION), PRECISION)
            mixed = tl.zeros_like(q)
            for head in range(here):
                mine = (column == head).to(q.dtype)[None, :]
                p = _factor(_weights(q * mine, k, hears, PRECISION), PRECISION)
                mixed += _factor(_product(p, v, PRECISION), PRECISION) * mine
            tl.store(out + place, y + _product(mixed, tl.trans(wo), PRECISION), mask=within)
        tl.debug_barrier()  # the next chunk reads the states that this one wrote


@triton.jit(do_not_specialize=("batch", "longest", "heads", "chunks", "shared", "head_step", "row_step", "scale_row"))
def heads_backward(
    x, theta, scale, counts, lengths, directions, d_heard, slope, d_x, share, d_directions,
    row, share_step, at_query, at_key, at_value, at_output, at_scaling, at_moving, head_step, row_step, scale_row,
    batch, longest, heads, chunks, shared, embed,
    ROWS: tl.constexpr, EMBED: tl.constexpr, CHUNK: tl.constexpr, DIM: tl.constexpr, TOGETHER: tl.constexpr,
    ASKING: tl.constexpr, HEADS: tl.constexpr, ASK: tl.constexpr, NORM: tl.constexpr, EPS: tl.constexpr,
    RAGGED: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients from g = dL/dout, everything but `x` computed again; the parameters' in this program's `share`.

    With p a head's weights: do = W_O^T g, dv = p^T do, dp = do v^T, ds = p (dp - sum_t p dp), dq = ds k, dk = ds^T q,
    and x collects W_Q^T dq + W_K^T dk + W_V^T dv beside g. A tile's slopes are scaled to one size, and back at the end.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    samples = ROWS // longest
    theta += model * row
    share += model * share_step + part * row
    x += model * batch * longest * embed
    slope += model * batch * longest * embed
    d_x += model * batch * longest * embed
    if ASK:
        directions += model * tl.where(shared != 0, 1, batch) * heads * embed
        d_heard += model * batch * heads * embed
        d_directions += model * batch * heads * embed
    count, length, sharp = tl.load(counts + model * scale_row), longest, tl.load(scale + model * scale_row)
    if RAGGED:
        length = tl.load(lengths + model)
    if NORM:
        weight, bias = _numbers(theta + at_scaling, embed, EMBED), _numbers(theta + at_moving, embed, EMBED)
        d_weight, d_bias = tl.zeros((EMBED,), tl.float32), tl.zeros((EMBED,), tl.float32)
    hears, column = _hears(length, longest, ROWS, CAUSAL), tl.arange(0, CHUNK) // DIM
    for chunk in range(chunks):
        begin, tall = chunk * TOGETHER * DIM * embed, (heads - chunk * TOGETHER) * DIM
        tall = tl.minimum(tall, TOGETHER * DIM)
        wq = _factor(_columns(theta + at_query + begin, tall, embed, CHUNK, EMBED) * sharp, PRECISION)
        wk = _factor(_columns(theta + at_key + begin, tall, embed, CHUNK, EMBED), PRECISION)
        wv = _factor(_columns(theta + at_value + begin, tall, embed, CHUNK, EMBED), PRECISION)
        at, real = _out_places(chunk, heads, embed, head_step, row_step, EMBED, CHUNK, DIM, TOGETHER)
        wo = _factor(tl.load(theta + at_output + at, mask=real, other=0.0), PRECISION)
        d_wq, d_wk = tl.zeros((EMBED, CHUNK), tl.float32), tl.zeros((EMBED, CHUNK), tl.float32)
        d_wv, d_wo = tl.zeros((EMBED, CHUNK), tl.float32), tl.zeros((EMBED, CHUNK), tl.float32)
        here, first = tl.minimum(count - chunk * TOGETHER, TOGETHER), tl.where(chunk == 0, 1.0, 0.0)
        for block in range(part, tl.cdiv(batch, samples), parts):
            place, within = _row_places(block, batch * longest, embed, samples * longest, ROWS, EMBED)
            g = tl.load(slope + place, mask=within, other=0.0)
            size = _size(g)
            dy = _factor(g * (1.0 / size), PRECISION)
            seen = tl.load(x + place, mask=within, other=0.0)
            if NORM:
                unit, rate, seen = _normed(seen, weight, bias, embed, EPS, EMBED)
            seen = _factor(seen, PRECISION)
            g = first * g + tl.load(d_x + place, mask=within & (chunk > 0), other=0.0)
            if ASK:  # noqa: SIM102 # Triton: what is constant decides first
                if chunk == 0:
                    g += _asked_back(seen, directions, d_heard, d_directions, block, batch, length, longest, heads,
                                     shared, embed, ROWS, ASKING, HEADS, EMBED, PRECISION)  # fmt: skip
            q = _factor(_product(seen, wq, PRECISION), PRECISION)
            k = _factor(_product(seen, wk, PRECISION), PRECISION)
            v = _factor(_product(seen, wv, PRECISION), PRECISION)
            do = _factor(_product(dy, wo, PRECISION), PRECISION)
            mixed, dq, dk, dv = tl.zeros_like(q), tl.zeros_like(q), tl.zeros_like(q), tl.zeros_like(q)
            for head in range(here):
                mine = (column == head).to(q.dtype)[None, :]
                p = _weights(q * mine, k, hears, PRECISION)
                weights = _factor(p, PRECISION)
                mixed += _factor(_product(weights, v, PRECISION), PRECISION) * mine
                dv += _factor(_product(tl.trans(weights), do, PRECISION), PRECISION) * mine
                dp = _product(do * mine, tl.trans(v), PRECISION)
                ds = _factor(p * (dp - tl.sum(p * dp, 1)[:, None]), PRECISION)
                dq += _factor(_product(ds, k, PRECISION), PRECISION) * mine
                dk += _factor(_product(tl.trans(ds), q, PRECISION), PRECISION) * mine
            d_wo += _product(tl.trans(dy), mixed, PRECISION) * size
            turned = tl.trans(seen)
            d_wq += _product(turned, dq, PRECISION) * size
            d_wk += _product(turned, dk, PRECISION) * size
            d_wv += _product(turned, dv, PRECISION) * size
            dx = _product(dq, tl.trans(wq), PRECISION) + _product(dk, tl.trans(wk), PRECISION)
            dx = (dx + _product(dv, tl.trans(wv), PRECISION)) * size
            if NORM:
                d_weight += tl.sum(dx * unit, 0)
                d_bias += tl.sum(dx, 0)
                dx = _through_norm(dx, unit, rate, weight, embed)
            tl.store(d_x + place, g + dx, mask=within)
        _keep_columns(share + at_query + begin, tall, embed, d_wq * sharp, CHUNK, EMBED)
        _keep_columns(share + at_key + begin, tall, embed, d_wk, CHUNK, EMBED)
        _keep_columns(share + at_value + begin, tall, embed, d_wv, CHUNK, EMBED)
        tl.store(share + at_output + at, d_wo, mask=real)
        tl.debug_barrier()  # the next chunk reads the slopes that this one wrote
    if NORM:
        _keep_numbers(share + at_scaling, d_weight, embed, EMBED)
        _keep_numbers(share + at_moving, d_bias, embed, EMBED)
