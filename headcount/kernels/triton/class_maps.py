# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""The class token's heads, folded: with s the scale, a head's query is cls -> s K^T Q cls and its
answer x -> O V x, two square matrices of the states' size for one member and one head."""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.tile_rows import _product, _size


@triton.jit
def _matrix(at, height, width, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    i, j = tl.arange(0, HEIGHT)[:, None], tl.arange(0, WIDTH)[None, :]
    return tl.load(at + i * width + j, mask=(i < height) & (j < width), other=0.0)


@triton.jit
def _keep_matrix(at, x, height, width, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    i, j = tl.arange(0, HEIGHT)[:, None], tl.arange(0, WIDTH)[None, :]
    tl.store(at + i * width + j, x, mask=(i < height) & (j < width))


@triton.jit(do_not_specialize=("row", "at_query", "at_key", "at_value", "at_output", "scale_row", "heads"))
def fold_forward(
    theta, scale, asks, says, row, at_query, at_key, at_value, at_output, scale_row, heads, dim, embed,
    EMBED: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """asks[h] = s K^T Q and says[h] = V^T O^T, (embed, embed) each."""
    model, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    theta += model * row
    at, offset = head * dim * embed, (model * heads + head) * embed * embed
    query, key = (
        _matrix(theta + at_query + at, dim, embed, DIM, EMBED),
        _matrix(theta + at_key + at, dim, embed, DIM, EMBED),
    )
    query = query * tl.load(scale + model * scale_row)
    _keep_matrix(asks + offset, _product(tl.trans(key), query, PRECISION), embed, embed, EMBED, EMBED)
    value, output = (
        _matrix(theta + at_value + at, dim, embed, DIM, EMBED),
        _matrix(theta + at_output + at, embed, dim, EMBED, DIM),
    )
    _keep_matrix(says + offset, _product(tl.trans(value), tl.trans(output), PRECISION), embed, embed, EMBED, EMBED)


@triton.jit(
    do_not_specialize=("row", "share_step", "at_query", "at_key", "at_value", "at_output", "scale_row", "heads")
)
def fold_backward(
    theta, scale, d_asks, d_says, share, row, share_step, at_query, at_key, at_value, at_output, scale_row, heads, dim,
    embed, EMBED: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A head's gradients from those of its two folded matrices, written into a member's row."""
    model, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    theta += model * row
    share += model * share_step
    at, offset = head * dim * embed, (model * heads + head) * embed * embed
    sharp = tl.load(scale + model * scale_row)
    query, key = (
        _matrix(theta + at_query + at, dim, embed, DIM, EMBED),
        _matrix(theta + at_key + at, dim, embed, DIM, EMBED),
    )
    g = _matrix(d_asks + offset, embed, embed, EMBED, EMBED)
    size = _size(g)
    g = g / size
    size *= sharp
    _keep_matrix(share + at_key + at, _product(query, tl.trans(g), PRECISION) * size, dim, embed, DIM, EMBED)
    _keep_matrix(share + at_query + at, _product(key, g, PRECISION) * size, dim, embed, DIM, EMBED)
    value, output = (
        _matrix(theta + at_value + at, dim, embed, DIM, EMBED),
        _matrix(theta + at_output + at, embed, dim, EMBED, DIM),
    )
    g = _matrix(d_says + offset, embed, embed, EMBED, EMBED)
    size = _size(g)
    g = g / size
    _keep_matrix(
        share + at_value + at, _product(tl.trans(output), tl.trans(g), PRECISION) * size, dim, embed, DIM, EMBED
    )
    _keep_matrix(
        share + at_output + at, _product(tl.trans(g), tl.trans(value), PRECISION) * size, embed, dim, EMBED, DIM
    )


@triton.jit(do_not_specialize=("rows", "based"))
def through_map(
    x, matrix, base, out, rows, inputs, outputs, based,
    ROWS: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, TRANSPOSED: tl.constexpr, BASED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """out = base + x M for a tile of rows and outputs; M is (inputs, outputs), or (outputs, inputs) where `TRANSPOSED`;
    `based` rows of a member's base, 1 where all share it."""
    model, block, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    row, column = block * ROWS + tl.arange(0, ROWS), part * OUTPUTS + tl.arange(0, OUTPUTS)
    x += model * rows * inputs
    matrix += model * inputs * outputs
    real = (row < rows)[:, None] & (column < outputs)[None, :]
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for first in range(0, inputs, INPUTS):
        i = first + tl.arange(0, INPUTS)
        tile = tl.load(
            x + row[:, None] * inputs + i[None, :], mask=(row < rows)[:, None] & (i < inputs)[None, :], other=0.0
        )
        mask = (i < inputs)[:, None] & (column < outputs)[None, :]
        at = column[None, :] * inputs + i[:, None] if TRANSPOSED else i[:, None] * outputs + column[None, :]
        total += tl.dot(tile, tl.load(matrix + at, mask=mask, other=0.0), input_precision=PRECISION)
    if BASED:
        at = model * based * outputs + tl.where(based == 1, 0, row)[:, None] * outputs + column[None, :]
        total += tl.load(base + at, mask=real, other=0.0)
    tl.store(out + (model * rows + row)[:, None] * outputs + column[None, :], total, mask=real)
