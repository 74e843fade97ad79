"""One budget over both parts and all layers of a decoder, in units of loss; held against the truth; carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.nets.pretrained.families import Family, family_of
from headcount.nets.pretrained.layout import HeadLayout
from headcount.nets.pretrained.ragged_heads import Weights
from headcount.papers.allocation.moments import PARTS, probing
from headcount.papers.allocation.slopes import LayerSlopes
from headcount.shrinking.budget import Curve, spend
from headcount.shrinking.loss_units import LossUnit, PairBasis
from headcount.shrinking.report_rows import RankRow, rank_rows

Progress = Callable[[str], None]
Products = dict[int, dict[str, Float[Tensor, "heads dim dim"]]]  # layer -> part -> what stands for the identities
MOST = 4.0  # the factor by which one look at the truth may scale a curve


@dataclass(frozen=True)
class LossPlan:
    """The size of every unit, the loss per token that it predicts, and what no plan at this budget could go below."""

    units: tuple[LossUnit, ...]
    sizes: tuple[int, ...]
    error: float
    floor: float
    means: tuple[Tensor, ...]  # per layer, of the attended values; what an output bias can carry

    @property
    def share(self) -> float:
        """The share of the units' parameters that is kept."""
        return sum(u.cost * s for u, s in self.chosen) / sum(u.cost * u.full for u in self.units)

    @property
    def chosen(self) -> list[tuple[LossUnit, int]]:
        return list(zip(self.units, self.sizes, strict=True))

    @property
    def rows(self) -> list[RankRow]:
        """One row per layer and part: rows kept by each head, their sum, and of how many."""
        return rank_rows((u.layer, u.part, u.rows * s, u.rows * u.full) for u, s in self.chosen)

    def products(self, layer: int | None = None, part: str | None = None) -> Products:
        """What the plan puts for the hidden identities, of all units or those of one layer and part."""
        products: Products = {}
        for unit, size in self.chosen:
            if size < unit.full and layer in (None, unit.layer) and part in (None, unit.part):
                encoder, readers = unit.basis.at(size)
                put = products.setdefault(unit.layer, {}).setdefault(unit.part, self._eye(unit))
                put[list(unit.heads)] = readers @ encoder
        return products

    def _eye(self, unit: LossUnit) -> Tensor:
        heads, dim = self.means[unit.layer].shape
        return torch.eye(dim, dtype=torch.float64).repeat(heads, 1, 1)


def loss_plan(units: Sequence[LossUnit], keep: float, means: Sequence[Tensor]) -> LossPlan:
    """The sizes of least predicted loss that keep at most the share `keep` of the units' parameters."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be above 0 and at most 1, got {keep:g}")
    if not units:
        raise ValueError("nothing in this model's attention can be cut")
    curves = [Curve(f"layer {u.layer} {u.part} {u.index}", u.cost, u.errors, least=1) for u in units]
    spent = spend(curves, max(int(keep * sum(u.cost * u.full for u in units)), sum(u.cost for u in units)))
    return LossPlan(tuple(units), spent.ranks, spent.error, spent.floor, tuple(means))


def even_plan(units: Sequence[LossUnit], keep: float, means: Sequence[Tensor]) -> LossPlan:
    """The same share of every unit: what a plan is compared with."""
    sizes = tuple(max(1, round(keep * u.full)) for u in units)
    error = sum(u.errors[s] for u, s in zip(units, sizes, strict=True))
    return LossPlan(tuple(units), sizes, error, 0.0, tuple(means))


def carried_means(family: Family, layers: Sequence[nn.Module], slopes: Sequence[LayerSlopes]) -> list[Tensor]:
    """What of the attended values an output bias can carry: their mean, or nothing where there is no such bias."""
    return [
        layer_slopes.mean if family.read(layer).output_bias is not None else torch.zeros_like(layer_slopes.mean)
        for layer, layer_slopes in zip(layers, slopes, strict=True)
    ]


class Stand:
    """Puts given products in the place of the hidden identities of one layer."""

    def __init__(self, products: Mapping[str, Tensor], mean: Tensor) -> None:
        self.products, self.mean = products, mean

    def queries(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        put = self.products.get("query-key")
        return q if put is None else q @ put.to(q)

    def outputs(self, u: Tensor) -> Tensor:
        put, mean = self.products.get("value-output"), self.mean.to(u)
        return u if put is None else torch.einsum("bthi,hji->bthj", u - mean, put.to(u)) + mean


@contextmanager
def putting(model: nn.Module, products: Products, means: Sequence[Tensor]) -> Iterator[nn.Module]:
    """The model of full rank as if it had been cut; as it was afterwards."""
    family = family_of(model)
    layers = family.layers(model)
    where = sorted(products)
    with probing(family, [layers[i] for i in where], [Stand(products[i], means[i]) for i in where]):
        yield model


@torch.no_grad()
def divergence(model: Any, windows: Int[Tensor, "windows length"], wanted: Sequence[Tensor]) -> float:
    """Mean over tokens of KL(original || model), the originals given as log-probabilities: a loss without its noise."""
    total = 0.0
    for window, log_p in zip(windows, wanted, strict=True):
        log_q = model(input_ids=window[None].to(model.device), use_cache=False).logits[0].log_softmax(-1)
        total += float((log_p.exp() * (log_p - log_q)).sum()) / len(window)
    return total / len(windows)


@torch.no_grad()
def _recorded(
    model: Any, blocks: Sequence[nn.Module], windows: Int[Tensor, "windows length"]
) -> tuple[list[Float[Tensor, "length words"]], list[list[Any]]]:
    """The original's log-probabilities of every window, and what every block of it gave."""
    states: list[list[Any]] = [[] for _ in blocks]
    hooks = [
        b.register_forward_hook(lambda _, __, out, to=to: to.append(out)) for b, to in zip(blocks, states, strict=True)
    ]
    try:
        outputs = (model(input_ids=window[None].to(model.device), use_cache=False) for window in windows)
        wanted = [each.logits[0].log_softmax(-1) for each in outputs]
    finally:
        for hook in hooks:
            hook.remove()
    return wanted, states


