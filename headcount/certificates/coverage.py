"""How much of a task a promise covers: the share of the task's own samples that lie in the domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from headcount.certificates.domains import Domain, Drawn, drawable

WHOLE = 0.999  # from here on a domain counts as the task's own; below it the share is said first
NUMBERS = 4 * 10**7  # about so many are drawn: the more tokens, the fewer sequences


@dataclass(frozen=True)
class Coverage:
    """So many of the sequences drawn from the task lie in the domain.

    >>> Coverage(37, 100).share, str(Coverage(37, 100))
    (0.37, "37 of 100 of the task's own samples")
    """

    inside: int
    drawn: int
    seed: int = 0

    @property
    def share(self) -> float:
        return self.inside / self.drawn

    @property
    def whole(self) -> bool:
        """Whether the domain may be called the task's own."""
        return self.share >= WHOLE

    def __str__(self) -> str:
        return f"{self.inside} of {self.drawn} of the task's own samples"


def coverage_of(domain: Domain, task: Any, *, seed: int = 0) -> Coverage:
    """The share measured on fresh samples of the task, with a generator of its own.

    >>> from headcount.certificates import Box
    >>> from headcount.tasks import KthLargest
    >>> coverage_of(Box(4, 1, 0.0, 1.0), KthLargest(1, 4)).share
    1.0
    """
    count = max(1000, min(4000, NUMBERS // (domain.length * domain.token_dim * min(domain.length, 64))))
    if isinstance(domain, Drawn) and domain.task == task and drawable.dispatch(type(task)) is drawable.dispatch(object):
        return Coverage(count, count, seed)  # what the sampler draws, by definition
    generator = torch.Generator().manual_seed(seed)
    inside, left = 0, count
    while left:
        batch = min(left, max(1, 2_000_000 // (domain.length * domain.token_dim)))
        x = task.sample(batch, generator=generator, dtype=torch.float64)[0]
        inside, left = inside + int(domain.covers(x).sum()), left - batch
    return Coverage(inside, count, seed)
