"""What is measured and proved of a trained cell, as columns; and the check that no point lies beyond a proof."""

from __future__ import annotations

import time
from dataclasses import astuple, dataclass, replace

import torch
from torch import Tensor

from headcount.certificates.worst_case.branching import Leaves, SearchLimits, sorted_hull
from headcount.certificates.worst_case.error_mass import shares_above
from headcount.certificates.worst_case.folded import Folded, with_rounding
from headcount.certificates.worst_case.met_errors import ascend, errors_at, few_valued, sampled_errors
from headcount.certificates.worst_case.proofs import Proofs, prove
from headcount.certificates.worst_case.sloped_targets import SlopedTarget
from studies.worst.cells import CENTRES, Plan, StudyBank
from studies.worst.training_banks import TrainedCell

Columns = dict[str, list]
Sizes = dict[str, str | int | float]

SHARE = 10.0  # how often the root mean square an error is counted as large
MASS_UP_TO, MASS_MEMBERS, MASS_BOXES = 3, 8, 2_000_000  # lengths, members and boxes of proved shares
CHECK_BOXES, KEPT_LEAVES = 200_000, 4_000_000
STARTS, STEPS = 64, 60  # of the plain attack


def measured(part: TrainedCell, plan: Plan, bank: StudyBank, device: str, seconds: float) -> MeasuredCell:
    """One column a quantity, one entry a member; and what it took."""
    start = time.perf_counter()
    net, target, cell = part.net.to(device), part.target.to(device), part.cell
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(plan.samples, cell.length, cell.token_dim, generator=generator, dtype=torch.float64).to(device)
    rms, sampled = sampled_errors(net, target, x)
    attacked = ascend(net, target, x[:STARTS].expand(len(net), -1, -1, -1), 0.0, 1.0, STEPS).error[:, 0]
    columns: Columns = {
        "seed": list(cell.seeds),
        "nmse": [_short(v) for v in part.nmse],
        "rms": _column(rms),
        "sampled": _column(sampled),
        "attacked": _column(attacked),
        "constant": _column(_half_range(target, len(net), x)),
        "large_share": _column(_shares(net, target, x, SHARE * rms)),
    }
    looked = time.perf_counter()
    proofs = prove(net, target, 0.0, 1.0, ratio=bank.ratio, budget=SearchLimits(bank.boxes, seconds))
    columns |= proved_columns(proofs)
    proved = time.perf_counter()
    if cell.length <= MASS_UP_TO and cell.token_dim == 1 and cell.first == 0:
        few = slice(0, MASS_MEMBERS)
        low, high, _ = shares_above(net.of(few), target.of(few), 0.0, 1.0, SHARE * rms[few], boxes=MASS_BOXES)
        columns |= {"large_low": _column(low), "large_high": _column(high)}
    took = Took(looked - start + time.perf_counter() - proved, proofs.seconds)
    return MeasuredCell(columns, took, proofs.open > 0, proofs.compiled)


@dataclass(frozen=True)
class Took:
    """Seconds."""

    measuring: float
    proving: float
    training: float = 0.0

    def __add__(self, other: Took) -> Took:
        return Took(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, eq=False)
class MeasuredCell:
    """What was found of a cell's members, what it took, and which of their proofs are open."""

    columns: Columns
    took: Took
    open: Tensor
    compiled: bool


def proved_columns(found: Proofs) -> Columns:
    """What a proof says of every member."""
    return {
        "worst_lower": _column(found.lower, 12),
        "worst_upper": _column(found.upper, 12),
        "boxes": found.boxes.tolist(),
        "open": found.open.tolist(),
        "worst": [[_short(v) for v in w] for w in found.worst.flatten(1).tolist()],
    }


def sizes_of(part: TrainedCell, ratio: float) -> Sizes:
    """The sizes of a cell."""
    cell = part.cell
    names = ("length", "token_dim", "retrievals", "heads", "width", "variant", "decay")
    return {name: getattr(cell, name) for name in names} | {"ratio": ratio, "backend": part.backend}


def _half_range(target: SlopedTarget, models: int, x: Tensor) -> Tensor:
    """Half the range that a target was seen to have: the worst error of the best constant answer, from below."""
    planned = few_valued(x.shape[1], x.shape[2], 0.0, 1.0, generator=torch.Generator().manual_seed(0)).to(x)
    few = min(models, CENTRES)
    y = target.of(slice(0, few)).value(torch.cat([x, planned]).expand(few, -1, -1, -1))
    return ((y.amax(1) - y.amin(1)) / 2)[torch.arange(models, device=x.device) % few]


