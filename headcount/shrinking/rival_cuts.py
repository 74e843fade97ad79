"""What others cut by: their scores, written from the formulas, in our pipeline and at the same share of every head.

None of these is their whole method: what they do besides (fine-tuning, kernels, other parts of a model) is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.nets.pretrained.families import Family, family_of
from headcount.nets.pretrained.ragged_heads import Weights
from headcount.papers.allocation.lowrank import shared_factors
from headcount.papers.allocation.moments import weight_metrics
from headcount.papers.allocation.slopes import LayerSlopes
from headcount.shrinking.block_rounding import restored
from headcount.shrinking.loss_plan import LossPlan, Products, even_plan
from headcount.shrinking.loss_units import (
    AttendedBasis,
    CutBasis,
    PairBasis,
    ProductBasis,
    leading_directions,
    loss_units,
)

Rule = Callable[[Weights, LayerSlopes, int, list[int]], CutBasis]  # of one layer's unit, and the heads that read it


@dataclass(frozen=True)
class Rival:
    """A published rule: what it calls best among frequencies (or products) of keys, and among directions of values."""

    name: str
    source: str
    query: Rule
    value: Rule


def rival_plan(
    family: Family,
    layers: Sequence[nn.Module],
    slopes: Sequence[LayerSlopes],
    means: Sequence[Tensor],
    rival: Rival,
    parts: Sequence[str],
    keep: float,
) -> LossPlan:
    """The rival's choice at the same share of every head."""
    weights = [_on_cpu(family.read(layer)) for layer in layers]
    rules = {"query-key": rival.query, "value-output": rival.value}
    units = [
        replace(u, basis=rules[u.part](weights[u.layer], slopes[u.layer], u.index, list(u.heads)))
        for u in loss_units(family, layers, slopes, parts)
    ]
    return even_plan(units, keep, means)


def _on_cpu(weights: Weights) -> Weights:
    return replace(weights, **{n: t.cpu() for n, t in vars(weights).items() if isinstance(t, Tensor)})


def _by_score(score: Float[Tensor, " pairs"], heads: int) -> PairBasis:
    return PairBasis(tuple(torch.argsort(score, descending=True, stable=True).tolist()), None, heads)


