"""A study: the measured rows of one sweep, with the spec and the environment that produced them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headcount.structure import Structure

__all__ = ["COLUMNS", "Row", "Study"]

Row = dict[str, Any]

COLUMNS = {
    "run": "content address of the member: the hash of everything that determines it",
    "task": "name of the task's class",
    "length": "tokens in a sequence",
    "heads": "heads of the layer with fewest",
    "head_dim": "dimension of a head in that layer",
    "layers": "every layer as heads x head_dim, first to last",
    "embed_dim": "width of the residual stream",
    "width": "hidden size of the feed-forwards",
    "positions": "position features given to the encoder",
    "parameters": "all trainable numbers",
    "feedforward_parameters": "those of the feed-forwards, as the head-count paper counts them",
    "seed": "seed of the initial weights and of the order of batches",
    "data_seed": "seed of the training and validation samples",
    "lr": "peak learning rate",
    "weight_decay": "decoupled weight decay",
    "steps": "optimiser steps asked for",
    "nmse": "smallest validation MSE / variance of the target",
    "final_nmse": "the same at the last evaluation",
    "train_nmse": "training MSE / variance, at the smallest validation value",
    "best_step": "the step of that smallest value",
    "status": "done, frozen (stopped early) or diverged",
    "error_rate": "for classes, the share of the validation set that is named wrongly",
}


@dataclass(frozen=True)
class Study:
    """Rows in, pictures out: everything a table, a fit or a page needs, and no tensors.

    `nmse` of a diverged member is the best value seen before it diverged, or infinity.

    >>> study = Study(rows=({"heads": 1, "length": 8, "seed": 0, "nmse": 0.1},
    ...                     {"heads": 2, "length": 8, "seed": 0, "nmse": 1e-5}))
    >>> study.values("heads")
    (1, 2)
    >>> [row["nmse"] for row in study.where(heads=2)]
    [1e-05]
    """

    rows: tuple[Row, ...]
    spec: dict[str, Any] = field(default_factory=dict, hash=False)
    environment: dict[str, Any] = field(default_factory=dict, hash=False)
    name: str = "study"

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def values(self, column: str) -> tuple[Any, ...]:
        """The distinct values of a column, sorted."""
        return tuple(sorted({row[column] for row in self.rows}))

    def where(self, keep: Callable[[Row], bool] | None = None, **equal: Any) -> Study:
        """The rows on which every named column has the given value, and for which `keep` holds."""
        for column in equal:
            if self.rows and column not in self.rows[0]:
                raise ValueError(f"no column {column!r}; columns: {', '.join(self.rows[0])}")
        rows = tuple(
            row
            for row in self.rows
            if all(row[column] == value for column, value in equal.items()) and (keep is None or keep(row))
        )
        return Study(rows, self.spec, self.environment, self.name)

    @property
    def structure(self) -> Structure | None:
        """What the task asks, when the spec says it."""
        data = self.spec.get("structure")
        return Structure.from_json(data) if data else None

    @property
    def predicted_heads(self) -> int | None:
        """The number D of first-order retrievals, which Theorem 2 of the head-count paper says one layer needs."""
        structure = self.structure
        if structure is None or structure.order != 1 or any(r.rank > 1 or r.after for r in structure.retrievals):
            return None
        return structure.count

    def to_json(self) -> str:
        """The whole study as one JSON text: rows, spec and environment, to be kept beside a page drawn from it."""
        whole = {"name": self.name, "spec": self.spec, "environment": self.environment, "rows": list(self.rows)}
        return json.dumps(whole, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Study:
        """The study that `to_json` wrote."""
        whole = json.loads(text)
        if not isinstance(whole, dict) or not {"name", "spec", "environment", "rows"} <= set(whole):
            raise ValueError("this JSON is not a study: it lacks name, spec, environment or rows")
        return cls(tuple(whole["rows"]), whole["spec"], whole["environment"], whole["name"])

    def to_csv(self) -> str:
        """The rows as CSV, columns in the order of the first row."""
        if not self.rows:
            return ""
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()

    def to_json_lines(self) -> str:
        """The rows as JSON, one a line."""
        return "".join(json.dumps(row) + "\n" for row in self.rows)
