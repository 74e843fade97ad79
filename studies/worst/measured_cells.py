"""What is measured and proved of a trained cell, as columns; and the check that no point lies beyond a proof."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headcount.certificates.worst_case.branching import SearchLimits
from headcount.certificates.worst_case.error_mass import shares_above
from headcount.certificates.worst_case.folded import Folded, with_rounding
from headcount.certificates.worst_case.met_errors import ascend, errors_at, few_valued, sampled_errors
from headcount.certificates.worst_case.proofs import Proofs, prove
from headcount.certificates.worst_case.sloped_targets import SlopedTarget
from studies.worst.cells import CENTRES, Plan, StudyBank
from studies.worst.training_banks import TrainedCell

__all__ = ["checked", "measured", "try_points"]

SHARE = 10.0  # how often the root mean square an error is counted as large
MASS_UP_TO, MASS_MEMBERS, MASS_BOXES = 3, 40, 60_000  # lengths, members and boxes of proved shares
CHECK_BOXES = 200_000
STARTS, STEPS = 64, 60  # of the plain attack


def measured(part: TrainedCell, plan: Plan, bank: StudyBank, device: str, seconds: float) -> dict[str, Any]:
    """One column a quantity, one entry a member; and what it took."""
    start = time.perf_counter()
    net, target, cell = part.net.to(device), part.target.to(device), part.cell
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(plan.samples, cell.length, cell.token_dim, generator=generator, dtype=torch.float64).to(device)
    rms, sampled = sampled_errors(net, target, x)
    attacked = ascend(net, target, x[:STARTS].expand(len(net), -1, -1, -1), 0.0, 1.0, STEPS).error[:, 0]
    looked = time.perf_counter()
    found = prove(net, target, 0.0, 1.0, ratio=bank.ratio, budget=SearchLimits(bank.boxes, seconds))
    columns = {
        "seed": [row["seed"] for row in part.rows],
        "nmse": [_short(row["nmse"]) for row in part.rows],
        "status": [row["status"] for row in part.rows],
        "rms": _column(rms),
        "sampled": _column(sampled),
        "attacked": _column(attacked),
        "worst_lower": _column(found.lower, 12),
        "worst_upper": _column(found.upper, 12),
        "boxes": found.boxes.tolist(),
        "open": found.open.tolist(),
        "constant": _column(_half_range(target, len(net), x)),
        "large_share": _column(_shares(net, target, x, SHARE * rms)),
        "worst": [[_short(v) for v in w] for w in found.worst.flatten(1).tolist()],
    }
    if cell.length <= MASS_UP_TO and cell.token_dim == 1:
        few = slice(0, MASS_MEMBERS)
        low, high, _ = shares_above(net.of(few), target.of(few), 0.0, 1.0, SHARE * rms[few], boxes=MASS_BOXES)
        columns |= {"large_low": _column(low), "large_high": _column(high)}
    took = {"measuring": looked - start, "proving": found.seconds, "device": device}
    return {**_sizes(part, bank.ratio), "took": took, "columns": columns}


def _sizes(part: TrainedCell, ratio: float) -> dict[str, Any]:
    cell = part.cell
    names = ("length", "token_dim", "retrievals", "heads", "width", "variant", "decay", "members")
    backend = part.rows[0].get("backend", "")
    return {name: getattr(cell, name) for name in names} | {"ratio": ratio, "backend": backend}


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


def checked(part: TrainedCell, plan: Plan, device: str, seconds: float) -> dict[str, Any]:
    """Trained networks, untrained ones and some with weights times 100, tried on many points that know the proof."""
    kinds = {"trained": part.net, "untrained": _untrained(part.net), "broken": _broken(part.net)}
    found: dict[str, Any] = {"name": part.cell.name, "points": plan.checked}
    for kind, net in kinds.items():
        net, target = net.to(device), part.target.to(device)
        proofs = prove(net, target, 0.0, 1.0, ratio=1.5, budget=SearchLimits(CHECK_BOXES, seconds))
        met = try_points(net, target, proofs, plan.checked)
        found[kind] = {
            "networks": len(net),
            "open": int((proofs.open > 0).sum()),
            "nearest": float((met / proofs.upper).max()),
            "beyond": int((met > proofs.upper).sum()),
        }
    return found


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


def try_points(net: Folded, target: SlopedTarget, proofs: Proofs, points: int, at_once: int = 20_000) -> Tensor:
    """The largest error over points drawn everywhere, and around the worst point known at every scale."""
    generator = torch.Generator(device=net.W.device).manual_seed(2)
    met = proofs.lower
    shape = (len(net), at_once // 2, net.length, net.token_dim)
    for _ in range(max(1, points // at_once)):
        drawn = torch.rand(shape, generator=generator, dtype=torch.float64, device=net.W.device)
        size = 10.0 ** (
            -6 * torch.rand((*shape[:2], 1, 1), generator=generator, dtype=torch.float64, device=drawn.device)
        )
        near = (proofs.worst[:, None] + size * (2 * drawn.roll(1, 1) - 1)).clamp(0, 1)
        met = torch.maximum(met, errors_at(net, target, torch.cat([drawn, near], 1)).amax(1))
    return met
