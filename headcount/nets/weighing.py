"""How scores become weights: softmax with an inverse temperature, or its limit. A part to pass, not a flag."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

Weighing = Callable[[Tensor], Tensor]


def softmax(beta: float = 1.0) -> Weighing:
    """Weights proportional to exp(beta * score).

    >>> softmax(beta=0.0)(torch.tensor([1.0, 2.0]))
    tensor([0.5000, 0.5000])
    """
    if not beta >= 0:
        raise ValueError(f"beta must be at least 0, got {beta}")
    return partial(_softmax, beta=beta)


def _softmax(scores: Tensor, beta: float) -> Tensor:
    return torch.softmax(beta * scores, dim=-1)


def hardmax(scores: Tensor) -> Tensor:
    """The limit of softmax as beta grows: equal weights on the largest scores, nothing elsewhere.

    >>> hardmax(torch.tensor([1.0, 3.0, 3.0]))
    tensor([0.0000, 0.5000, 0.5000])
    """
    top = (scores == scores.amax(dim=-1, keepdim=True)).to(scores.dtype)
    return top / top.sum(dim=-1, keepdim=True)


def hardmax_within(tolerance: float) -> Weighing:
    """Hardmax for scores that were rounded: a tie is what falls short of the largest by `tolerance` of its size.

    >>> hardmax_within(1e-9)(torch.tensor([1.0, 3.0, 3.0 - 1e-12], dtype=torch.float64))
    tensor([0.0000, 0.5000, 0.5000], dtype=torch.float64)
    """
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance must be at least 0 and below 1, got {tolerance}")
    return partial(_hardmax_within, tolerance=tolerance)


def _hardmax_within(scores: Tensor, tolerance: float) -> Tensor:
    largest = scores.amax(dim=-1, keepdim=True)
    top = (scores >= largest - tolerance * largest.abs()).to(scores.dtype)
    return top / top.sum(dim=-1, keepdim=True)
