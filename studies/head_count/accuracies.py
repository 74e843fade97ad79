"""Tables of accuracies: every column and head count, its seeds trained together, kept as it finishes, within a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headcount.results.journal import Deadline, Journal
from headcount.results.literature import Published
from headcount.training.member import Member
from studies.head_count.encoders import Examples, MarkedShape, accuracies, encoder_members, seconds_a_step

LR, OTHER_LR = 1e-3, 3e-4


@dataclass(frozen=True)
class Accuracies:
    """A table of accuracies on what was trained on (`seen`) and one on what was not, by head count and column.

    `data` and `held_out` make the examples of a column, `shape` the networks of a head count for them. The first
    column has one more member, with the other learning rate.
    """

    seen: Published
    unseen: Published
    columns: tuple[int, ...]
    heads: tuple[int, ...]
    seeds: int
    batch: int
    data: Callable[[int], Examples]
    held_out: Callable[[int], Examples]
    shape: Callable[[int, Any], MarkedShape]
    device: str

    def epochs(self, deadline: Deadline, *, most: int, least: int, setting_up: float = 0.8) -> int:
        """How many epochs of all cells fit into the time, after a few timed steps of each; `most` without a limit."""
        if deadline.seconds is None:
            return most
        total = 0.0
        for column in self.columns:
            data = self.data(column)
            for heads in self.heads:
                members = self._members(column, self.shape(heads, data))
                step = seconds_a_step(members, data, self.batch, self.device)
                total += step * (data.count // self.batch)
        return deadline.epochs(total, len(list(self._cells())), least, most, setting_up)

    def measure(
        self, epochs: int, kept: Journal, setup: dict[str, Any], deadline: Deadline
    ) -> tuple[dict[str, dict[tuple[int, int], list[float]]], tuple[str, ...]]:
        """Cells by table, each trained or found again, and a note on those for which there was no time."""
        tables: dict[str, dict[tuple[int, int], list[float]]] = {}
        skipped = []
        for column, heads in self._cells():
            cell = kept.find(of := {"cell": [column, heads], **setup})
            if cell is None and deadline.passed:
                skipped.append((column, heads))
                continue
            if cell is None:
                kept.add(of, cell := self._train(column, heads, epochs))
            for title, values in cell.items():
                tables.setdefault(title, {})[heads, column] = values
        if not tables:
            raise ValueError(
                f"{deadline.seconds:g} s passed before the first network could be trained: allow more time"
            )
        return tables, (f"not trained for lack of time: {skipped}",) if skipped else ()

    def _cells(self) -> Iterator[tuple[int, int]]:
        return ((column, heads) for column in self.columns for heads in self.heads)

    def _members(self, column: int, shape: MarkedShape) -> list[Member]:
        varied = [(0, OTHER_LR)] if column == self.columns[0] else []
        return encoder_members(shape, [*((seed, LR) for seed in range(self.seeds)), *varied])

    def _train(self, column: int, heads: int, epochs: int) -> dict[str, list[float]]:
        data, held_out = self.data(column), self.held_out(column)
        members = self._members(column, self.shape(heads, data))
        both = accuracies(members, data, held_out, epochs, self.batch, self.device)
        titles, n = (self.seen.title, self.unseen.title), self.seeds
        out = {title: values[:n] for title, values in zip(titles, both, strict=True)}
        rest = {f"{t}, learning rate {OTHER_LR:g}": values[n:] for t, values in zip(titles, both, strict=True)}
        return out | {title: values for title, values in rest.items() if values}
