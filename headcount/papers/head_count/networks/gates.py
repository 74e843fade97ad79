"""The position gate as a ReLU network of the position: two units around each boundary of a window, none elsewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.papers.head_count.networks.minima import Minima


def gate_places(minima: Minima) -> list[int]:
    """The positions t where some gate bends: p and p + 1 for a boundary between positions p and p + 1 (from 1)."""
    edges = {p for w in minima.windows for p in _edges(w, minima.length)}
    return sorted({q for p in edges for q in (p, p + 1)})


def gate_steps(minima: Minima, places: list[int]) -> tuple[Tensor, Tensor]:
    """Outside-indicator of each window as start + sum_p step_p relu(t - p), exact at whole t."""
    start = torch.tensor([0.0 if 0 in w else 1.0 for w in minima.windows], dtype=torch.float64)
    steps = torch.zeros(minima.count, len(places), dtype=torch.float64)
    at = {p: k for k, p in enumerate(places)}
    for i, w in enumerate(minima.windows):
        inside = set(w)
        for p in _edges(w, minima.length):
            leap = 1.0 if p - 1 in inside else -1.0  # position p (from 1) is index p - 1
            steps[i, at[p]] += leap
            steps[i, at[p + 1]] -= leap
    return start, steps


def _edges(window: tuple[int, ...], length: int) -> list[int]:
    inside = set(window)
    return [p for p in range(1, length) if (p - 1 in inside) != (p in inside)]
