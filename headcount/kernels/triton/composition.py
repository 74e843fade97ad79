# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What touches every member: fold its linear maps into what the other kernels read, and unfold their gradients.

For head h, with s = 1 / sqrt(head_dim):  q = s Q cls,  k = K^T q,  u = W2^T k;  and with A = W_in O, B = V W2,
b = V b2:  C = A B,  c = b_in + W_in cls + sum_h A b.  The member's row of parameters is read, and of gradients
written, in place.
"""

from __future__ import annotations

import triton
import triton.language as tl

from headcount.kernels.triton.pooling import _dot


@triton.jit
def _matrix(base, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A (rows, columns) matrix stored by rows, padded with zeros."""
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    return tl.load(base + i * columns + j, mask=(i < rows) & (j < columns), other=0.0)


@triton.jit
def _keep(base, x, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    tl.store(base + i * columns + j, x, mask=(i < rows) & (j < columns))


@triton.jit
def _vector(base, count, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    return tl.load(base + i, mask=i < count, other=0.0)


@triton.jit
def _keep_vector(base, x, count, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(base + i, x, mask=i < count)


@triton.jit
def _sum_of_matrices(base, step, parts, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The programs' partial gradients, added in order."""
    out = _matrix(base, rows, columns, ROWS, COLUMNS)
    for part in range(1, parts):
        out += _matrix(base + part * step, rows, columns, ROWS, COLUMNS)
    return out


@triton.jit
def _sum_of_vectors(base, step, parts, count, COUNT: tl.constexpr):
    out = _vector(base, count, COUNT)
    for part in range(1, parts):
        out += _vector(base + part * step, count, COUNT)
    return out


@triton.jit
def compose_forward(
    theta, scale, directions, mix, shift,
    row, at_cls, at_outer, at_moved, at_query, at_key, at_value, at_output, at_inner, at_inner_bias,
    heads, head_dim, embed, width,
    EMBED: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """directions (heads, width), mix (heads, width, width) and shift (width) of one member."""
    model = tl.program_id(0).to(tl.int64)
    theta += model * row
    cls = _vector(theta + at_cls, embed, EMBED)
    outer, moved = _matrix(theta + at_outer, embed, width, EMBED, WIDTH), _vector(theta + at_moved, embed, EMBED)
    inner = _matrix(theta + at_inner, width, embed, WIDTH, EMBED)
    out = _vector(theta + at_inner_bias, width, WIDTH) + tl.sum(inner * cls[None, :], 1)
    for h in range(heads):
        place = h * head_dim * embed
        query = _matrix(theta + at_query + place, head_dim, embed, DIM, EMBED)
        key = _matrix(theta + at_key + place, head_dim, embed, DIM, EMBED)
        value = _matrix(theta + at_value + place, head_dim, embed, DIM, EMBED)
        output = _matrix(theta + at_output + place, embed, head_dim, EMBED, DIM)
        q = tl.sum(query * cls[None, :], 1) * tl.load(scale + model)
        k = tl.sum(key * q[:, None], 0)
        _keep_vector(directions + (model * heads + h) * width, tl.sum(outer * k[:, None], 0), width, WIDTH)
        after = tl.dot(inner, output, input_precision=PRECISION)
        before = tl.dot(value, outer, input_precision=PRECISION)
        folded = tl.dot(after, before, input_precision=PRECISION)
        _keep(mix + (model * heads + h) * width * width, folded, width, width, WIDTH, WIDTH)
        still = tl.sum(value * moved[None, :], 1)
        out += tl.sum(after * still[None, :], 1)
    _keep_vector(shift + model * width, out, width, WIDTH)


@triton.jit(do_not_specialize=("parts", "tail_parts"))
def compose_backward(
    theta, scale, gradient, d_directions, d_mix, d_shift, d_weight, d_bias, d_out_weight, d_out_bias,
    row, at_cls, at_outer, at_moved, at_query, at_key, at_value, at_output, at_inner, at_inner_bias,
    at_weight, at_bias, at_out_weight, at_out_bias,
    heads, head_dim, embed, width, parts, tail_parts,
    FEATURES: tl.constexpr, LANES: tl.constexpr,
    EMBED: tl.constexpr, WIDTH: tl.constexpr, DIM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One member's whole gradient: partial gradients added up and carried back through the composition."""
    model = tl.program_id(0).to(tl.int64)
    theta += model * row
    gradient += model * row
    d_weight += model * parts * width * FEATURES
    _keep(
        gradient + at_weight, _sum_of_matrices(d_weight, width * FEATURES, parts, width, FEATURES, WIDTH, LANES),
        width, FEATURES, WIDTH, LANES,
    )  # fmt: skip
    d_b = _sum_of_vectors(d_bias + model * parts * width, width, parts, width, WIDTH)
    _keep_vector(gradient + at_bias, d_b, width, WIDTH)
    d_w = _sum_of_vectors(d_out_weight + model * tail_parts * width, width, tail_parts, width, WIDTH)
    _keep_vector(gradient + at_out_weight, d_w, width, WIDTH)
    d_out = tl.load(d_out_bias + model * tail_parts)
    for part in range(1, tail_parts):
        d_out += tl.load(d_out_bias + model * tail_parts + part)
    tl.store(gradient + at_out_bias, d_out)
    d_c = _sum_of_vectors(d_shift + model * tail_parts * width, width, tail_parts, width, WIDTH)
    _keep_vector(gradient + at_inner_bias, d_c, width, WIDTH)

    s = tl.load(scale + model)
    cls = _vector(theta + at_cls, embed, EMBED)
    outer, moved = _matrix(theta + at_outer, embed, width, EMBED, WIDTH), _vector(theta + at_moved, embed, EMBED)
    inner = _matrix(theta + at_inner, width, embed, WIDTH, EMBED)
    d_inner = d_c[:, None] * cls[None, :]
    d_cls = tl.sum(inner * d_c[:, None], 0)
    d_outer, d_moved = tl.zeros((EMBED, WIDTH), tl.float32), tl.zeros((EMBED,), tl.float32)
    for h in range(heads):
        place = h * head_dim * embed
        query = _matrix(theta + at_query + place, head_dim, embed, DIM, EMBED)
        key = _matrix(theta + at_key + place, head_dim, embed, DIM, EMBED)
        q = tl.sum(query * cls[None, :], 1) * s
        k = tl.sum(key * q[:, None], 0)
        d_u = d_directions + (model * parts * heads + h) * width
        d_u = _sum_of_vectors(d_u, heads * width, parts, width, WIDTH)
        d_outer += k[:, None] * d_u[None, :]
        d_k = tl.sum(outer * d_u[None, :], 1)
        d_q = tl.sum(key * d_k[None, :], 1) * s
        d_cls += tl.sum(query * d_q[:, None], 0)
        _keep(gradient + at_key + place, q[:, None] * d_k[None, :], head_dim, embed, DIM, EMBED)
        _keep(gradient + at_query + place, d_q[:, None] * cls[None, :], head_dim, embed, DIM, EMBED)

        value = _matrix(theta + at_value + place, head_dim, embed, DIM, EMBED)
        output = _matrix(theta + at_output + place, embed, head_dim, EMBED, DIM)
        after, before = _dot(inner, output, PRECISION), _dot(value, outer, PRECISION)
        still = tl.sum(value * moved[None, :], 1)
        d_m = d_mix + (model * tail_parts * heads + h) * width * width
        d_m = _sum_of_matrices(d_m, heads * width * width, tail_parts, width, width, WIDTH, WIDTH)
        size = tl.maximum(tl.maximum(tl.max(tl.abs(d_m)), tl.max(tl.abs(d_c))), 1e-30)  # so that float16 can hold them
        d_m *= 1.0 / size
        d_s = d_c * (1.0 / size)
        d_after = _dot(d_m, tl.trans(before), PRECISION) + d_s[:, None] * still[None, :]
        d_before = _dot(tl.trans(after), d_m, PRECISION)
        d_still = tl.sum(after * d_s[:, None], 0)
        d_inner += _dot(d_after, tl.trans(output), PRECISION) * size
        d_outer += _dot(tl.trans(value), d_before, PRECISION) * size
        d_moved += tl.sum(value * d_still[:, None], 0) * size
        d_value = _dot(d_before, tl.trans(outer), PRECISION) + d_still[:, None] * moved[None, :]
        _keep(gradient + at_value + place, d_value * size, head_dim, embed, DIM, EMBED)
        d_output = _dot(tl.trans(inner), d_after, PRECISION)
        _keep(gradient + at_output + place, d_output * size, embed, head_dim, EMBED, DIM)
    _keep(gradient + at_outer, d_outer, embed, width, EMBED, WIDTH)
    _keep(gradient + at_inner, d_inner, width, embed, WIDTH, EMBED)
    _keep_vector(gradient + at_moved, d_moved, embed, EMBED)
    _keep_vector(gradient + at_cls, d_cls, embed, EMBED)