@contextmanager
def _replayed(blocks: Sequence[nn.Module], states: Sequence[Sequence[Any]]) -> Iterator[None]:
    """The given blocks answer from memory, window after window, instead of computing."""
    before = [block.__dict__.get("forward") for block in blocks]
    for block, recorded in zip(blocks, states, strict=False):
        answers = iter(recorded)
        block.forward = lambda *_, answers=answers, **__: next(answers)
    try:
        yield
    finally:
        for block, old in zip(blocks, before, strict=True):
            if old is None:
                del block.forward
            else:
                block.forward = old


def held_against_truth(
    model: nn.Module, plan: LossPlan, windows: Int[Tensor, "windows length"], say: Progress = lambda _: None
) -> tuple[LossUnit, ...]:
    """The units with their curves scaled to the divergence that the plan really causes, a layer and part at a time.

    A divergence from the original is what the loss grows by where the text is drawn from the model, and unlike the loss
    itself it does not wander: a layer's share shows on a few hundred tokens. What comes before the layer is not
    computed again.
    """
    family = family_of(model)
    blocks = family.layers(model)
    wanted, states = _recorded(model, blocks, windows)
    factors: dict[tuple[int, str], float] = {}
    layers = sorted({u.layer for u in plan.units})
    for layer in layers:
        for part in PARTS:
            cut = [(u, s) for u, s in plan.chosen if (u.layer, u.part) == (layer, part) and s < u.full]
            predicted = sum(u.errors[s] for u, s in cut)
            if predicted <= 0:
                continue
            with putting(model, plan.products(layer, part), plan.means), _replayed(blocks[:layer], states):
                true = divergence(model, windows, wanted)
            factors[layer, part] = min(max(true / predicted, 1 / MOST), MOST)
        say(f"layer {layer + 1} of {len(layers)} held against the truth")
    usual = sorted(factors.values())[len(factors) // 2] if factors else 1.0
    return tuple(
        replace(u, errors=tuple(factors.get((u.layer, u.part), usual) * e for e in u.errors)) for u in plan.units
    )


@torch.no_grad()
def carried_out(model: nn.Module, plan: LossPlan) -> nn.Module:
    """Cut the model itself: smaller matrices where the plan says so. The model given is the one changed."""
    family = family_of(model)
    by_layer: dict[int, dict[tuple[str, int], tuple[LossUnit, int]]] = {}
    for unit, size in plan.chosen:
        by_layer.setdefault(unit.layer, {})[unit.part, unit.index] = (unit, size)
    for number, layer in enumerate(family.layers(model)):
        if number in by_layer:
            family.write(layer, _cut(family.read(layer), by_layer[number], plan.means[number]))
    return model


def _cut(old: Weights, sizes: Mapping[tuple[str, int], tuple[LossUnit, int]], mean: Tensor) -> Weights:
    layout, dim = old.layout, old.layout.padded
    ranks, pairs, widths = list(layout.ranks), list(layout.pairs), list(layout.widths)
    query = list(old.query.split(dim))
    query_bias = None if old.query_bias is None else list(old.query_bias.split(dim))
    key, value = list(old.key.split(dim)), list(old.value.split(dim))
    key_bias = None if old.key_bias is None else list(old.key_bias.split(dim))
    value_bias = None if old.value_bias is None else list(old.value_bias.split(dim))
    output = list(old.output.split(dim, dim=1))
    bias = None if old.output_bias is None else old.output_bias.double()
    for (part, index), (unit, size) in sizes.items():
        encoder, readers = (m.to(old.value.dtype) for m in unit.basis.at(size))
        if part == "query-key":
            ranks[index], key[index] = len(encoder), encoder @ key[index]
            if isinstance(unit.basis, PairBasis):
                pairs[index] = unit.basis.kept(size)
            if key_bias is not None:
                key_bias[index] = encoder @ key_bias[index]
            for head, reader in zip(unit.heads, readers, strict=True):
                query[head] = reader.mT @ query[head]
                if query_bias is not None:
                    query_bias[head] = reader.mT @ query_bias[head]
            continue
        widths[index], value[index] = len(encoder), encoder @ value[index]
        if value_bias is not None:
            value_bias[index] = encoder @ value_bias[index]
        for head, reader in zip(unit.heads, readers, strict=True):
            if bias is not None:  # the mean goes through whole
                lost = mean[head] - reader.double() @ (encoder.double() @ mean[head])
                bias = bias + output[head].double() @ lost
            output[head] = output[head] @ reader
    new = HeadLayout(tuple(ranks), layout.groups, tuple(widths), layout.sharing, layout.rotary, tuple(pairs))
    joined = [None if b is None else torch.cat(b) for b in (query_bias, key_bias, value_bias)]
    last = None if bias is None else bias.to(old.output.dtype)
    return Weights(
        new,
        torch.cat(query),
        joined[0],
        torch.cat(key),
        torch.cat(value),
        torch.cat(output, dim=1),
        last,
        old.scale,
        joined[1],
        joined[2],
    )
