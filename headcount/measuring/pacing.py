"""A time that is kept: what is left of it, and what a bank takes, by the trial and by the banks trained since."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from math import inf

import torch

__all__ = ["Clock", "spread_out", "with_threads"]

WRITING = 0.06  # of the time given, kept for the page and for leaving; and
LEAST = 0.5  # seconds of it
RECENT = 4  # banks that tell how the machine is doing now


class Clock:
    """The time given in seconds (None: all there is), counted from `began`, and how much slower banks are than timed.

    >>> clock = Clock(100.0, began=0.0, now=lambda: 40.0)
    >>> clock.left, clock.fits(54.0), clock.fits(60.0)
    (60.0, True, False)
    >>> clock.took(estimate=1.0, seconds=2.0)  # somebody else began to use the machine
    >>> clock.fits(27.0), clock.fits(30.0)
    (True, False)
    """

    def __init__(
        self, budget: float | None, began: float | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.budget, self.now = budget, now
        self.began = now() if began is None else began
        self.reserve = 0.0 if budget is None else max(LEAST, WRITING * budget)
        self.recent: list[tuple[float, float]] = []

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return inf if self.budget is None else self.began + self.budget - self.now()

    @property
    def slower(self) -> float:
        """How many times their estimate the latest banks took."""
        estimated, real = (sum(pair[i] for pair in self.recent) for i in (0, 1))
        return real / estimated if estimated > 0 else 1.0

    def took(self, estimate: float, seconds: float) -> None:
        """Hear what a bank took."""
        self.recent = [*self.recent[1 - RECENT :], (estimate, seconds)]

    def fits(self, estimate: float) -> bool:
        """Whether a bank of this estimate is finished in time, as the machine is doing now."""
        return estimate * self.slower <= self.left - self.reserve


def spread_out(counts: tuple[int, ...]) -> tuple[int, ...]:
    """The counts in an order of which every beginning covers the range: both ends, then the middles of what is left.

    >>> spread_out((1, 2, 3, 4, 5, 6, 7, 8))
    (1, 8, 4, 2, 6, 3, 5, 7)
    """
    order = [0, len(counts) - 1] if len(counts) > 1 else [0]
    gaps = [(0, len(counts) - 1)]
    for low, high in gaps:  # grows as it is read: widest first, for halves come after their whole
        if high - low > 1:
            middle = (low + high) // 2
            order.append(middle)
            gaps += [(low, middle), (middle, high)]
    return tuple(counts[i] for i in order)


@contextlib.contextmanager
def with_threads(count: int | None = None) -> Iterator[None]:
    """Run with so many threads (None: as they are), and leave as many as there were."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
