"""How much of a domain has a large error: volumes of boxes on which it surely is, or surely is not."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.worst_case.branching import Boxes, bounds_of, chunk_of
from headcount.certificates.worst_case.compiled_bounds import CompiledBounds
from headcount.certificates.worst_case.error_bounds import Provable
from headcount.certificates.worst_case.met_errors import errors_at
from headcount.certificates.worst_case.sloped_targets import SlopedTarget
from headcount.results.verdicts import PROVED


@dataclass(frozen=True)
class Mass:
    """The share of a domain, under uniform sampling, in which |error| exceeds `threshold`.

    It lies between `low` and `high` by proof; `measured` is the 95% interval of a sample (Clopper and Pearson).
    """

    threshold: float
    low: float
    high: float
    measured: tuple[float, float]
    boxes: int

    @property
    def within(self) -> float:
        """The factor between the proved ends; 1 where both are zero, infinite where only one is."""
        return 1.0 if self.high == self.low else self.high / self.low if self.low else float("inf")

    def __str__(self) -> str:
        low, high = self.measured
        return (
            f"|error| > {self.threshold:.3g} on {self.low:.3g} to {self.high:.3g} of the domain ({PROVED}); "
            f"{low:.3g} to {high:.3g} measured"
        )

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary, and the sentence."""
        ends = {"low": self.low, "high": self.high, "measured": self.measured}
        return {"above": self.threshold, **ends, "said": str(self)}


@torch.no_grad()
def shares_above(
    net: Provable,
    target: SlopedTarget,
    low: float,
    high: float,
    threshold: Float[Tensor, " models"],
    *,
    factor: float = 2.0,
    boxes: int = 500_000,
) -> tuple[Float[Tensor, " models"], Float[Tensor, " models"], int]:
    """Proved ends of the share in which each member's |error| exceeds its threshold, and the boxes it took.

    The largest undecided boxes are cut first, until the ends are within `factor` for everyone or so many boxes of a
    member were looked at. A box that is decided is decided for all of its volume, so both ends hold at any time.
    """
    models, shape = len(net), (len(net), net.length, net.token_dim)
    device = net.device
    above, below = (
        torch.zeros(models, dtype=torch.float64, device=device),
        torch.zeros(models, dtype=torch.float64, device=device),
    )
    looked = torch.zeros(models, dtype=torch.int64, device=device)
    lo, hi = (torch.full(shape, v, dtype=torch.float64, device=device) for v in (low, high))
    domain = Boxes(torch.arange(models, device=device), lo, hi, torch.full_like(above, torch.inf))
    compiled = CompiledBounds.of(net, target, low, high)
    queue, chunk = deque([domain]), chunk_of(net, compiled)
    while queue:
        taken = queue.popleft()
        if len(taken) > chunk:
            queue.appendleft(taken[chunk:])
            taken = taken[:chunk]
        open_ = (1 - below > factor * above) & (looked < boxes)
        taken = taken[open_[taken.member]]
        if not len(taken):
            continue
        looked += torch.bincount(taken.member, minlength=models)
        bounds = bounds_of(net, target, taken.member, taken.lo, taken.hi, compiled)
        volume = ((taken.hi - taken.lo) / (high - low)).flatten(1).prod(1)
        limit = threshold[taken.member]
        over, under = bounds.least[0] > limit, bounds.upper[0] <= limit
        above.scatter_add_(0, taken.member, volume * over)
        below.scatter_add_(0, taken.member, volume * under)
        rest = ~(over | under)
        if bool(rest.any()):
            queue.append(taken[rest].halves(bounds.guilt[0][rest]))
    rounding = 1e-12  # of some millions of additions of numbers of one sign
    ends = (above * (1 - rounding), ((1 - below) * (1 + rounding) + rounding * (below > 0)).clamp(0, 1))
    return (*ends, int(looked.sum()))


def measured_share(
    net: Provable,
    target: SlopedTarget,
    low: float,
    high: float,
    threshold: float,
    *,
    samples: int = 100_000,
    seed: int = 0,
) -> tuple[float, float]:
    """The 95% interval of the share of uniform samples on which the first member's |error| exceeds a threshold."""
    from scipy.stats import beta

    generator = torch.Generator().manual_seed(seed)
    hits = 0
    for part in torch.arange(samples).split(10_000):
        x = torch.rand((len(part), net.length, net.token_dim), generator=generator, dtype=torch.float64)
        error = errors_at(net.of(slice(0, 1)), target.of(slice(0, 1)), (low + (high - low) * x)[None].to(net.device))
        hits += int((error > threshold).sum())
    ends = beta.ppf(0.025, hits, samples - hits + 1), beta.ppf(0.975, hits + 1, samples - hits)
    return (0.0 if hits == 0 else float(ends[0]), 1.0 if hits == samples else float(ends[1]))
