"""How the learning rate runs over the steps: a part of a recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headcount.refusals import nearest

SHAPES = ("cosine", "wsd", "trapezoid")


@dataclass(frozen=True)
class Schedule:
    """The share of the peak rate at every step: a linear warm-up, then a cosine to zero, or flat and then a line to it.

    `decay` is the share of the steps that a "wsd" schedule (warm-up, stable, decay) spends falling; a cosine has none.
    A "trapezoid" is the same a step later, so that its last step still moves.

    >>> [round(Schedule("wsd", 0.5).share(torch.tensor(s), 10, 0.2).item(), 3) for s in (1, 2, 5, 8, 10)]
    [0.5, 1.0, 1.0, 0.4, 0.0]
    """

    shape: str = "cosine"
    decay: float = 0.0

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise ValueError(f"no schedule {self.shape!r}; {nearest(self.shape, SHAPES)}")
        if self.shape == "cosine" and self.decay:
            raise ValueError(f"a cosine falls from its top on, so decay has no meaning, got {self.decay}")
        if self.shape != "cosine" and not 0 < self.decay <= 1:
            raise ValueError(f"decay is the share of steps spent falling, in (0, 1]; got {self.decay}")

    @property
    def name(self) -> str:
        """What a row says: cosine, or wsd with its share of decay.

        >>> warmup_stable_decay().name
        'wsd 0.2'
        """
        return self.shape if self.shape == "cosine" else f"{self.shape} {self.decay:g}"

    def share(self, step: Tensor, steps: int, warmup: float) -> Tensor:
        """The share of the peak rate at `step` (1, 2, ...) of `steps`."""
        rise = max(1, round(warmup * steps))
        up = step / rise
        if self.shape == "cosine":
            down = 0.5 * (1 + torch.cos(math.pi * (step - rise).clamp(min=0) / max(1, steps - rise)))
        else:
            down = (steps - step + (self.shape == "trapezoid")) / max(1, round(self.decay * steps))
        return torch.minimum(up, down).clamp(max=1.0)


def cosine() -> Schedule:
    """Linear warm-up, then a cosine down to zero: the schedule of a recipe that names none."""
    return COSINE


def warmup_stable_decay(decay: float = 0.2) -> Schedule:
    """Linear warm-up, the peak rate, and for the last share of the steps a line down to zero.

    >>> warmup_stable_decay(decay=0.1)
    Schedule(shape='wsd', decay=0.1)
    """
    return Schedule("wsd", decay)


def schedule_named(given: Any, where: str) -> Schedule:
    """The schedule that a spec names: "cosine", "wsd", or a table such as {shape = "wsd", decay = 0.1}.

    >>> schedule_named("wsd", "[training]")
    Schedule(shape='wsd', decay=0.2)
    """
    from headcount.frozen import decode

    if isinstance(given, dict):
        return decode(Schedule, given, f"schedule in {where}")
    if not isinstance(given, str):
        raise ValueError(f'schedule in {where} is "cosine" or "wsd", got {given!r}')
    return warmup_stable_decay() if given == "wsd" else Schedule(given)


COSINE = Schedule()
