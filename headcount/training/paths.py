"""Which way a bank is computed: plain, collapsed, compiled or recorded, chosen by device and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from headcount.training.forward import Forward, collapsed, plain
from headcount.training.member import Member

__all__ = ["Path", "choose", "eager", "recorded", "reference"]

Step = Callable[[], None]


@dataclass(frozen=True)
class Path:
    """A forward pass and a way to repeat a step; every path computes the same numbers up to rounding."""

    name: str
    forward: Forward
    record: Callable[[Step], Step]


def choose(members: Sequence[Member], device: torch.device | str) -> Path:
    """The fastest path for these members on this device."""
    return recorded if torch.device(device).type == "cuda" else eager


def _as_it_is(step: Step) -> Step:
    return step


def _graph(step: Step) -> Step:
    """Warm the step up on a side stream, then record it once and replay the recording.

    The three warm-up steps and the recording itself change the state they touch, so it is put back afterwards.
    """
    raise NotImplementedError


reference = Path("plain batched products", plain, _as_it_is)
eager = Path("collapsed", collapsed, _as_it_is)
recorded = Path("collapsed, CUDA graph", collapsed, _graph)
