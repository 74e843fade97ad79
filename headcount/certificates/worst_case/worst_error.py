"""`certify`: the worst error of a trained network over its whole domain, met from below and proved from above."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates.domains import Box
from headcount.certificates.worst_case.branching import Boxes, Leaves, Progress, SearchLimits, sorted_hull
from headcount.certificates.worst_case.error_bounds import Provable
from headcount.certificates.worst_case.error_mass import Mass, measured_share, shares_above
from headcount.certificates.worst_case.folded import fold, plain_net
from headcount.certificates.worst_case.layered_bounds import Layered
from headcount.certificates.worst_case.met_errors import ascend, errors_at, sampled_errors
from headcount.certificates.worst_case.proofs import prove
from headcount.certificates.worst_case.sloped_targets import SlopedTarget, sloped
from headcount.files import write_json
from headcount.notebook import AnswerInNotebook
from headcount.results.claim import Claim
from headcount.results.worst_record import WorstRecord, error_rows, worst_claim, worst_sentence
from headcount.tasks import Task

SAMPLES = 20_000
STARTS, STEPS = 64, 60  # of the plain attack
ROADS = {True: "slopes and ranges of boxes of all tokens", False: "ranges of boxes of all tokens, layer by layer"}


@dataclass(frozen=True, eq=False)
class Worst(AnswerInNotebook):
    """The largest |network - target| over a box: at least `lower`, met at `where`; at most `upper`, by proof.

    `open` boxes are those that were not yet bounded by `ratio` times the largest error met when the budget was spent;
    `upper` holds for them too. `rms` and `sampled` are the root mean square and the largest of 20,000 uniform samples.
    """

    lower: float
    upper: float
    where: Float[Tensor, "length token_dim"]
    domain: Box
    ratio: float
    boxes: int
    open: int
    seconds: float
    rms: float
    sampled: float
    road: str
    arithmetic: str
    uniform: bool
    net: Provable = field(repr=False)
    target: SlopedTarget = field(repr=False)
    leaves: Boxes | None = field(default=None, repr=False)

    @property
    def closed(self) -> bool:
        """Whether the bound is within the ratio of what was met, everywhere."""
        return self.open == 0

    def mass(self, threshold: float, *, factor: float = 2.0, boxes: int = 500_000, samples: int = 100_000) -> Mass:
        """The share of the domain in which |error| exceeds a threshold: proved ends, and a measured interval."""
        if not self.uniform:
            raise ValueError("shares are bounded under uniform sampling; this task draws its tokens in another way")
        ends = self.domain.low, self.domain.high
        limit = torch.full((1,), threshold, dtype=torch.float64, device=self.net.device)
        low, high, looked = shares_above(self.net, self.target, *ends, limit, factor=factor, boxes=boxes)
        measured = measured_share(self.net, self.target, *ends, threshold, samples=samples)
        return Mass(threshold, float(low[0]), float(high[0]), measured, looked)

    @property
    def sentence(self) -> str:
        """What it comes to."""
        return worst_sentence(self)

    @property
    def rows(self) -> list[dict[str, str | float]]:
        """The errors side by side."""
        return error_rows(self, SAMPLES)

    def files(self, out: Path) -> list[Path]:
        """All of it in `worst.json`, the worst input too."""
        return [write_json(out / "worst.json", self.to_json())]

    def claim(self, subject: str = "the worst error of the network") -> Claim:
        """The upper end as a claim on the domain, with what was met from below."""
        return worst_claim(self, str(self.domain), subject)

    def __str__(self) -> str:
        return f"on {self.domain}, {self.sentence}"

    def __repr__(self) -> str:
        return f"Worst({self.lower:.4g} <= worst error <= {self.upper:.4g}, {self.domain}, open={self.open})"

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary; `where` is the input at which `lower` is met."""
        names = ("lower", "upper", "ratio", "boxes", "open", "seconds", "rms", "sampled", "road", "arithmetic")
        known = {name: getattr(self, name) for name in names}
        return known | {
            "closed": self.closed,
            "domain": {"low": self.domain.low, "high": self.domain.high},
            "where": self.where.tolist(),
        }

    def record(self, task: Task, net: nn.Module, *, seed: int = 0) -> WorstRecord:
        """What a page shows: also a plain attack from samples, and |error| on the way from a sample to the worst."""
        generator = torch.Generator().manual_seed(seed)
        x = self.domain.sample(STARTS, generator=generator).to(self.net.device)
        ends = self.domain.low, self.domain.high
        attacked = ascend(self.net, self.target, x[None], *ends, STEPS).error[0, 0]
        fraction = torch.linspace(0, 1, 101, dtype=torch.float64, device=x.device)[:, None, None]
        errors = errors_at(self.net, self.target, ((1 - fraction) * x[0] + fraction * self.where.to(x))[None])[0]
        plain, _, _ = plain_net(net)
        names = ("rms", "sampled", "lower", "upper", "ratio", "boxes", "open", "seconds", "road", "arithmetic")
        return WorstRecord(
            task=type(task).__name__,
            layers=plain.arch.name,
            length=task.length,
            low=self.domain.low,
            high=self.domain.high,
            attacked=float(attacked),
            where=tuple(map(tuple, self.where.tolist())),
            along=tuple(zip(fraction.flatten().tolist(), errors.tolist(), strict=True)),
            samples=SAMPLES,
            **{name: getattr(self, name) for name in names},
        )

    def starts(self, count: int = 64) -> Float[Tensor, "count length token_dim"]:
        """Where an attack should begin: the worst input, and the middles of the leaves with the largest bounds."""
        if self.leaves is None:
            return self.where[None]
        lo, hi = self.leaves.lo, self.leaves.hi
        if self.net.same_places and self.target.exchangeable:
            lo, hi = sorted_hull(lo, hi)
        first = self.leaves.upper.argsort(descending=True)[: count - 1]
        return torch.cat([self.where[None], ((lo + hi) / 2)[first].cpu()])


