"""Hold a survey's curves against the truth: put the planned products in, layer by layer, and see what really moves.

A first-order curve is blind where attention is saturated: a row that puts all its weight on one token has Jacobian
zero, so its head seems to need no query-key rank at all, until rank 0 makes the row uniform. Such a layer, or the one
head in it, is scaled to what was measured, and the budget is divided again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.nets.pretrained.families import Family, family_of
from headcount.papers.allocation.moments import PARTS, probing
from headcount.papers.allocation.units import Survey, Unit, attended_means
from headcount.shrinking.loss_plan import Stand
from headcount.shrinking.rank_plan import RankPlan

Progress = Callable[[str], None]
MOST = 8  # batches looked at, evenly spaced
TRUSTED = 2.0  # a layer whose measured error is within this factor of its curves is only scaled as a whole


@torch.no_grad()
def measured(
    model: nn.Module,
    family: Family,
    batches: Sequence[TextBatch],
    read: Readout,
    chosen: Sequence[tuple[Unit, int]],
    mean: Tensor,
    originals: Sequence[Tensor],
) -> float:
    """Mean squared change of the read-out when the chosen units of one layer get their ranks, nothing else changed."""
    layer = chosen[0][0].layer
    layers = family.layers(model)
    probe = Stand(_products(family, layers[layer], chosen), mean)
    moved, count = 0.0, 0
    with probing(family, layers[layer : layer + 1], [probe]):
        for batch, wanted in zip(batches, originals, strict=True):
            moved += float((read(model, batch) - wanted).square().sum())
            count += len(wanted)
    return moved / max(count, 1)


def corrected(
    model: nn.Module,
    plan: RankPlan,
    batches: Sequence[TextBatch],
    read: Readout,
    on_progress: Progress = lambda _: None,
) -> Survey:
    """The plan's survey with curves scaled to the measured change of each layer at its planned ranks.

    Where a layer is off by more than a factor of two, its units are measured one by one and scaled each by its own
    factor first; what is left is scaled as a whole. The model must be the full-rank one that was surveyed.
    """
    family, survey = family_of(model), plan.survey
    layers = family.layers(model)
    some = batches[:: max(1, len(batches) // MOST)]
    with torch.no_grad():
        originals = [read(model, batch).clone() for batch in some]
    means = attended_means(family, layers, survey.moments)
    factors: dict[Unit, float] = {}
    for number in range(len(layers)):
        reduced = [(u, r) for u, r in plan.chosen if u.layer == number and r < u.full]
        if not reduced:
            continue
        true = measured(model, family, some, read, reduced, means[number], originals)
        scale = _ratio(true, sum(u.errors[r] for u, r in reduced))
        if not 1 / TRUSTED < scale < TRUSTED:
            alone = {
                id(u): _ratio(measured(model, family, some, read, [(u, r)], means[number], originals), u.errors[r])
                for u, r in reduced
            }
            scale = _ratio(true, sum(alone[id(u)] * u.errors[r] for u, r in reduced))
            factors |= {u: alone[id(u)] * scale for u, _ in reduced}
        factors |= {u: factors.get(u, scale) for u in survey.units if u.layer == number}
        on_progress(f"layer {number + 1} of {len(layers)} held against the truth")
    units = tuple(replace(u, errors=tuple(factors.get(u, 1.0) * e for e in u.errors)) for u in survey.units)
    return replace(survey, units=units)


def _products(family: Family, layer: nn.Module, chosen: Sequence[tuple[Unit, int]]) -> dict[str, Tensor]:
    layout = family.read(layer).layout
    products: dict[str, Tensor] = {}
    for unit, rank in chosen:
        dim = unit.full
        eye = torch.eye(dim, dtype=torch.float64).repeat(len(layout.groups), 1, 1)
        put = products.setdefault(unit.part, eye)
        for place, head in enumerate(unit.heads):
            left = unit.factors.left[place * dim : (place + 1) * dim, :rank]
            put[head] = left @ unit.factors.right[:, :rank].mT
    assert set(products) <= set(PARTS)
    return products


def _ratio(true: float, predicted: float) -> float:
    return true / predicted if predicted > 0 and true > 0 else 1.0
