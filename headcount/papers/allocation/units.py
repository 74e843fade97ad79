"""What every product of a model is worth, rank by rank: the curves that a plan divides a budget over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.nets.pretrained.families import Family, family_of
from headcount.nets.pretrained.ragged_heads import Weights
from headcount.papers.allocation.lowrank import Factors, shared_factors
from headcount.papers.allocation.moments import (
    PARTS,
    Moments,
    Pair,
    Slopes,
    curves,
    input_metrics,
    input_moments,
    members,
    output_metrics,
    weight_metrics,
)

MEASURES = ("weights", "inputs", "outputs")
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Unit:
    """One product that can be reduced: a key group with its queries, or a value head with its outputs."""

    layer: int
    part: str
    index: int
    heads: tuple[int, ...]
    embed: int
    cost: int  # parameters a rank
    stock: int  # parameters in the stock model, biases included
    factors: Factors
    errors: tuple[float, ...]

    @property
    def full(self) -> int:
        return len(self.errors) - 1


@dataclass(frozen=True)
class Survey:
    """All units of a model, what was refused and why, and the moments they come from."""

    units: tuple[Unit, ...]
    refused: tuple[tuple[int, str, str], ...]  # (layer, part, reason)
    measure: str
    moments: tuple[Moments, ...]
    folded: int = 0  # biases that rewriting alone does away with, in products that are not units

    @property
    def stock(self) -> int:
        """Parameters that the stock model spends on the units' products."""
        return sum(u.stock for u in self.units)

    def rows(self, share: float = 0.99) -> list[dict[str, object]]:
        """The dimension every unit really uses: the rank that keeps `share` of what rank 0 would lose."""
        return [
            {"layer": u.layer, "part": u.part, "heads": u.heads, "of": u.full, "used": used_rank(u.errors, share)}
            for u in self.units
        ]


def used_rank(errors: Sequence[float], share: float) -> int:
    """The smallest rank from which the curve stays below (1 - share) of its value at rank 0.

    >>> used_rank([1.0, 0.5, 0.005, 0.0], share=0.99)
    2
    """
    allowed = (1 - share) * errors[0]
    return next(r for r in range(len(errors)) if all(e <= allowed for e in errors[r:]) or r == len(errors) - 1)


def rewrite(model: nn.Module, say: Say = lambda _: None) -> Family:
    """Put ragged heads of full rank in every layer, one layer at a time; the outputs stay what they were."""
    family = family_of(model)
    layers = family.layers(model)
    for number, layer in enumerate(layers, start=1):
        if family.heads(layer) is None:
            family.write(layer, family.read(layer))
        say(f"layer {number} of {len(layers)} rewritten")
    return family


def survey(
    model: nn.Module,
    measure: str,
    *,
    batches: Sequence[TextBatch] = (),
    read: Readout | None = None,
    parts: Sequence[str] = PARTS,
    seed: int = 0,
    say: Say = lambda _: None,
) -> Survey:
    """Rewrite the model, and find factors and error curves of every product under the given measure."""
    _check(measure, parts, batches, read)
    family = rewrite(model, say)
    layers = family.layers(model)
    moments = [] if read is None or measure == "weights" else input_moments(model, family, batches, read, say)
    slopes = None
    if measure == "outputs" and read is not None:
        slopes = Slopes(model, batches, read, attended_means(family, layers, moments), seed, say)
    metrics = _at_layers(model, measure, moments, parts) if slopes is None else output_metrics(slopes, parts)
    factors = {where: [shared_factors(p.left, p.right) for p in pairs] for where, pairs in metrics.items()}
    errors: dict[tuple[int, str], list[Tensor]] = {w: [f.errors for f in several] for w, several in factors.items()}
    if slopes is not None:
        errors = dict(curves(replace(slopes, seed=seed + 1), factors))
    units = [
        u for where in factors for u in _units(family.read(layers[where[0]]), where, factors[where], errors[where])
    ]
    refused = [(i, part, why) for i, l in enumerate(layers) for part, why in family.refuses(l).items() if part in parts]
    folded = sum(_folded(family.read(layer), i, factors) for i, layer in enumerate(layers))
    return Survey(tuple(units), tuple(refused), measure, tuple(moments), folded)


def _check(measure: str, parts: Sequence[str], batches: Sequence[TextBatch], read: Readout | None) -> None:
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}")
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise ValueError(f"parts must be among {', '.join(PARTS)}, got {', '.join(parts) or 'none'}")
    if measure != "weights" and (not batches or read is None):
        raise ValueError(f"the measure {measure!r} needs text to calibrate on; give some, or measure by 'weights'")


def _at_layers(
    model: nn.Module, measure: str, moments: Sequence[Moments], parts: Sequence[str]
) -> dict[tuple[int, str], list[Pair]]:
    """Metrics that a layer has by itself: of its weights, or of its inputs too."""
    family, metrics = family_of(model), {}
    for i, layer in enumerate(family.layers(model)):
        weights = family.read(layer)
        if measure == "weights":
            pairs = weight_metrics(weights)
        else:
            pairs = input_metrics(weights, moments[i], centred=weights.output_bias is not None)
        refused = family.refuses(layer)
        metrics |= {(i, part): pairs[part] for part in parts if part not in refused and part in pairs}
    return metrics


def _folded(weights: Weights, layer: int, factored: Collection[tuple[int, str]]) -> int:
    """Key biases do nothing and value biases go to the output's: gone even where the product itself is not reduced."""
    layout, dim = weights.layout, weights.layout.padded
    if layout.rotary:
        return 0
    keys = len(layout.ranks) * dim if weights.query_bias is not None and (layer, "query-key") not in factored else 0
    values = (
        len(layout.widths) * dim if weights.output_bias is not None and (layer, "value-output") not in factored else 0
    )
    return keys + values


def attended_means(family: Family, layers: Sequence[nn.Module], moments: Sequence[Moments]) -> list[Tensor]:
    """What of the attended values an output bias can carry: their mean, or nothing where there is no bias or text."""
    return [
        moments[i].mean
        if moments and weights.output_bias is not None
        else torch.zeros(len(weights.layout.groups), weights.layout.padded, dtype=torch.float64)
        for i, weights in enumerate(map(family.read, layers))
    ]


def _units(weights: Weights, where: tuple[int, str], factors: list[Factors], errors: list[Tensor]) -> list[Unit]:
    layer, part = where
    embed, dim = weights.value.shape[1], weights.layout.padded
    units = []
    for index, heads in enumerate(members(weights.layout, part)):
        cost = stock = embed * (1 + len(heads))
        if part == "query-key" and weights.query_bias is not None:
            cost, stock = cost + len(heads), stock + 1 + len(heads)  # the stock model has a key bias too
        elif part == "value-output" and weights.value_bias is not None:
            cost, stock = cost + 1, stock + 1
        elif part == "value-output" and weights.output_bias is not None:
            stock += 1  # and a value bias
        curve = tuple(float(e) for e in errors[index])
        units.append(Unit(layer, part, index, heads, embed, cost, stock * dim, factors[index], curve))
    return units
