"""Attention of a whole bank, written out: tokens attend to tokens, and the class token attends to them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Three = Float[Tensor, "models batch tokens 3 heads head_dim"]  # queries, scaled; keys; values
Mix = Callable[[Tensor, Tensor | None], Tensor]
Ask = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def written_out(
    three: Three, present: Bool[Tensor, "models ... tokens"] | None = None
) -> Float[Tensor, "models batch tokens heads head_dim"]:
    """softmax(q k^T) v, head by head. The scores lie in memory, the length squared of them."""
    q, k, v = (x.transpose(2, 3) for x in three.unbind(3))
    return (softmax(q @ k.mT, present) @ v).transpose(2, 3)


def attended(
    states: Float[Tensor, "models batch tokens embed"],
    directions: Float[Tensor, "models batch heads embed"],
    present: Bool[Tensor, "models ... tokens"] | None = None,
) -> Float[Tensor, "models batch heads embed"]:
    """sum_t softmax_t(<u_h, x_t>) x_t for every head's direction u_h."""
    return softmax(directions @ states.mT, present) @ states


def softmax(scores: Tensor, present: Tensor | None) -> Tensor:
    """Softmax over the tokens that exist: `present` is (models, length) or (models, batch, length)."""
    if present is not None:
        absent = ~present.view(*present.shape[:-1], *(1,) * (scores.ndim - present.ndim), -1)
        scores = scores.masked_fill(absent, -torch.inf)
    return torch.softmax(scores, dim=-1)
