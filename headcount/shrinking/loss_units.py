"""Every part of a decoder's attention that can be cut, with its price in units of loss for every size it may have.

A unit is a key head with the queries that read it, or a value head with the outputs that read it. Between the two
stands a hidden identity, and a cut puts readers_h encoder there, of lower rank: logits become q' readers_h encoder k,
outputs W_O readers_h encoder u. The encoder is shared (it is what the cache keeps), each query head has its own reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.nets.pretrained.families import Family, Rotary
from headcount.nets.pretrained.ragged_heads import Weights
from headcount.papers.allocation.lowrank import Factors, shared_factors
from headcount.papers.allocation.moments import members
from headcount.papers.allocation.slopes import LayerSlopes

SMALLEST = 1e-9  # share of the largest second moment below which a direction counts as never seen
RIDGE = 1e-4  # added to the softmax metric, in units of its mean diagonal


@runtime_checkable
class CutBasis(Protocol):
    """The cuts of one unit, one for every size."""

    def at(self, size: int) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "heads dim rows"]]:
        """The shared encoder and each head's reader."""
        ...


@dataclass(frozen=True, eq=False)
class PairBasis:
    """Whole frequencies of a rotary key head, the most needed first; what stays is scaled to make up for what went.

    The scales c of a head minimise (1 - c)' S (1 - c) with S the softmax metric and c = 0 where a frequency is gone:
    S_kk c_k = S_k 1. They are free: the queries absorb them. Without a metric nothing is scaled.
    """

    order: tuple[int, ...]
    softmax: Float[Tensor, "heads pairs pairs"] | None
    heads: int

    def kept(self, size: int) -> tuple[int, ...]:
        return tuple(sorted(self.order[:size]))

    def at(self, size: int) -> tuple[Tensor, Tensor]:
        frequencies, half = list(self.kept(size)), len(self.order)
        encoder = torch.eye(2 * half, dtype=torch.float64)[[*frequencies, *(half + f for f in frequencies)]]
        scales = torch.ones(self.heads, size, dtype=torch.float64) if self.softmax is None else self.scales(frequencies)
        return encoder, encoder.mT * torch.cat([scales, scales], dim=1)[:, None, :]

    def scales(self, kept: list[int]) -> Float[Tensor, "heads kept"]:
        assert self.softmax is not None
        rows = self.softmax[:, kept]
        inner = rows[:, :, kept]
        ridge = RIDGE * inner.diagonal(dim1=1, dim2=2).mean(1) + torch.finfo(inner.dtype).tiny
        eye = torch.eye(len(kept), dtype=inner.dtype)
        return torch.linalg.solve(inner + ridge[:, None, None] * eye, rows.sum(2) + ridge[:, None])


@dataclass(frozen=True, eq=False)
class AttendedBasis:
    """Directions of the attended values, those first in which the loss leans most; a best reader for every head.

    The reader of head h is the least-squares one, M_h a' (a M_h a')^+, for its own second moment M_h.
    """

    encoder: Float[Tensor, "dim dim"]
    second: Float[Tensor, "heads dim dim"]

    def at(self, size: int) -> tuple[Tensor, Tensor]:
        a = self.encoder[:size]
        return a, self.second @ a.mT @ torch.linalg.pinv(a @ self.second @ a.mT, hermitian=True)


@dataclass(frozen=True, eq=False)
class ProductBasis:
    """The best product of each rank under two metrics, for keys without rotary positions."""

    factors: Factors
    heads: int

    def at(self, size: int) -> tuple[Tensor, Tensor]:
        return self.factors.right[:, :size].mT, self.factors.left.unflatten(0, (self.heads, -1))[:, :, :size]


