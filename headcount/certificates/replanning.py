"""Room for rounding: a plan leaves to float64 what the plan before it asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headcount.certificates.certificate import Certificate

Network = TypeVar("Network")

LEAST = 1e-30  # no network of ours is exact to this, and squares of it are still numbers
TRIES = 12  # plans that are tried: each leaves to rounding what the one before it asked for


def with_rounding(
    eps: float, planned: Callable[[float], tuple[Network, Certificate]], *, first: float = 1e-3
) -> tuple[Network, Certificate]:
    """The first network whose certificate stays within eps: each plan leaves to rounding what the last one asked for.

    `planned` gives a network whose terms, rounding apart, add up to at most the budget it is called with. If a budget b
    with b + rounding(b) <= eps exists, and rounding grows as b falls, no budget tried is below the largest such b;
    so a larger eps is never refused where a smaller one is served (but for the number of tries).
    """
    if eps < LEAST:
        raise ValueError(f"eps {eps:g} is below what float64 can certify: one rounding of a number near 1 is 1.1e-16")
    budget, rounding = (1 - first) * eps, 0.0
    for _ in range(TRIES):
        net, certificate = planned(budget)
        if certificate.error <= eps:
            return net, certificate
        rounding = certificate["rounding"].value
        budget = eps - 1.02 * rounding
        if budget <= 0:
            break
    raise ValueError(f"eps {eps:g} is below what float64 can certify here: rounding alone may add {rounding:.2g}")
