"""Tokens asking tokens, for a whole bank: softmax attention written out, or in one kernel that keeps no scores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

__all__ = ["Mix", "in_one_kernel", "softmax", "written_out"]

Heads = Float[Tensor, "models batch heads tokens head_dim"]
Mix = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]

LAUNCH = 65535  # samples of one launch: the last axis of a CUDA grid
LANES = 4  # the kernel reads float32 by sixteen bytes, or falls back to one that keeps the scores


def written_out(q: Heads, k: Heads, v: Heads, present: Bool[Tensor, "models ... length"] | None = None) -> Heads:
    """softmax(q k^T) v, head by head; queries come scaled. The scores lie in memory, length squared of them."""
    return softmax(q @ k.mT, present) @ v


def in_one_kernel(q: Heads, k: Heads, v: Heads, present: Bool[Tensor, "models ... length"] | None = None) -> Heads:
    """The same without the scores ever lying in memory, forwards or backwards; written out where tokens are absent.

    >>> q, k, v = torch.randn(3, 2, 5, 3, 7, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(in_one_kernel(q, k, v), written_out(q, k, v))
    True
    """
    if present is not None:
        return written_out(q, k, v, present)
    short = -q.shape[-1] % LANES
    q, k, v = (pad(x, (0, short)) if short else x for x in (q, k, v))
    most = max(1, LAUNCH // q.shape[1])
    parts = zip(*(x.split(most) for x in (q, k, v)), strict=True)
    mixed = [scaled_dot_product_attention(*(x.flatten(0, 1) for x in part), scale=1.0) for part in parts]
    out = (mixed[0] if len(mixed) == 1 else torch.cat(mixed)).unflatten(0, q.shape[:2])
    return out[..., : out.shape[-1] - short]


def softmax(scores: Tensor, present: Tensor | None) -> Tensor:
    """Softmax over the tokens that exist: `present` is (models, length) or (models, batch, length)."""
    if present is not None:
        absent = ~present.view(*present.shape[:-1], *(1,) * (scores.ndim - present.ndim), -1)
        scores = scores.masked_fill(absent, -torch.inf)
    return torch.softmax(scores, dim=-1)
