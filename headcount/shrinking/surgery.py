"""Carry out a plan: new weights for every layer, one layer at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headcount.nets.pretrained.batches import Readout, TextBatch
from headcount.nets.pretrained.families import Family, at_stock_places, family_of
from headcount.nets.pretrained.layout import HeadLayout
from headcount.nets.pretrained.ragged_heads import Weights
from headcount.papers.allocation.lowrank import Factors
from headcount.papers.allocation.moments import PARTS, members
from headcount.papers.allocation.units import Survey, survey
from headcount.shrinking.calibration import corrected
from headcount.shrinking.rank_plan import RankPlan, plan
from headcount.shrinking.weight_and_time import stock_head_dims

Progress = Callable[[str], None]


@dataclass(frozen=True)
class _Group:
    """A key group after the plan: its heads, the key heads it is made of, its rank, its factors (None: as it was)."""

    heads: tuple[int, ...]
    keys: tuple[int, ...]
    rank: int
    factors: Factors | None


@dataclass(frozen=True)
class ShrinkWay:
    """How ranks are found: by which measure and rule, in which parts, whether heads may share keys."""

    measure: str = "outputs"
    rule: str = "allocated"
    parts: Sequence[str] = PARTS
    grouping: bool = False

    def plan(self, found: Survey, keep: float) -> RankPlan:
        return plan(found, keep, rule=self.rule, grouping=self.grouping)

    def survey(
        self, model: nn.Module, keep: float, batches: Sequence[TextBatch], read: Readout | None, say: Progress
    ) -> Survey:
        """What every rank costs; planned by outputs, the curves are held against the truth at about this share."""
        found = survey(model, self.measure, batches=batches, read=read, parts=self.parts, say=say)
        if self.measure != "outputs" or self.rule != "allocated":
            return found
        assert read is not None
        return corrected(model, self.plan(found, keep), batches, read, say)


def shrink_model(
    model: nn.Module,
    keep: float,
    *,
    way: ShrinkWay | None = None,
    batches: Sequence[TextBatch] = (),
    read: Readout | None = None,
    on_progress: Progress = lambda _: None,
) -> RankPlan:
    """Reduce the model in place to the share `keep` of its query-key and value-output parameters; returns the plan.

    `batches` and `read` are the text to calibrate on and the read-out to keep; measured by weights it needs neither.
    """
    way = way or ShrinkWay()
    chosen = way.plan(way.survey(model, keep, batches, read, on_progress), keep)
    reduce(model, chosen, on_progress)
    return chosen


@torch.no_grad()
def at_full_rank(model: nn.Module) -> nn.Module:
    """Fill every reduced head up with zeros to its layer's stock dimension; the outputs stay what they were."""
    family = family_of(model)
    for layer, dim in zip(family.layers(model), stock_head_dims(model), strict=True):
        if family.heads(layer) is not None:
            family.write(layer, at_stock_places(family.read(layer), dim))
    return model


@torch.no_grad()
def reduce(model: nn.Module, plan: RankPlan, on_progress: Progress = lambda _: None) -> nn.Module:
    """Replace the attention of every planned layer; the model given is the one changed."""
    family = family_of(model)
    layers = family.layers(model)
    for number, layer in enumerate(layers):
        if any(u.layer == number for u in plan.survey.units):
            family.write(layer, _reduced(family, layer, number, plan))
        on_progress(f"layer {number + 1} of {len(layers)} reduced")
    return model


def _reduced(family: Family, layer: nn.Module, number: int, plan: RankPlan) -> Weights:
    old = family.read(layer)
    groups = _groups(old.layout, number, plan)
    widths = [_planned(plan, number, "value-output", j, old_width)[0] for j, old_width in enumerate(old.layout.widths)]
    of = {head: g for g, group in enumerate(groups) for head in group.heads}
    layout = HeadLayout(
        tuple(g.rank for g in groups),
        tuple(of[head] for head in range(len(old.layout.groups))),
        tuple(widths),
        old.layout.sharing,
        old.layout.rotary,
        old.layout.pairs,
    )
    query, bias, key = (old.query, old.query_bias, old.key) if layout.rotary else _queries_and_keys(old, layout, groups)
    value, output, output_bias, value_bias = _values_and_outputs(old, layout, number, plan)
    return Weights(layout, query, bias, key, value, output, output_bias, old.scale, old.key_bias, value_bias)


