"""The time that a contest keeps to: looked at before every contestant, and while one is trained."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

WRITING = 0.04  # of the time given, kept for the page; and
LEAST_WRITING = 0.5  # seconds of it, on an idle machine
MOST_WRITING = 0.4  # of the time given, however busy the machine is
RECENT = 6  # contestants that tell how fast the machine is now


class OutOfTime(Exception):
    """The time is over in the middle of a training, which is given up."""


@dataclass
class Clock:
    """The time given in seconds (None: all there is), and how much slower than reckoned the latest contestants were.

    `used` counts the seconds that the processor gave to this process: a machine on which they pass more slowly than
    those of the wall is busy, and takes as many times longer for the page, and for what has not been timed yet.

    >>> clock = Clock(100.0, began=0.0, now=lambda: 40.0)
    >>> clock.fits(55.0), clock.fits(57.0)
    (True, False)
    >>> clock.took(reckoned=1.0, seconds=2.0)
    >>> clock.fits(30.0)
    False
    """

    budget: float | None
    began: float
    now: Callable[[], float] = time.monotonic
    used: Callable[[], float] | None = None
    recent: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start = (self.now(), self.used()) if self.used is not None else (0.0, 0.0)

    @property
    def busy(self) -> float:
        """Seconds of the wall for each that the processor gave: 1 on an idle machine."""
        if self.used is None:
            return 1.0
        wall, processor = self.now() - self._start[0], self.used() - self._start[1]
        return max(1.0, wall / max(processor, 1e-3)) if wall > LEAST_WRITING else 1.0

    def rested(self, seconds: float) -> None:
        """So long nothing was asked of this process: that the processor gave it nothing tells of no other work."""
        self._start = (self._start[0] + seconds, self._start[1])

    @property
    def left(self) -> float:
        """Seconds that are left, those for the page aside."""
        if self.budget is None:
            return math.inf
        writing = self.busy * max(LEAST_WRITING, WRITING * self.budget)
        return self.began + self.budget - self.now() - min(writing, MOST_WRITING * self.budget)

    def took(self, reckoned: float, seconds: float) -> None:
        """Hear what a contestant took."""
        self.recent = [*self.recent[1 - RECENT :], (reckoned, seconds)]

    def fits(self, seconds: float) -> bool:
        """Whether one more of this reckoning ends in time."""
        thought, real = (sum(pair[i] for pair in self.recent) for i in (0, 1))
        return seconds * (real / thought if thought else self.busy) <= self.left

    def look(self) -> None:
        """Give up where the time is over."""
        if self.left < 0:
            raise OutOfTime
