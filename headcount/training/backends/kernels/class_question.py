# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""The class token's heads hearing a tile of whole sequences, by directions: sum_t softmax_t(<u_h, x_t>) x_t.

Rows are (sample, token), questions (sample, head): outside of their own sample weights are zero, so that scores, what
is heard and all gradients are plain products of a tile. By itself it is the last layer; in the layers before it is part
of their attention's kernel, which holds the same states.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.training.backends.kernels.tile_rows import _factor, _product, _row_places, _size

__all__ = ["question_backward", "question_forward"]

UNASKED = tl.constexpr(-1e30)


@triton.jit
def _questions(block, batch, longest, heads, shared, embed, ROWS: tl.constexpr, ASKING: tl.constexpr,
               HEADS: tl.constexpr, EMBED: tl.constexpr):  # fmt: skip
    """Where a tile's questions lie in (batch, heads, embed), or in (heads, embed) where all samples share them."""
    c, e = tl.arange(0, ASKING), tl.arange(0, EMBED)
    samples = ROWS // longest
    sample, head = c // HEADS, c % HEADS
    real = (head < heads) & (sample < samples) & (block * samples + sample < batch)
    row = tl.where(shared != 0, head, (block * samples + sample) * heads + head)
    return row[:, None] * embed + e[None, :], real[:, None] & (e < embed)[None, :]


@triton.jit
def _asked(seen, u, length, longest, ROWS: tl.constexpr, ASKING: tl.constexpr, HEADS: tl.constexpr,
           PRECISION: tl.constexpr):  # fmt: skip
    """softmax_t(<u, x_t>) over the tokens of each question's own sample, (ROWS, ASKING)."""
    r, c = tl.arange(0, ROWS), tl.arange(0, ASKING)
    sample = r // longest
    own = (sample[:, None] == (c // HEADS)[None, :]) & (r - sample * longest < length)[:, None]
    scores = tl.where(own, _product(seen, tl.trans(u), PRECISION), UNASKED)
    p = tl.where(own, tl.exp(scores - tl.max(scores, 0)[None, :]), 0.0)
    return p * (1.0 / tl.maximum(tl.sum(p, 0), 1e-30))[None, :]


@triton.jit
def _heard(seen, directions, heard, block, batch, length, longest, heads, shared, embed, ROWS: tl.constexpr,
           ASKING: tl.constexpr, HEADS: tl.constexpr, EMBED: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """What the class token's heads hear of a tile's states, written."""
    at, real = _questions(block, batch, longest, heads, shared, embed, ROWS, ASKING, HEADS, EMBED)
    u = _factor(tl.load(directions + at, mask=real, other=0.0), PRECISION)
    p = _factor(_asked(seen, u, length, longest, ROWS, ASKING, HEADS, PRECISION), PRECISION)
    at, real = _questions(block, batch, longest, heads, 0, embed, ROWS, ASKING, HEADS, EMBED)
    tl.store(heard + at, _product(tl.trans(p), seen, PRECISION), mask=real)


@triton.jit
def _asked_back(seen, directions, d_heard, d_directions, block, batch, length, longest, heads, shared, embed,
                ROWS: tl.constexpr, ASKING: tl.constexpr, HEADS: tl.constexpr, EMBED: tl.constexpr,
                PRECISION: tl.constexpr):  # fmt: skip
    """The states' slopes from those of what was heard; the directions' are written, for every sample.

    From g = dL/dheard: dp = <g, x_t>, ds = p (dp - sum p dp), dx_t = sum_h p_t g + ds_t u, du = sum_t ds_t x_t.
    """
    at, real = _questions(block, batch, longest, heads, shared, embed, ROWS, ASKING, HEADS, EMBED)
    u = _factor(tl.load(directions + at, mask=real, other=0.0), PRECISION)
    p = _asked(seen, u, length, longest, ROWS, ASKING, HEADS, PRECISION)
    at, real = _questions(block, batch, longest, heads, 0, embed, ROWS, ASKING, HEADS, EMBED)
    g = tl.load(d_heard + at, mask=real, other=0.0)
    size = _size(g)
    g = _factor(g * (1.0 / size), PRECISION)
    dp = _product(seen, tl.trans(g), PRECISION)
    ds = _factor(p * (dp - tl.sum(p * dp, 0)[None, :]), PRECISION)
    tl.store(d_directions + at, _product(tl.trans(ds), seen, PRECISION) * size, mask=real)
    return (_product(_factor(p, PRECISION), g, PRECISION) + _product(ds, u, PRECISION)) * size


@triton.jit(do_not_specialize=("batch", "longest", "heads", "shared"))
def question_forward(
    x, lengths, directions, heard, batch, longest, heads, shared, embed,
    ROWS: tl.constexpr, EMBED: tl.constexpr, ASKING: tl.constexpr, HEADS: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """heard_h = sum_t softmax_t(<u_h, x_t>) x_t, a tile of sequences for each program."""
    model, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x += model * batch * longest * embed
    directions += model * tl.where(shared != 0, 1, batch) * heads * embed
    heard += model * batch * heads * embed
    length = longest
    if RAGGED:
        length = tl.load(lengths + model)
    place, within = _row_places(block, batch * longest, embed, ROWS // longest * longest, ROWS, EMBED)
    seen = _factor(tl.load(x + place, mask=within, other=0.0), PRECISION)
    _heard(seen, directions, heard, block, batch, length, longest, heads, shared, embed, ROWS, ASKING, HEADS, EMBED,
           PRECISION)  # fmt: skip


@triton.jit(do_not_specialize=("batch", "longest", "heads", "shared"))
def question_backward(
    x, lengths, directions, d_heard, d_x, d_directions, batch, longest, heads, shared, embed,
    ROWS: tl.constexpr, EMBED: tl.constexpr, ASKING: tl.constexpr, HEADS: tl.constexpr, RAGGED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of states and directions from dL/dheard."""
    model, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x += model * batch * longest * embed
    d_x += model * batch * longest * embed
    directions += model * tl.where(shared != 0, 1, batch) * heads * embed
    d_heard += model * batch * heads * embed
    d_directions += model * batch * heads * embed
    length = longest
    if RAGGED:
        length = tl.load(lengths + model)
    place, within = _row_places(block, batch * longest, embed, ROWS // longest * longest, ROWS, EMBED)
    seen = _factor(tl.load(x + place, mask=within, other=0.0), PRECISION)
    dx = _asked_back(seen, directions, d_heard, d_directions, block, batch, length, longest, heads, shared, embed, ROWS,
                     ASKING, HEADS, EMBED, PRECISION)  # fmt: skip
    tl.store(d_x + place, dx, mask=within)