def _groups(layout: HeadLayout, number: int, plan: RankPlan) -> list[_Group]:
    joined = [g for g in plan.groupings if g.layer == number]
    taken = {index for g in joined for index in g.keys}
    groups = [_Group(g.heads, g.keys, g.rank, g.factors) for g in joined]
    for index, heads in enumerate(members(layout, "query-key")):
        if index not in taken:
            rank, factors = _planned(plan, number, "query-key", index, layout.ranks[index])
            groups.append(_Group(heads, (index,), rank, factors))
    return sorted(groups, key=lambda g: g.heads)


def _planned(plan: RankPlan, number: int, part: str, index: int, old: int) -> tuple[int, Factors | None]:
    """Rank and factors of a unit; what is not planned stays as it was."""
    chosen = plan.at(number, part, index)
    return (old, None) if chosen is None else (chosen[1], chosen[0].factors)


def _queries_and_keys(old: Weights, layout: HeadLayout, groups: list[_Group]) -> tuple[Tensor, Tensor | None, Tensor]:
    dim = old.layout.padded
    bias = old.query_bias
    rows, biases, keys = [], [], []
    for head in layout.alive:
        group = groups[layout.groups[head]]
        at = slice(head * dim, (head + 1) * dim)
        left = _left(group.factors, group.heads.index(head), group.rank, dim, old.query)
        rows.append(left.mT @ old.query[at])
        biases.append(None if bias is None else left.mT @ bias[at])
    for g in layout.used_groups:
        group = groups[g]
        block = torch.cat([old.key[k * dim : (k + 1) * dim] for k in group.keys])
        right = _right(group.factors, group.rank, len(block), old.key)
        keys.append(right.mT @ block)
    some = [b for b in biases if b is not None]
    empty = old.query.new_zeros(0, old.query.shape[1])
    return torch.cat([empty, *rows]), torch.cat(some) if some else bias, torch.cat([empty, *keys])


def _values_and_outputs(
    old: Weights, layout: HeadLayout, number: int, plan: RankPlan
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    dim = old.layout.padded
    bias = None if old.output_bias is None else old.output_bias.double()
    rows, biases, columns = [], [], {}
    for j, heads in enumerate(members(old.layout, "value-output")):
        width, factors = _planned(plan, number, "value-output", j, old.layout.widths[j])
        right = _right(factors, width, dim, old.value).mT
        rows.append(right @ old.value[j * dim : (j + 1) * dim])
        if old.value_bias is not None:
            biases.append(right @ old.value_bias[j * dim : (j + 1) * dim])
        for place, head in enumerate(heads):
            block = old.output[:, head * dim : (head + 1) * dim]
            left = _left(factors, place, width, dim, old.output)
            if width:
                columns[head] = block @ left
            if bias is not None and factors is not None and plan.survey.moments:
                mean = plan.survey.moments[number].mean[head]  # what the mean loses goes to the bias
                projected = left.double() @ (_right(factors, width, dim, old.value).double().mT @ mean)
                bias = bias + block.double() @ (mean - projected)
    empty = old.output.new_zeros(old.output.shape[0], 0)
    output = torch.cat([empty, *(columns[head] for head in sorted(columns))], dim=1)
    folded = None if bias is None else bias.to(old.output.dtype)
    return torch.cat(rows), output, folded, torch.cat(biases) if biases else None


def _left(factors: Factors | None, place: int, rank: int, dim: int, like: Tensor) -> Tensor:
    rows = torch.eye(dim) if factors is None else factors.left[place * dim : (place + 1) * dim]
    return rows[:, :rank].to(like.dtype)


def _right(factors: Factors | None, rank: int, dim: int, like: Tensor) -> Tensor:
    return (torch.eye(dim) if factors is None else factors.right)[:, :rank].to(like.dtype)
