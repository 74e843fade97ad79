# pyright: reportArgumentType=false, reportCallIssue=false, reportOperatorIssue=false
"""What touches every parameter: AdamW with its schedule, in one pass."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=("rise", "fall"))
def tick(step, now, rise, fall, LOG_BETA1: tl.constexpr, LOG_BETA2: tl.constexpr):
    """Count one step; what all members share of it: the schedule's share of the peak rate, 1 - beta1^t, 1 - beta2^t."""
    t = tl.load(step) + 1.0  # float64: 1 - beta^step cancels in float32
    tl.store(step, t)
    down = 0.5 * (1.0 + tl.cos(3.141592653589793 * tl.maximum(t - rise, 0.0) / fall))
    tl.store(now, tl.minimum(t / rise, down).to(tl.float32))
    tl.store(now + 1, (1.0 - tl.exp(t * LOG_BETA1)).to(tl.float32))
    tl.store(now + 2, (1.0 - tl.exp(t * LOG_BETA2)).to(tl.float32))


@triton.jit
def adamw(
    theta, gradient, first, second, lr, decay, active, now, parameters,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One AdamW update of one member's parameters, `now` from `tick`; a frozen member stays in place."""
    model = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < parameters
    at = model * parameters + i
    rate = tl.load(lr + model) * tl.load(now)
    unbias1, unbias2 = tl.load(now + 1), tl.load(now + 2)
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
