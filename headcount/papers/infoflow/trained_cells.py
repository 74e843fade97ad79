"""Cells of a table: a task and an architecture, trained as banks over seeds and rates, reduced to its best NMSE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from tempfile import TemporaryDirectory

from headcount.nets import Architecture, parameters
from headcount.results import Store
from headcount.results.study import Row
from headcount.tasks import Task
from headcount.training import Member, Recipe, Sweep
from headcount.training.progress import OnProgress, silent
from headcount.training.sweeps import run


@dataclass(frozen=True)
class Entry:
    """One entry of a table."""

    name: str
    task: Task
    arch: Architecture


@dataclass(frozen=True)
class Trained:
    """A cell's NMSE by member (seeds and rates), the smallest first."""

    cell: Entry
    nmse: tuple[float, ...]
    lost: int

    @classmethod
    def of(cls, cell: Entry, rows: Sequence[Row]) -> Trained:
        """From the rows of the cell's members."""
        lost = sum(row["status"] == "diverged" for row in rows)
        return cls(cell, tuple(sorted(float(row["nmse"]) for row in rows)), lost)

    @property
    def best(self) -> float:
        return self.nmse[0]

    def as_row(self) -> dict[str, object]:
        """Ready for JSON: the architecture, the best, the median and how many members there were."""
        arch = self.cell.arch
        return {
            "cell": self.cell.name,
            "task": type(self.cell.task).__name__,
            "length": self.cell.task.length,
            "layers": arch.name,
            "positions": arch.positions,
            "embed_dim": arch.embed_dim,
            "width": arch.width,
            "parameters": parameters(arch, self.cell.task.token_dim).total,
            "nmse": float(f"{self.best:.4g}"),
            "median": float(f"{median(self.nmse):.4g}"),
            "members": len(self.nmse),
            "diverged": self.lost,
        }


def train_cells(
    cells: Sequence[Entry],
    recipe: Recipe,
    *,
    seeds: int = 4,
    rates: Sequence[float] = (5e-3, 2e-3),
    weight_decay: float = 1e-4,
    device: str = "cpu",
    on_progress: OnProgress = silent,
) -> list[Trained]:
    """Train every cell with `seeds` seeds, the rates in turn, all on the samples of one data seed for each task."""
    members = [
        Member(c.task, c.arch, seed=s, data_seed=0, lr=rates[s % len(rates)], weight_decay=weight_decay)
        for c in cells
        for s in range(seeds)
    ]
    sweep = Sweep(tuple(dict.fromkeys(members)), recipe)
    with TemporaryDirectory() as folder:
        study = run(sweep, Store.open(folder, create=True), device=device, on_progress=on_progress)
    rows = {row["run"]: row for row in study}
    by_cell = [members[i * seeds : (i + 1) * seeds] for i in range(len(cells))]
    return [Trained.of(cell, [rows[m.run(recipe)] for m in own]) for cell, own in zip(cells, by_cell, strict=True)]


def same_size(arch: Architecture, like: Architecture, token_dim: int) -> Architecture:
    """The shape with the width that brings its parameters nearest to those of another.

    >>> small, large = Architecture(layers=((1, 8),), width=8), Architecture(layers=((4, 8),), width=32)
    >>> parameters(large, 4).total, parameters(same_size(small, large, 4), 4).total
    (6433, 6437)
    """
    wanted = parameters(like, token_dim).total
    one, two = (parameters(replace(arch, width=w), token_dim).total for w in (1, 2))
    return replace(arch, width=max(1, math.floor(0.5 + 1 + (wanted - one) / (two - one))))
