# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""The two ends of a decoder: letters and places looked up, and the logits, with their loss, straight back.

A member's row of parameters begins with its letters and then its places, so both are one table: a row of a tile reads
two of its rows, and their gradient is one product with a matrix of zeros and ones.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.tile_rows import (
    _columns,
    _factor,
    _keep_columns,
    _keep_numbers,
    _left_out,
    _normed,
    _numbers,
    _product,
    _row_places,
    _size,
    _through_norm,
)


@triton.jit
def _two(ids, offset, block, count, longest, vocab, ROWS: tl.constexpr, PLACES: tl.constexpr):
    """The rows of the table that a tile's rows read: the letter's, and the place's behind all letters."""
    r = block * ROWS + tl.arange(0, ROWS)
    letter = tl.load(ids + r, mask=r < count, other=0).to(tl.int32)
    place = letter
    if PLACES:
        place = vocab + r % longest + tl.load(offset + r // longest, mask=r < count, other=0).to(tl.int32)
    return letter, place


@triton.jit(do_not_specialize=("row", "count", "longest", "vocab"))
def letters_forward(
    theta, ids, offset, out, row, count, longest, vocab, embed,
    ROWS: tl.constexpr, EMBED: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """out = letter + place."""
    model, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    theta += model * row
    letter, place = _two(
        ids + model * count, offset + model * (count // longest), block, count, longest, vocab, ROWS, PLACES
    )
    e = tl.arange(0, EMBED)
    at, within = _row_places(block, count, embed, ROWS, ROWS, EMBED)
    x = tl.load(theta + letter[:, None] * embed + e[None, :], mask=within, other=0.0)
    if PLACES:
        x += tl.load(theta + place[:, None] * embed + e[None, :], mask=within, other=0.0)
    tl.store(out + model * count * embed + at, x, mask=within)


@triton.jit(do_not_specialize=("row", "share_step", "count", "longest", "vocab", "table"))
def letters_backward(
    ids, offset, slope, share, row, share_step, count, longest, vocab, table, embed,
    ROWS: tl.constexpr, EMBED: tl.constexpr, TABLE: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """`TABLE` rows of the table's gradient: the sum of the slopes of those who read them."""
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    begin = tl.program_id(2) * TABLE
    share += model * share_step + part * row
    slope += model * count * embed
    j = begin + tl.arange(0, TABLE)
    out = tl.zeros((TABLE, EMBED), tl.float32)
    for block in range(part, tl.cdiv(count, ROWS), parts):
        letter, place = _two(
            ids + model * count, offset + model * (count // longest), block, count, longest, vocab, ROWS, PLACES
        )
        at, within = _row_places(block, count, embed, ROWS, ROWS, EMBED)
        g = tl.load(slope + at, mask=within, other=0.0)
        size = _size(g)
        g = g * (1.0 / size)
        read = j[:, None] == letter[None, :]
        if PLACES:
            read = read | (j[:, None] == place[None, :])
        read = read.to(tl.float16)
        more = tl.dot(read, g.to(tl.float16))
        out += tl.dot(read, _left_out(g), more) * size
    e = tl.arange(0, EMBED)
    tl.store(share + j[:, None] * embed + e[None, :], out, mask=(j < table)[:, None] & (e < embed)[None, :])


@triton.jit(do_not_specialize=("row", "share_step", "at_scaling", "at_moving", "at_logits", "count", "vocab"))
def say(
    x, theta, targets, judged, counts, loss, d_x, share,
    row, share_step, at_scaling, at_moving, at_logits, count, vocab, embed,
    ROWS: tl.constexpr, EMBED: tl.constexpr, VOCAB: tl.constexpr, EPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The cross-entropy of the target letters, its mean over the judged places, and its gradients.

    With p = softmax(W norm(x)): the slope of the logits is (p - 1[target]) / (judged places), 0 where none is judged.
    """
    model, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    theta += model * row
    share += model * share_step + part * row
    x += model * count * embed
    d_x += model * count * embed
    targets += model * count
    judged += model * count
    weight, bias = _numbers(theta + at_scaling, embed, EMBED), _numbers(theta + at_moving, embed, EMBED)
    w = _factor(_columns(theta + at_logits, vocab, embed, VOCAB, EMBED), PRECISION)
    each = 1.0 / tl.maximum(tl.load(counts + model).to(tl.float32), 1.0)
    d_w, lost = tl.zeros((EMBED, VOCAB), tl.float32), 0.0
    d_weight, d_bias = tl.zeros((EMBED,), tl.float32), tl.zeros((EMBED,), tl.float32)
    letter = tl.arange(0, VOCAB)
    for block in range(part, tl.cdiv(count, ROWS), parts):
        at, within = _row_places(block, count, embed, ROWS, ROWS, EMBED)
        unit, rate, normed = _normed(tl.load(x + at, mask=within, other=0.0), weight, bias, embed, EPS, EMBED)
        normed = _factor(normed, PRECISION)
        logits = tl.where((letter < vocab)[None, :], _product(normed, w, PRECISION), -1e30)
        r = block * ROWS + tl.arange(0, ROWS)
        right = letter[None, :] == tl.load(targets + r, mask=r < count, other=0).to(tl.int32)[:, None]
        mask = tl.load(judged + r, mask=r < count, other=0).to(tl.float32)
        top = tl.max(logits, 1)
        p = tl.exp(logits - top[:, None])
        total = tl.sum(p, 1)
        log_p = tl.sum(tl.where(right, logits, 0.0), 1) - top - tl.log(total)
        lost -= tl.sum(log_p * mask, 0) * each
        g = (p * (1.0 / total)[:, None] - right.to(tl.float32)) * mask[:, None]
        g = _factor(g, PRECISION)
        d_w += _product(tl.trans(normed), g, PRECISION)
        dx = _product(g, tl.trans(w), PRECISION) * each
        d_weight += tl.sum(dx * unit, 0)
        d_bias += tl.sum(dx, 0)
        tl.store(d_x + at, _through_norm(dx, unit, rate, weight, embed), mask=within)
    _keep_columns(share + at_logits, vocab, embed, d_w * each, VOCAB, EMBED)
    _keep_numbers(share + at_scaling, d_weight, embed, EMBED)
    _keep_numbers(share + at_moving, d_bias, embed, EMBED)
    tl.store(loss + model * parts + part, lost)
