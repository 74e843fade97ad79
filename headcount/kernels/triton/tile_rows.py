# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What the sublayers' kernels share: tiles of rows, a member's matrices where they lie in its row, layer norms."""

from __future__ import annotations

import triton
import triton.language as tl

# Slopes are scaled to this size: far above float16's smallest number after a softmax over a hundred tokens, and still
# a thousandfold below its largest.
HIGH = tl.constexpr(16.0)


@triton.jit
def _columns(at, height, width, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """The transpose of a matrix stored by rows of `width`: (WIDTH, HEIGHT), zeros beyond."""
    i, j = tl.arange(0, HEIGHT), tl.arange(0, WIDTH)
    return tl.load(at + i[None, :] * width + j[:, None], mask=(i < height)[None, :] & (j < width)[:, None], other=0.0)


@triton.jit
def _keep_columns(at, height, width, x, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    i, j = tl.arange(0, HEIGHT), tl.arange(0, WIDTH)
    tl.store(at + i[None, :] * width + j[:, None], x, mask=(i < height)[None, :] & (j < width)[:, None])


@triton.jit
def _numbers(at, count, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    return tl.load(at + i, mask=i < count, other=0.0)


@triton.jit
def _keep_numbers(at, x, count, COUNT: tl.constexpr):
    i = tl.arange(0, COUNT)
    tl.store(at + i, x, mask=i < count)


@triton.jit
def _left_out(x):
    """What rounding to float16 leaves out."""
    return (x - x.to(tl.float16).to(tl.float32)).to(tl.float16)


@triton.jit
def _product(x, y, PRECISION: tl.constexpr):
    """x y with float32 sums; under "half" both factors are float16 already, under "fine" they are two float16 each."""
    if PRECISION == "half":
        out = tl.dot(x, y)
    elif PRECISION == "fine":
        high, low = x.to(tl.float16), y.to(tl.float16)
        out = tl.dot(high, low)
        out = tl.dot(high, _left_out(y), out)
        out = tl.dot(_left_out(x), low, out)
    else:
        out = tl.dot(x, y, input_precision=PRECISION)
    return out


@triton.jit
def _factor(x, PRECISION: tl.constexpr):
    """As a factor of products."""
    if PRECISION == "half":
        x = x.to(tl.float16)
    return x


@triton.jit
def _size(g):
    """What brings slopes to the size `HIGH`; float16 holds none that are much smaller."""
    return tl.maximum(tl.max(tl.max(tl.abs(g), 1), 0), 1e-30) / HIGH


@triton.jit
def _row_places(block, rows, width, taken, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Where a tile's rows lie in (rows, width), `taken` of them in a tile, and which elements exist."""
    r, e = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    at = block * taken + r
    return at[:, None] * width + e[None, :], ((r < taken) & (at < rows))[:, None] & (e < width)[None, :]


@triton.jit
def _normed(x, weight, bias, embed, EPS: tl.constexpr, EMBED: tl.constexpr):
    """The rows at mean 0 and variance 1, one over their deviation, and the first with weight and bias."""
    real = (tl.arange(0, EMBED) < embed)[None, :]
    centred = tl.where(real, x - (tl.sum(x, 1) / embed)[:, None], 0.0)
    rate = tl.rsqrt(tl.sum(centred * centred, 1) / embed + EPS)
    unit = centred * rate[:, None]
    return unit, rate, unit * weight[None, :] + bias[None, :]


@triton.jit
def _through_norm(slope, unit, rate, weight, embed):
    """From the slope of a norm's output to that of its input."""
    inner = slope * weight[None, :]
    level = tl.sum(inner, 1) / embed
    along = tl.sum(inner * unit, 1) / embed
    return (inner - level[:, None] - unit * along[:, None]) * rate[:, None]
