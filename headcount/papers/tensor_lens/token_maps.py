"""From a slice of contributions to one number for each token: parts to pass to `Operator.tokens`."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

TokenMap = Callable[[Tensor, Tensor], Tensor]


def norm(contributions: Float[Tensor, "places length width"], output: Tensor) -> Float[Tensor, "places length"]:
    """|Ctr[i, j]|: how long each token's part is."""
    return contributions.norm(dim=-1)


def share(contributions: Float[Tensor, "places length width"], output: Tensor) -> Float[Tensor, "places length"]:
    """<Ctr[i, j], F_i> / |F_i|^2: with the constant's share they add up to 1."""
    return (contributions * output[:, None]).sum(-1) / output.square().sum(-1)[:, None]


def logit(direction: Float[Tensor, " width"]) -> TokenMap:
    """<Ctr[i, j], u>: what each token adds to one read-out."""
    return lambda contributions, output: contributions @ direction
