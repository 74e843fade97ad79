"""The published law as a value: exponents to judge against, and rates from an anchor."""

from __future__ import annotations

from dataclasses import dataclass

from headcount.sources import Source


@dataclass(frozen=True)
class PublishedRates:
    """The law rate = scale * parameters^a * steps^b as the paper prints it.

    Source: Zhou et al. 2026 (learning rate), Equation 6, R^2 about 0.962.
    Departs: whether N counts all or active parameters, and D tokens or steps, could not be seen, and the scale belongs
    to one batch size; so rates are taken as ratios from a run whose best rate is known, never from the scale alone.

    >>> rate = PUBLISHED.rate(parameters=2000, steps=1000, anchor=(1000, 1000, 0.01))
    >>> round(rate, 6), round(PUBLISHED.rate(parameters=1000, steps=2000, anchor=(1000, 1000, 0.01)), 6)
    (0.008574, 0.007841)
    """

    parameters: float
    steps: float
    scale: float
    source: Source

    def rate(self, *, parameters: float, steps: float, anchor: tuple[float, float, float]) -> float:
        """The rate at these sizes, from `anchor`: the parameters, steps and best rate of a run that was tuned."""
        if min(parameters, steps, *anchor) <= 0:
            raise ValueError(f"sizes and the anchor must be positive, got {parameters}, {steps} and {anchor}")
        size, horizon, rate = anchor
        return rate * (parameters / size) ** self.parameters * (steps / horizon) ** self.steps


PUBLISHED = PublishedRates(-0.2219, -0.3509, 38.4588, Source("zhou2026lr", "Equation 6"))
