"""A published table as data: its cells, their spread where the paper gives one, and what counts as a difference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from headcount.sources import Source

Cells = Mapping[tuple[Any, Any], Sequence[float]]
"""What was measured: the value of every seed, by (row, column) of the table."""


def mean(values: Sequence[float]) -> float:
    """The mean over seeds.

    >>> mean([1.0, 3.0])
    2.0
    """
    return fmean(values)


@dataclass(frozen=True)
class Ratio:
    """Errors, compared by their ratio: two differ clearly when one is more than `factor` times the other.

    >>> Ratio().apart(1.0, 10.0), Ratio(factor=10).clear
    (1.0, 1.0)
    """

    factor: float = 2.0

    @property
    def clear(self) -> float:
        """The smallest clear distance."""
        return math.log10(self.factor)

    def unit(self, value: float) -> float:
        """The value on the scale in which distances are taken."""
        return math.log10(max(value, 1e-300))

    def apart(self, a: float, b: float) -> float:
        """The distance of two values, in decades."""
        return abs(self.unit(a) - self.unit(b))

    def noise(self, value: float, spread: float) -> float:
        """A standard deviation around a value as a distance."""
        return math.log10(1 + spread / max(value, 1e-300))

    def level(self, value: float) -> float:
        """log10 of the error, at most 0: what the knee is looked for in."""
        return min(self.unit(value), 0.0)


@dataclass(frozen=True)
class Difference:
    """Accuracies and the like, compared by their difference.

    >>> round(Difference().apart(0.50, 0.55), 3)
    0.05
    """

    clear: float = 0.03

    def unit(self, value: float) -> float:
        """The value itself."""
        return value

    def apart(self, a: float, b: float) -> float:
        """The distance of two values."""
        return abs(a - b)

    def noise(self, value: float, spread: float) -> float:
        """A standard deviation around a value as a distance."""
        return spread

    def level(self, value: float) -> float:
        """log10 of one minus the accuracy."""
        return math.log10(min(max(1 - value, 1e-4), 1.0))


Measure = Ratio | Difference
Origin = Literal["paper", "second-hand", "derived here", "same formula"]
"""Where a number was read: in the paper or its figures, in a summary of it, in our own derivation, or from a formula of
the paper that we typed in on both sides, so that nothing was compared."""


@dataclass(frozen=True)
class Published:
    """One published table. `values[r][c]` is the cell at rows[r], columns[c]; None where the paper has none.

    `spread` is the published standard deviation; `read_to` is how far a number without one can be read (half of its
    last digit, or what a figure lets one see) where it is no mean over seeds. `sums_up` is how seeds become one number,
    as the paper does it. `transition` is the row at which the paper says the curve turns. `origin` says where the
    numbers were read: to agree with numbers derived here is a check of consistency and no reproduction.

    >>> table = Published("Table 0", Source("yu2025heads", "Table 0"), "heads", (1, 2), "length", (8,), ((.1,), (.01,)))
    >>> table.at(2, 8)
    0.01
    """

    title: str
    source: Source
    row: str
    rows: tuple[Any, ...]
    column: str
    columns: tuple[Any, ...]
    values: tuple[tuple[float | None, ...], ...]
    spread: tuple[tuple[float, ...], ...] | None = None
    read_to: float | None = None
    quantity: str = "NMSE"
    measure: Measure = field(default_factory=Ratio)
    sums_up: Callable[[Sequence[float]], float] = mean
    transition: int | None = None
    origin: Origin = "paper"

    def __post_init__(self) -> None:
        for block in (self.values, self.spread or self.values):
            if len(block) != len(self.rows) or any(len(line) != len(self.columns) for line in block):
                raise ValueError(f"{self.title} has {len(self.rows)} rows and {len(self.columns)} columns of names")

    def at(self, row: Any, column: Any) -> float | None:
        """The published value of a cell; None where the paper has none."""
        if row not in self.rows or column not in self.columns:
            return None
        return self.values[self.rows.index(row)][self.columns.index(column)]

    def spread_at(self, row: Any, column: Any) -> float | None:
        """The published standard deviation of a cell; None where the paper has none."""
        if self.spread is None or self.at(row, column) is None:
            return None
        return self.spread[self.rows.index(row)][self.columns.index(column)]
