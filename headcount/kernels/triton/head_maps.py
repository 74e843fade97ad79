# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What touches every head of a member: its two maps of a wide network, and their gradients taken back to parameters.

A wide head is not folded into one matrix but left as two thin ones, with s = 1 / sqrt(head_dim):

    B = V W2,  b = V b2,  A = W_in O,  u = W2^T K^T q,  q = s Q cls;   its share of the read-out is  A (B pooled + b)

A program takes the heads of a member that fill `ROWS` rows of queries, keys and values, which lie one after another in
the member's row of parameters. So every product has 16 or 32 rows, and none is one of warp groups, which with few
columns can read beyond their shared memory (triton-lang/triton 7981 and 10629; reported for Triton 3.6 in 10573).
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.composition import _keep_vector, _sum_of_matrices, _sum_of_vectors, _vector
from headcount.kernels.triton.pooling import _dot


@triton.jit
def _scaled_dot(x, y, PRECISION: tl.constexpr):
    """x y for an x of any size, which float16 may not hold: it is brought to one before."""
    size = tl.maximum(tl.max(tl.abs(x)), 1e-30)
    return _dot(x * (1.0 / size), y, PRECISION) * size


@triton.jit
def _window(base, i, j, stride, rows, columns):
    """The entries (i, j) of a matrix stored by rows, zeros outside of it."""
    within = (i < rows)[:, None] & (j < columns)[None, :]
    return tl.load(base + i[:, None] * stride + j[None, :], mask=within, other=0.0)


@triton.jit
def _transposed(base, i, j, stride, rows, columns):
    """The entries (i, j) of the transpose of a matrix of `columns` rows."""
    within = (i < rows)[:, None] & (j < columns)[None, :]
    return tl.load(base + j[None, :] * stride + i[:, None], mask=within, other=0.0)


