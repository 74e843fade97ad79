"""From a bank that is trained to folded cells; and samples that hold the points where a network was worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headcount.certificates.as_transformer import as_transformer
from headcount.certificates.worst_case.folded import Folded, fold, fold_stacked
from headcount.certificates.worst_case.met_errors import meet
from headcount.certificates.worst_case.sloped_targets import LookedUp, StatedSlopes, sloped
from headcount.nets import Transformer
from headcount.papers.infoflow import build
from headcount.tasks import Wells
from headcount.training import Member, Outcome, train
from headcount.training.data import Resident, drawn_part, target_scale
from studies.worst.cells import Cell, StudyBank

Scale = tuple[float, float]  # mean and spread
WORST_SHARE = 16  # one in so many samples is drawn near a point where the network was worst
AGAIN = 100  # epochs of each further round


@dataclass(frozen=True, eq=False)
class TrainedCell:
    """The networks of a cell, folded, with their targets and what is known of their training."""

    cell: Cell
    net: Folded
    target: LookedUp | StatedSlopes
    nmse: tuple[float, ...]
    backend: str

    @classmethod
    def of(
        cls, cell: Cell, outcome: Outcome, at: slice, members: Sequence[Member], scales: Sequence[Scale]
    ) -> TrainedCell:
        """Some members of a trained bank."""
        net = fold_stacked(cell.arch, cell.token_dim, _corner(outcome, at, cell), scales[at], cell.length)
        rows = outcome.rows[at]
        target = sloped([m.task for m in members[at]])
        return cls(cell, net, target, tuple(row["nmse"] for row in rows), rows[0].get("backend", ""))

    def few(self, at: Tensor | slice) -> TrainedCell:
        """Some of its networks."""
        nmse = tuple(torch.tensor(self.nmse, dtype=torch.float64)[at].tolist())
        return replace(self, net=self.net.of(at), target=self.target.of(at), nmse=nmse)


def built(bank: StudyBank) -> list[TrainedCell]:
    """Networks that theory constructs, the most exact that fit into the shape of the trained ones."""
    return [_built_cell(cell) for cell in bank.cells]


def _built_cell(cell: Cell) -> TrainedCell:
    tasks = [cell.task(k) for k in cell.seeds]
    by_task = {task: _most_exact(task, cell) for task in dict.fromkeys(tasks)}
    nets = [by_task[task] for task in tasks]
    x = torch.rand(2048, cell.length, cell.token_dim, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    nmse = []
    for net, task in zip(nets, tasks, strict=True):
        y = task(x)
        with torch.no_grad():
            nmse.append(float((net.double()(x) - y).square().mean() / y.var()))
    return TrainedCell(cell, fold(nets, cell.length), sloped(tasks), tuple(nmse), "")


def _most_exact(task: Wells, cell: Cell) -> Transformer:
    """The construction of the smallest promised error that the shape has room for."""
    x = torch.rand(64, cell.length, cell.token_dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    best: Transformer | None = None
    for step in range(2, 13):
        transformer = as_transformer(build(task, eps=2.0**-step).net, cell.arch, x)
        if transformer is None:
            break
        best = transformer
    if best is None:
        raise ValueError(f"no construction for {cell.name} fits into {cell.arch.name}")
    return best


def _corner(outcome: Outcome, at: slice, cell: Cell) -> dict[str, Tensor]:
    """The stacked parameters of a cell's members without the zeros that the bank pads them with."""
    shapes = {name: p.shape for name, p in Transformer(cell.arch, cell.token_dim).named_parameters()}
    named = outcome.bank.named(outcome.bank.theta.detach())
    return {name: named[name][at][(slice(None), *(slice(0, n) for n in shape))] for name, shape in shapes.items()}


def trained(bank: StudyBank, device: str) -> list[TrainedCell]:
    """Train a bank, with further rounds on worst points where it asks for them."""
    cells, recipe = bank.cells, bank.recipe()
    members = [m for cell in cells for m in cell.planned()]
    if bank.rounds:  # everyone gets samples of its own
        members = [replace(m, data_seed=k) for k, m in enumerate(members)]
    known = {(m.drawn, m.data_seed): None for m in members}
    known = {key: target_scale(*key, recipe.samples) for key in known}
    scales: list[Scale] = [known[m.drawn, m.data_seed] for m in members]
    outcome = train(members, recipe, device=device)
    for number in range(bank.rounds):
        near = _worst_points(_folded_cells(cells, outcome, members, scales), number, device)
        parts = [with_worst(m, points, recipe.samples) for m, points in zip(members, near, strict=True)]
        after = [(float(y.mean()), float(y.std())) for _, y in parts]
        nets = [_rescaled(outcome.net(k), scales[k], after[k]) for k in range(len(members))]
        data = partial(WithWorst, parts=parts)
        slower = [replace(m, lr=m.lr / 4) for m in members]
        outcome = train(slower, replace(bank.recipe(AGAIN), warmup=0.2), device=device, data=data, start=nets)
        scales = after
    return _folded_cells(cells, outcome, members, scales)


def _folded_cells(
    cells: Sequence[Cell], outcome: Outcome, members: Sequence[Member], scales: list[Scale]
) -> list[TrainedCell]:
    folded, start = [], 0
    for cell in cells:
        folded.append(TrainedCell.of(cell, outcome, slice(start, start + cell.members), members, scales))
        start += cell.members
    return folded


def _worst_points(cells: Sequence[TrainedCell], seed: int, device: str) -> list[Tensor]:
    """For every member the sequences where it was found to be worst."""
    points: list[Tensor] = []
    for part in cells:
        met = meet(part.net.to(device), part.target.to(device), 0.0, 1.0, keep=16, seed=seed)
        points += list(met.x.cpu())
    return points


def with_worst(member: Member, points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """A member's samples, one in sixteen of them at or near a point where it was worst."""
    x, _ = drawn_part(member.drawn, member.data_seed, "train", count)
    generator = torch.Generator().manual_seed(member.data_seed)
    few = count // WORST_SHARE
    chosen = points[torch.arange(few) % len(points)]
    size = 10.0 ** -(1 + 2 * torch.rand(few, 1, 1, generator=generator, dtype=x.dtype))
    moved = chosen + size * torch.randn(chosen.shape, generator=generator, dtype=x.dtype)
    x = torch.cat([x[few:], moved.clamp(0, 1)])
    return x, member.drawn(x)


@torch.no_grad()
def _rescaled(net: Transformer, before: Scale, after: Scale) -> Transformer:
    """The same function in other units of its target."""
    outer = net.read_out.outer
    outer.weight.mul_(before[1] / after[1])
    outer.bias.mul_(before[1] / after[1]).add_((before[0] - after[0]) / after[1])
    return net


class WithWorst(Resident):
    """Resident samples that were made beforehand, one part for each member."""

    def __init__(self, members: Sequence[Member], *others: Any, parts: list[tuple[Tensor, Tensor]]) -> None:
        self.parts = {(m.drawn, m.data_seed): part for m, part in zip(members, parts, strict=True)}
        super().__init__(members, *others)

    def _draw(self, task: Any, seed: int, part: str, count: int, epoch: int = 0) -> tuple[Tensor, Tensor]:
        return self.parts[task, seed] if part == "train" else super()._draw(task, seed, part, count, epoch)
