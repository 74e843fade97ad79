"""Where attention saturates: the Jacobian of a softmax row, exactly and by the published bound."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.refusals import at_least_one
from headcount.results import Bound
from headcount.sources import Source, implements

STEPS = 60  # halvings of an interval inside [0, 1]: past float64


def jacobian_norm(p: Float[Tensor, "*rows length"]) -> Float[Tensor, "*rows"]:
    """The spectral norm of diag(p) - p p', the Jacobian of a softmax row by its logits, for every row.

    The largest eigenvalue x lies between the two largest weights and solves sum_i p_i^2 / (p_i - x) = 1, whose
    left side rises from minus to plus infinity there; halving finds it. No matrix is formed.

    >>> jacobian_norm(torch.tensor([0.5, 0.5]))
    tensor(0.5000)
    >>> jacobian_norm(torch.tensor([1.0, 0.0, 0.0]))
    tensor(0.)
    """
    wide = p.double()
    if p.shape[-1] < 2:
        return torch.zeros_like(p[..., 0])
    top = wide.topk(2, dim=-1).values
    high, low = top[..., 0], top[..., 1]
    first, second = high, low
    for _ in range(STEPS):
        middle = (low + high) / 2
        apart = wide - middle[..., None]
        apart = torch.where(apart == 0, torch.finfo(torch.float64).tiny, apart)
        above = (wide.square() / apart).sum(-1) > 1
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    norm = torch.where(first == second, first, (low + high) / 2)
    # One weight alone: p1 -> 1 and the rest -> 0, where the equation degenerates and J vanishes.
    return torch.where(second <= 0, torch.zeros_like(norm), norm).to(p.dtype)


def half_range(logits: Float[Tensor, "*rows length"]) -> Float[Tensor, "*rows"]:
    """The smallest Lambda with |z_i - c| <= Lambda for some constant c, which softmax does not see."""
    there = torch.isfinite(logits)
    high = logits.masked_fill(~there, -math.inf).amax(-1)
    low = logits.masked_fill(~there, math.inf).amin(-1)
    return (high - low) / 2


@implements(
    Source("yu2025allocation", "Theorem 5.1"),
    test="tests/test_allocation_saturation.py::test_the_jacobian_is_below_the_largest_weight_and_the_published_bound",
    status="proved here",
    hypotheses=("logits within Lambda of a constant",),
)
def row_bound(half: float, length: int) -> Bound:
    """The Jacobian of a row of `length` weights whose logits stay within Lambda is at most e^(2 Lambda) / length.

    Source: Yu et al. 2025 (allocation), Theorem 5.1, which states O(1/length) for bounded logits.
    Departs: the constant is worked out; the bound is marked as saying nothing where it exceeds 1/2, the norm no row
    can exceed: so unbounded logits are reported, not passed over.

    >>> print(row_bound(1.0, 64))
    norm of a row's Jacobian <= 0.115455, by Theorem 5.1 of ... (allocation), if logits within 1 of a constant
    >>> row_bound(3.0, 64).vacuous
    True
    """
    # p_i = e^{z_i} / sum_j e^{z_j} <= e^Lambda / (length e^-Lambda); and 0 <= diag(p) - p p' <= diag(p).
    # diag(p) - p p' is the covariance of a one-hot vector, so |J| = max over unit v of Var(v_i) <= (range of v)^2 / 4
    # <= 1/2, reached by p = (1/2, 1/2).
    at_least_one(length=length)
    if isinstance(half, bool) or not half >= 0:
        raise ValueError(f"Lambda must not be negative, got {half}")
    value = math.exp(min(2 * half, 700.0)) / length
    return Bound(
        "norm of a row's Jacobian",
        value,
        "upper",
        Source("yu2025allocation", "Theorem 5.1"),
        hypotheses=(f"logits within {half:.4g} of a constant",),
        vacuous=value >= 0.5,
        meaning="how much the weights of a row move when its logits move",
        sizes={"half_range": half, "length": length},
    )