@triton.jit
def maps_forward(
    theta, scale, directions, before, after, still, asking, largest, shift,
    row, at_cls, at_outer, at_moved, at_query, at_key, at_value, at_output, at_inner, at_inner_bias,
    heads, head_dim, embed, width,
    GROUP: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """u, B, A^T, b and q of some heads, the largest |B|, and W_in cls + b_in of the member."""
    model, group, groups = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    theta += model * row
    r, n = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    head, lines = group * GROUP + r // head_dim, heads * head_dim
    line = tl.where(r < GROUP * head_dim, group * GROUP * head_dim + r, lines)
    keyed = tl.zeros((ROWS, WIDTH), tl.float32)
    b, a = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    q, s = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
    c = _vector(theta + at_inner_bias, width, WIDTH)
    for start in range(0, embed, CHUNK):
        e = start + tl.arange(0, CHUNK)
        outer = _window(theta + at_outer, e, n, width, embed, width)
        inner = _transposed(theta + at_inner, e, n, embed, embed, width)
        cls = tl.load(theta + at_cls + e, mask=e < embed, other=0.0)
        moved = tl.load(theta + at_moved + e, mask=e < embed, other=0.0)
        value = _window(theta + at_value, line, e, embed, lines, embed)
        keyed += _dot(_window(theta + at_key, line, e, embed, lines, embed), outer, PRECISION)
        b += _dot(value, outer, PRECISION)
        spot = (head * embed * head_dim + r % head_dim)[:, None] + e[None, :] * head_dim
        both = (line < lines)[:, None] & (e < embed)[None, :]
        a += _dot(tl.load(theta + at_output + spot, mask=both, other=0.0), inner, PRECISION)
        q += tl.sum(_window(theta + at_query, line, e, embed, lines, embed) * cls[None, :], 1)
        s += tl.sum(value * moved[None, :], 1)
        c += tl.sum(inner * cls[:, None], 0)
    q *= tl.load(scale + model)
    within = (line < lines)[:, None] & (n < width)[None, :]
    place = (model * lines + line)[:, None] * width + n[None, :]
    tl.store(before + place, b, mask=within)
    tl.store(after + place, a, mask=within)
    tl.store(still + model * lines + line, s, mask=line < lines)
    tl.store(asking + model * lines + line, q, mask=line < lines)
    tl.store(largest + model * groups + group, tl.max(tl.abs(b)))
    tl.store(shift + model * width + n, c, mask=n < tl.where(group == 0, width, 0))
    for g in range(GROUP):
        head_index = group * GROUP + g
        u = tl.sum(tl.where((head == head_index)[:, None], q[:, None] * keyed, 0.0), 0)
        tl.store(
            directions + (model * heads + head_index) * width + n, u, mask=n < tl.where(head_index < heads, width, 0)
        )


@triton.jit(do_not_specialize=("parts", "tail_parts"))
def maps_backward(
    theta, scale, gradient, asking, d_directions, d_before, d_after, d_still, asked, sum_before, sum_after, sum_still,
    d_asking,
    row, at_cls, at_outer, at_moved, at_query, at_key, at_value, at_output, at_inner,
    heads, head_dim, embed, width, parts, tail_parts,
    GROUP: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of Q, K, V and O of some heads from the programs' partial gradients, added up and kept.

    dV = dB W2^T + db b2^T,  dO = W_in^T dA,  dk = W2 du,  dK = q dk^T,  dq = K dk,  dQ = s dq cls^T.
    """
    model, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    theta += model * row
    gradient += model * row
    r, n = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    head, lines = group * GROUP + r // head_dim, heads * head_dim
    line = tl.where(r < GROUP * head_dim, group * GROUP * head_dim + r, lines)
    real, within = line < lines, (line < lines)[:, None] & (n < width)[None, :]
    d_b, d_a = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
    d_u, d_s = tl.zeros((ROWS, WIDTH), tl.float32), tl.zeros((ROWS,), tl.float32)
    for part in range(tail_parts):
        offset = (model * tail_parts + part) * lines
        place = (offset + line)[:, None] * width + n[None, :]
        d_b += tl.load(d_before + place, mask=within, other=0.0)
        d_a += tl.load(d_after + place, mask=within, other=0.0)
        d_s += tl.load(d_still + offset + line, mask=real, other=0.0)
    for part in range(parts):
        place = ((model * parts + part) * heads + head)[:, None] * width + n[None, :]
        d_u += tl.load(d_directions + place, mask=within, other=0.0)
    q = tl.load(asking + model * lines + line, mask=real, other=0.0)
    place = (model * lines + line)[:, None] * width + n[None, :]
    tl.store(sum_before + place, d_b, mask=within)
    tl.store(sum_after + place, d_a, mask=within)
    tl.store(asked + place, q[:, None] * d_u, mask=within)
    tl.store(sum_still + model * lines + line, d_s, mask=real)
    d_q = tl.zeros((ROWS,), tl.float32)
    for start in range(0, embed, CHUNK):
        e = start + tl.arange(0, CHUNK)
        outer = tl.trans(_window(theta + at_outer, e, n, width, embed, width))
        inner = _window(theta + at_inner, n, e, embed, width, embed)
        moved = tl.load(theta + at_moved + e, mask=e < embed, other=0.0)
        both = real[:, None] & (e < embed)[None, :]
        spot = line[:, None] * embed + e[None, :]
        d_value = _scaled_dot(d_b, outer, PRECISION) + d_s[:, None] * moved[None, :]
        tl.store(gradient + at_value + spot, d_value, mask=both)
        d_k = _scaled_dot(d_u, outer, PRECISION)
        tl.store(gradient + at_key + spot, q[:, None] * d_k, mask=both)
        d_q += tl.sum(tl.load(theta + at_key + spot, mask=both, other=0.0) * d_k, 1)
        transposed = (head * embed * head_dim + r % head_dim)[:, None] + e[None, :] * head_dim
        tl.store(gradient + at_output + transposed, _scaled_dot(d_a, inner, PRECISION), mask=both)
    d_q *= tl.load(scale + model)
    tl.store(d_asking + model * lines + line, d_q, mask=real)
    for start in range(0, embed, CHUNK):
        e = start + tl.arange(0, CHUNK)
        cls = tl.load(theta + at_cls + e, mask=e < embed, other=0.0)
        both = real[:, None] & (e < embed)[None, :]
        tl.store(gradient + at_query + line[:, None] * embed + e[None, :], d_q[:, None] * cls[None, :], mask=both)


@triton.jit
def _first_and_last(
    gradient, d_weight, d_bias, d_out_weight, d_out_bias, d_c, model, width, parts, tail_parts,
    at_weight, at_bias, at_inner_bias, at_out_weight, at_out_bias,
    FEATURES: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The partial gradients of what no map stands before, added up: the first layer and the read-out's last."""
    i, j = tl.arange(0, WIDTH)[:, None], tl.arange(0, LANES)[None, :]
    weight = d_weight + model * parts * width * FEATURES
    weight = _sum_of_matrices(weight, width * FEATURES, parts, width, FEATURES, WIDTH, LANES)
    tl.store(gradient + at_weight + i * FEATURES + j, weight, mask=(i < width) & (j < FEATURES))
    bias = _sum_of_vectors(d_bias + model * parts * width, width, parts, width, WIDTH)
    _keep_vector(gradient + at_bias, bias, width, WIDTH)
    out = _sum_of_vectors(d_out_weight + model * tail_parts * width, width, tail_parts, width, WIDTH)
    _keep_vector(gradient + at_out_weight, out, width, WIDTH)
    _keep_vector(gradient + at_inner_bias, d_c, width, WIDTH)
    last = tl.load(d_out_bias + model * tail_parts)
    for part in range(1, tail_parts):
        last += tl.load(d_out_bias + model * tail_parts + part)
    tl.store(gradient + at_out_bias, last)


@triton.jit(do_not_specialize=("parts", "tail_parts"))
def states_backward(
    theta, gradient, asked, sum_before, sum_after, sum_still, d_asking, d_shift,
    d_weight, d_bias, d_out_weight, d_out_bias,
    row, at_cls, at_outer, at_query, at_key, at_value, at_output, at_inner,
    at_moved, at_weight, at_bias, at_inner_bias, at_out_weight, at_out_bias,
    heads, head_dim, embed, width, parts, tail_parts,
    FEATURES: tl.constexpr, LANES: tl.constexpr,
    STATES: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of what all heads share, for `STATES` coordinates of the state; the first program adds the rest up.

    dW2 = sum_h V^T dB + K^T q du^T,  dW_in = sum_h dA O^T + dc cls^T,  db2 = sum_h V^T db,
    dcls = sum_h s Q^T dq + W_in^T dc.
    """
    model, part_of_state = tl.program_id(0).to(tl.int64), tl.program_id(1)
    theta += model * row
    gradient += model * row
    e, n = part_of_state * STATES + tl.arange(0, STATES), tl.arange(0, WIDTH)
    lines = heads * head_dim
    d_c = _sum_of_vectors(d_shift + model * tail_parts * width, width, tail_parts, width, WIDTH)
    inner = _transposed(theta + at_inner, e, n, embed, embed, width)
    cls = tl.load(theta + at_cls + e, mask=e < embed, other=0.0)
    d_inner, d_outer = cls[:, None] * d_c[None, :], tl.zeros((STATES, WIDTH), tl.float32)
    d_cls, d_moved = tl.sum(inner * d_c[None, :], 1), tl.zeros((STATES,), tl.float32)
    for start in range(0, lines, CHUNK):
        line = start + tl.arange(0, CHUNK)
        offset = model * lines
        value = _transposed(theta + at_value, e, line, embed, embed, lines)
        key = _transposed(theta + at_key, e, line, embed, embed, lines)
        query = _transposed(theta + at_query, e, line, embed, embed, lines)
        place = ((line // head_dim) * embed * head_dim + line % head_dim)[None, :] + e[:, None] * head_dim
        within = (e < embed)[:, None] & (line < lines)[None, :]
        output = tl.load(theta + at_output + place, mask=within, other=0.0)
        d_outer += _dot_scaled(value, _window(sum_before + offset * width, line, n, width, lines, width), PRECISION)
        d_outer += _dot_scaled(key, _window(asked + offset * width, line, n, width, lines, width), PRECISION)
        d_inner += _dot_scaled(output, _window(sum_after + offset * width, line, n, width, lines, width), PRECISION)
        d_s = tl.load(sum_still + offset + line, mask=line < lines, other=0.0)
        d_q = tl.load(d_asking + offset + line, mask=line < lines, other=0.0)
        d_moved += tl.sum(value * d_s[None, :], 1)
        d_cls += tl.sum(query * d_q[None, :], 1)
    within = (e < embed)[:, None] & (n < width)[None, :]
    tl.store(gradient + at_outer + e[:, None] * width + n[None, :], d_outer, mask=within)
    tl.store(gradient + at_inner + n[None, :] * embed + e[:, None], d_inner, mask=within)
    tl.store(gradient + at_moved + e, d_moved, mask=e < embed)
    tl.store(gradient + at_cls + e, d_cls, mask=e < embed)
    if part_of_state == 0:
        _first_and_last(
            gradient, d_weight, d_bias, d_out_weight, d_out_bias, d_c, model, width, parts, tail_parts,
            at_weight, at_bias, at_inner_bias, at_out_weight, at_out_bias, FEATURES, LANES, WIDTH,
        )  # fmt: skip


@triton.jit
def _dot_scaled(x, y, PRECISION: tl.constexpr):
    """x y for a y of any size."""
    size = tl.maximum(tl.max(tl.abs(y)), 1e-30)
    return _dot(x, y * (1.0 / size), PRECISION) * size