def _weight_norms(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    """No data: the truncated singular values of W_Q' W_K; of rotary heads the norms of a frequency's rows."""
    if slopes.pairs is None:
        pair = weight_metrics(w)["query-key"][index]
        return ProductBasis(shared_factors(pair.left, pair.right), len(heads))
    dim = w.layout.padded
    q = w.query.double().unflatten(0, (-1, 2, dim // 2)).square().sum((1, 3))[heads].sum(0)
    k = w.key.double().unflatten(0, (-1, 2, dim // 2)).square().sum((1, 3))[index]
    return _by_score(q * k, len(heads))


def _two_norm(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    """E|q_f| E|k_f|, readers averaged; without rotary positions the mean-square logits, E q q' against E k k'."""
    if slopes.pairs is None:
        return _mean_square(w, slopes, index, heads)
    return _by_score(slopes.pairs.query_norm[heads].mean(0) * slopes.pairs.key_norm[index], len(heads))


def _mean_square(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    """Sum over readers of E|q_f|^2 E|k_f|^2, the CUR rule; without rotary positions the best product in that metric."""
    if slopes.pairs is None:
        return ProductBasis(shared_factors(slopes.query[heads], slopes.key[index]), len(heads))
    return _by_score(slopes.pairs.query_power[heads].sum(0) * slopes.pairs.key_power[index], len(heads))


def _slope_score(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    if slopes.pairs is None:
        best = shared_factors(slopes.query[heads], slopes.query_slope[heads].sum(0))
        return ProductBasis(best, len(heads))
    return _by_score(slopes.pairs.gate[index].diagonal(), len(heads))


def _outputs(w: Weights, heads: list[int]) -> Float[Tensor, "dim dim"]:
    dim = w.layout.padded
    blocks = torch.stack([w.output[:, h * dim : (h + 1) * dim].double() for h in heads])
    return (blocks.mT @ blocks).sum(0)


def _directions(second: Tensor, own: Tensor, slope: Tensor) -> CutBasis:
    return AttendedBasis(leading_directions(second, slope)[0], own)


def _plain_values(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    """The truncated singular values of W_O W_V."""
    dim = w.layout.padded
    v = w.value[index * dim : (index + 1) * dim].double()
    return _directions(v @ v.mT, (v @ v.mT).repeat(len(heads), 1, 1), _outputs(w, heads))


def _whitened_values(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    """The same in the metric of the layer's inputs: E v v' for W_V W_V'."""
    return _directions(slopes.value[index], slopes.value[index].repeat(len(heads), 1, 1), _outputs(w, heads))


def _attended_values(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    """The same in the metric of what is attended, E u u', with a best reader for every query head."""
    return _directions(slopes.attended[heads].mean(0), slopes.attended[heads], _outputs(w, heads))


def _slope_values(w: Weights, slopes: LayerSlopes, index: int, heads: list[int]) -> CutBasis:
    return _directions(slopes.attended[heads].mean(0), slopes.attended[heads], slopes.attended_slope[heads].sum(0))


RIVALS = (
    Rival("uniform, no data", "singular values; of rotary keys the weights' norms", _weight_norms, _plain_values),
    Rival("2-norm, whitened SVD", "scores of MHA2MLA (2025), SVD-LLM (2025)", _two_norm, _whitened_values),
    Rival("CUR, attended SVD", "scores of A3 (arXiv 2505.12942)", _mean_square, _attended_values),
    Rival("slope of the loss, uniform", "ours without allocation", _slope_score, _slope_values),
)


def groups_removed(plan: LossPlan, keep: float) -> Products:
    """Whole key groups removed, those whose value heads the loss leans on least, until the share `keep` is left."""
    heads = [u for u in plan.units if u.part == "value-output"]
    gone = sorted(heads, key=lambda u: u.errors[0])[: round((1 - keep) * len(heads))]
    products: Products = {}
    for unit in gone:
        count, dim = plan.means[unit.layer].shape
        eye = torch.eye(dim, dtype=torch.float64).repeat(count, 1, 1)
        products.setdefault(unit.layer, {}).setdefault("value-output", eye)[list(unit.heads)] = 0
    return products


@contextmanager
def mixed_keys(model: nn.Module, slopes: Sequence[LayerSlopes], keep: float) -> Iterator[nn.Module]:
    """Keys projected on principal components across key heads at each frequency (RoRoPE of TransMLA).

    Heads that share a frequency may be mixed by any unitary matrix, which commutes with the turning; components are
    weighted by what the queries of all heads read. Keys and their cache shrink, queries do not.
    """
    family = family_of(model)
    keys = [_heads(family, layer).key for layer in family.layers(model)]
    with restored(p for key in keys for p in key.parameters()):
        for key, layer_slopes in zip(keys, slopes, strict=True):
            if layer_slopes.pairs is not None:
                key.weight.copy_(_projected(key.weight.double().cpu(), layer_slopes, keep))
                if key.bias is not None:
                    key.bias.copy_(_projected(key.bias.double().cpu()[:, None], layer_slopes, keep)[:, 0])
        yield model


def _projected(rows: Tensor, slopes: LayerSlopes, keep: float) -> Tensor:
    assert slopes.pairs is not None
    across, groups = slopes.pairs.across, slopes.pairs.key_power.shape[0]
    weight = slopes.pairs.query_power.mean(0).sqrt()  # of a frequency, the same for all heads
    values, vectors = torch.linalg.eigh(across * weight[:, None, None].square())
    best = values.flatten().topk(round(keep * values.numel())).indices
    mask = torch.zeros(values.numel(), dtype=torch.bool).index_fill_(0, best, True).view_as(values)
    onto = (vectors * mask[:, None, :]) @ vectors.conj().mT
    k = rows.unflatten(0, (groups, 2, -1))
    new = torch.einsum("fab,bfi->afi", onto, torch.complex(k[:, 0], k[:, 1]))
    return torch.stack([new.real, new.imag], 1).flatten(0, 2)


@contextmanager
def in_eight_bits(model: nn.Module) -> Iterator[nn.Module]:
    """Every matrix rounded to 8 bits with one scale per row (weights only), computed with as before."""
    weights: list[Any] = [m.weight for m in model.modules() if isinstance(getattr(m, "weight", None), Tensor)]
    with restored(weight for weight in weights if weight.dim() == 2) as matrices:
        for matrix in matrices:
            matrix.copy_(rounded_rows(matrix))
        yield model


def rounded_rows(weight: Float[Tensor, "rows columns"], bits: int = 8) -> Float[Tensor, "rows columns"]:
    """The nearest multiples of a row's largest entry over 2^(bits - 1) - 1.

    >>> rounded_rows(torch.tensor([[127.0, 3.4]]))
    tensor([[127.,   3.]])
    """
    step = weight.abs().amax(1, keepdim=True).clamp_min(torch.finfo(weight.dtype).tiny) / (2 ** (bits - 1) - 1)
    return (weight / step).round() * step


def _heads(family: Family, layer: nn.Module) -> Any:
    heads = family.heads(layer)
    assert heads is not None, "write the layer as ragged heads first"
    return heads