def certify(
    net: nn.Module,
    task: Task,
    *,
    ratio: float = 1.5,
    budget: float | SearchLimits = 60.0,
    domain: Box | None = None,
    device: torch.device | str = "cpu",
    leaves: int = 0,
    seed: int = 0,
    on_progress: Progress | None = None,
) -> Worst:
    """Bound |network - target| over the whole domain of a task, by branch and bound.

    `net` is a `Transformer`, or `TargetUnits` with the units of its target, which are then part of what is certified.
    The search ends when the bound is `ratio` times the largest error met, or when the `budget` (seconds, or
    `SearchLimits`) is spent, with what it has. `domain` is the task's own box where none is given. Up to `leaves` boxes
    are kept for `recheck_leaves`. One layer is bounded by slopes; deeper networks by ranges alone, sound and loose.

    >>> from headcount.nets import Architecture, Transformer
    >>> from headcount.tasks import Wells
    >>> net = Transformer(Architecture(layers=((1, 4),), width=8), token_dim=1, seed=0)
    >>> found = certify(net, Wells([[0.25]], length=3), ratio=1.1)
    >>> found.closed, found.lower <= found.upper <= 1.1 * found.lower
    (True, True)
    """
    start = time.perf_counter()
    plain, _, _ = plain_net(net)
    if plain.token_dim != task.token_dim:
        raise ValueError(f"the network takes tokens of dimension {plain.token_dim}, the task has {task.token_dim}")
    box = domain_of(task) if domain is None else domain
    if (box.length, box.token_dim) != (task.length, task.token_dim):
        raise ValueError(f"the domain holds {box.length} tokens of dimension {box.token_dim}, not the task's")
    one = plain.arch.depth == 1
    reach = max(abs(box.low), abs(box.high))
    provable: Any = fold([net], task.length, reach) if one else Layered.of_net(net, task.length)
    provable, target = provable.to(device), sloped([task]).to(device)
    stored_leaves = Leaves(leaves)
    budget = budget if isinstance(budget, SearchLimits) else SearchLimits(seconds=float(budget))
    proofs = prove(
        provable,
        target,
        box.low,
        box.high,
        ratio=ratio,
        budget=budget,
        leaves=stored_leaves,
        seed=seed,
        on_progress=on_progress,
    )
    x = box.sample(SAMPLES, generator=torch.Generator().manual_seed(seed)).to(device)
    rms, sampled = sampled_errors(provable, target, x)
    where = proofs.worst[0]
    met = float(proofs.lower[0]) if one else provable.surely(where, float(target.value(where[None, None])[0, 0]))
    return Worst(
        lower=met,
        upper=float(proofs.upper[0]),
        where=where.cpu(),
        domain=box,
        ratio=ratio,
        boxes=int(proofs.boxes[0]),
        open=int(proofs.open[0]),
        seconds=time.perf_counter() - start,
        rms=float(rms[0]),
        sampled=float(sampled[0]),
        road=ROADS[one],
        arithmetic="float64, with what its rounding can add counted in",
        uniform="uniformly" in task.domain,
        net=provable,
        target=target,
        leaves=stored_leaves.joined() if stored_leaves.whole and stored_leaves.parts else None,
    )


def domain_of(task: Task) -> Box:
    """The box of a task whose tokens lie in one.

    >>> from headcount.tasks import KthLargest
    >>> str(domain_of(KthLargest(rank=1, length=4)))
    'tokens in [0, 1]^1'
    """
    if task.domain.startswith(("tokens in [0,1]", "tokens in [0, 1]")):
        return Box(task.length, task.token_dim, 0.0, 1.0)
    raise ValueError(
        f"{type(task).__name__} has {task.domain}: say with `domain` on which box to certify, as from -3 to 3"
    )