@dataclass(frozen=True, eq=False)
class LossUnit:
    """One unit: `errors[s]` is the loss per token, in nats, that size s is predicted to cost; `cost` parameters a size.

    A size is a frequency (two rows) of a rotary key head, and one row otherwise.
    """

    layer: int
    part: str
    index: int
    heads: tuple[int, ...]
    rows: int  # per size
    cost: int
    errors: tuple[float, ...]
    basis: CutBasis

    @property
    def full(self) -> int:
        return len(self.errors) - 1


def loss_units(
    family: Family, layers: Sequence[torch.nn.Module], slopes: Sequence[LayerSlopes], parts: Sequence[str]
) -> list[LossUnit]:
    """All units of a model of full rank, by what one pass over a text found."""
    units = []
    for number, (layer, layer_slopes) in enumerate(zip(layers, slopes, strict=True)):
        weights = family.read(layer)
        if "query-key" in parts and not (isinstance(family, Rotary) and family.normed(layer)):
            units += query_units(number, weights, layer_slopes)
        if "value-output" in parts:
            units += value_units(number, weights, layer_slopes)
    return units


def query_units(number: int, weights: Weights, seen: LayerSlopes) -> list[LossUnit]:
    """Key heads: whole frequencies by the slope of a gate on them, or a product of lower rank."""
    units = []
    biases = 0 if weights.query_bias is None else 1
    for index, heads in enumerate(members(weights.layout, "query-key")):
        pick, rows = list(heads), 2 if weights.layout.rotary else 1
        cost = rows * (weights.query.shape[1] * (1 + len(heads)) + biases * len(heads))
        cost += 0 if weights.key_bias is None else rows
        if seen.pairs is not None:
            score = seen.pairs.gate[index].diagonal()
            order = torch.argsort(score, descending=True, stable=True)
            basis: CutBasis = PairBasis(tuple(order.tolist()), seen.pairs.softmax[pick], len(heads))
            errors = _tails(score[order])
        else:
            best = shared_factors(seen.query[pick], seen.query_slope[pick].sum(0))
            basis, errors = ProductBasis(best, len(heads)), _tails(best.values.square())
        units.append(LossUnit(number, "query-key", index, heads, rows, cost, errors, basis))
    return units


def value_units(number: int, weights: Weights, seen: LayerSlopes) -> list[LossUnit]:
    """Value heads, in the metric of the attended values and of the loss's slope by them."""
    units = []
    second = seen.attended
    if weights.output_bias is not None:  # which then carries the mean
        second = second - seen.mean[:, :, None] * seen.mean[:, None, :]
    for index, heads in enumerate(members(weights.layout, "value-output")):
        pick = list(heads)
        cost = weights.value.shape[1] * (1 + len(heads)) + (0 if weights.value_bias is None else 1)
        encoder, values = leading_directions(second[pick].mean(0), seen.attended_slope[pick].sum(0))
        basis = AttendedBasis(encoder, second[pick])
        units.append(LossUnit(number, "value-output", index, heads, 1, cost, _tails(values), basis))
    return units


def leading_directions(
    second: Float[Tensor, "dim dim"], slope: Float[Tensor, "dim dim"]
) -> tuple[Float[Tensor, "dim dim"], Float[Tensor, " dim"]]:
    """Rows a_1, a_2, .. such that the first r of them lose least of E <slope, u>^2, and what each is worth."""
    values, vectors = torch.linalg.eigh(second)
    values = values.clamp_min(SMALLEST * float(values[-1]) + torch.finfo(values.dtype).tiny)
    half, back = (vectors * values.sqrt()) @ vectors.mT, (vectors / values.sqrt()) @ vectors.mT
    worth, rotation = torch.linalg.eigh(half @ slope @ half)
    return rotation.flip(1).mT @ back, worth.flip(0).clamp_min(0)


def _tails(worth: Float[Tensor, " sizes"]) -> tuple[float, ...]:
    """Half the sum of what is left out, for 0, 1, .. sizes kept."""
    return (*(worth.flip(0).cumsum(0).flip(0) / 2).tolist(), 0.0)
