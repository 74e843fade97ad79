"""Which way a bank is computed: plain or collapsed, step by step or recorded, chosen by device and shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.training.forward import Forward, collapsed, plain
from headcount.training.member import Member

__all__ = ["Path", "choose", "eager", "recorded", "reference"]

Step = Callable[[], None]
Record = Callable[[Step, Sequence[Tensor]], Step]


@dataclass(frozen=True)
class Path:
    """A forward pass and a way to repeat a step; every path computes the same numbers up to rounding."""

    name: str
    forward: Forward
    record: Record


def choose(members: Sequence[Member], device: torch.device | str) -> Path:
    """The fastest path for these members on this device."""
    return recorded if torch.device(device).type == "cuda" else eager


def as_it_is(step: Step, state: Sequence[Tensor]) -> Step:
    """Do not record: run the step as it is."""
    return step


def graph(step: Step, state: Sequence[Tensor]) -> Step:
    """Record the step once as a CUDA graph and replay it.

    Warming up and recording run the step, which changes `state`; it is put back, so that replay 1 is step 1.
    """
    kept = [t.detach().clone() for t in state]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    recording = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recording):
        step()
    for t, before in zip(state, kept, strict=True):
        t.detach().copy_(before)
    return recording.replay


reference = Path("plain batched products", plain, as_it_is)
eager = Path("collapsed", collapsed, as_it_is)
recorded = Path("collapsed, CUDA graph", collapsed, graph)