def _shares(net: Folded, target: SlopedTarget, x: Tensor, above: Tensor) -> Tensor:
    """The share of samples on which a member's error is larger than its own threshold."""
    each = [
        (errors_at(net.of(at), target.of(at), x[None]) > above[at, None]).double().mean(1)
        for at in torch.arange(len(net), device=x.device).split(1)
    ]
    return torch.cat(each)


def _column(values: Tensor, digits: int = 5) -> list[float]:
    return [_short(v, digits) for v in values.tolist()]


def _short(value: float, digits: int = 5) -> float:
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class Checked:
    """So many networks of a kind: how many proofs are open, the largest error over its bound, how many lie beyond."""

    networks: int
    open: int
    nearest: float
    beyond: int


def checked(part: TrainedCell, plan: Plan, device: str, seconds: float) -> dict[str, Checked]:
    """Trained networks, untrained ones and some with weights times 100, tried on many points that know the proof."""
    kinds = {"trained": part.net, "untrained": _untrained(part.net), "broken": _broken(part.net)}
    by_kind: dict[str, Checked] = {}
    for kind, net in kinds.items():
        net, target, leaves = net.to(device), part.target.to(device), Leaves(KEPT_LEAVES)
        budget = SearchLimits(CHECK_BOXES, seconds)
        proofs = prove(net, target, 0.0, 1.0, ratio=1.5, budget=budget, leaves=leaves)
        met = try_points(net, target, proofs, plan.checked, leaves)
        beyond = int((met > proofs.upper).sum())
        nearest = float((met / proofs.upper).max())
        by_kind[kind] = Checked(len(net), int((proofs.open > 0).sum()), nearest, beyond)
    return by_kind


WEIGHTS = ("W", "b", "S", "s0", "A", "a0", "c", "w", "w0")


def _untrained(net: Folded) -> Folded:
    """Networks of the same shape with weights drawn anew."""
    generator = torch.Generator().manual_seed(len(net))
    return _with(
        {n: torch.randn(getattr(net, n).shape, generator=generator, dtype=torch.float64) for n in WEIGHTS}, net
    )


def _broken(net: Folded) -> Folded:
    """The same networks with every weight times 100."""
    return _with({n: 100 * getattr(net, n) for n in WEIGHTS}, net)


def _with(weights: dict[str, Tensor], net: Folded) -> Folded:
    """Other weights, taken as exact, and what rounding may add to their bounds."""
    return with_rounding(replace(net, **weights), {n: torch.zeros_like(v) for n, v in weights.items()})


def try_points(
    net: Folded, target: SlopedTarget, proofs: Proofs, points: int, leaves: Leaves, at_once: int = 20_000
) -> Tensor:
    """The largest error over points drawn everywhere, around the worst point known, and in the worst leaves.

    Leaves are those with the largest bounds; where they were too many to be kept, the worst point stands for them.
    """
    generator = torch.Generator(device=net.W.device).manual_seed(2)
    starts = worst_leaves(proofs, leaves, net)
    met, shape = proofs.lower, (len(net), at_once // 4, net.length, net.token_dim)
    for _ in range(max(1, points // at_once)):
        drawn, size = (
            torch.rand(sizes, generator=generator, dtype=torch.float64, device=met.device)
            for sizes in ((len(net), at_once, *shape[2:]), (*shape[:2], 1, 1))
        )
        everywhere, near, inside = drawn.split((2 * shape[1], shape[1], shape[1]), 1)
        near = (proofs.worst[:, None] + 10.0 ** (-6 * size) * (2 * near - 1)).clamp(0, 1)
        at = torch.randint(starts.shape[2], shape[:2], generator=generator, device=met.device)
        lo, hi = (s.gather(1, at[:, :, None, None].expand(shape)) for s in starts)
        tried = torch.cat([everywhere, near, lo + (hi - lo) * inside], 1)
        met = torch.maximum(met, errors_at(net, target, tried).amax(1))
    return met


def worst_leaves(proofs: Proofs, leaves: Leaves, net: Folded) -> Tensor:
    """Both ends of the leaves with the largest bounds, (ends, models, few, length, token_dim)."""
    ends = proofs.worst[None, :, None].repeat(2, 1, STARTS, 1, 1)
    if not leaves.whole or not leaves.parts:
        return ends
    boxes = leaves.joined()
    for k in range(len(net)):
        of_member = boxes[boxes.member == k]
        first = of_member.upper.argsort(descending=True)[: STARTS - 1]
        lo, hi = of_member.lo[first], of_member.hi[first]
        lo, hi = sorted_hull(lo, hi)
        ends[0, k, : len(first)], ends[1, k, : len(first)] = lo, hi
    return ends
