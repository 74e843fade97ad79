# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What touches every parameter: AdamW with its schedule, in one pass."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["adamw"]


@triton.jit(do_not_specialize=("rise", "fall"))
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
