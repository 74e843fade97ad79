"""The rows of a learning-rate study as losses by cell, rate and seed; what may not be mixed is refused here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.results import Study

NEEDED = ("parameters", "steps", "lr", "nmse")
# A law holds all of these fixed: each of them moves the best rate by itself. The usual goes unsaid.
FIXED = ("task", "length", "positions", "schedule", "batch", "weight_decay", "factors", "depth", "noise", "read_out")
UNSAID = {"schedule": "cosine", "noise": "0", "read_out": "1"}
LOST = 1.0  # NMSE of a diverged run: what predicting the mean scores
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class RateLosses:
    """One size and horizon: the NMSE of every rate and seed (NaN where a rate has fewer seeds), and who diverged."""

    parameters: int
    steps: int
    rates: tuple[float, ...]
    nmse: Float[np.ndarray, "rate seed"]
    diverged: tuple[int, ...]

    @property
    def where(self) -> str:
        """The cell in words."""
        return f"{self.parameters} parameters and {self.steps} steps"

    @property
    def levels(self) -> Float[np.ndarray, " rate"]:
        """log of the mean NMSE over seeds: averaged first, so that one lost seed does not bend the curve."""
        return np.log(np.nanmean(self.nmse, axis=1))


def losses_of(study: Study) -> tuple[RateLosses, ...]:
    """The cells of a study by parameters and steps, smallest first; a study that mixes recipes is refused.

    >>> rows = tuple({"parameters": 9, "steps": 50, "lr": r, "seed": 0, "nmse": r} for r in (0.2, 0.1))
    >>> losses_of(Study(rows))[0].rates
    (0.1, 0.2)
    """
    if not study.rows:
        raise ValueError("the study has no rows yet, so there is no learning rate to fit")
    for column in NEEDED:
        if column not in study.rows[0]:
            raise ValueError(f"a learning-rate study needs the column {column!r}; there are {', '.join(study.rows[0])}")
    _refuse_mixed(study)
    cells: dict[tuple[int, int], dict[float, list[Mapping[str, Any]]]] = {}
    for row in study:
        cells.setdefault((row["parameters"], row["steps"]), {}).setdefault(row["lr"], []).append(row)
    return tuple(_cell(size, steps, by_rate) for (size, steps), by_rate in sorted(cells.items()))


def widths_of(study: Study, cells: Sequence[RateLosses]) -> list[int]:
    """The width of every cell of a study that has one horizon; several are refused."""
    if len(horizons := {cell.steps for cell in cells}) > 1:
        raise ValueError(f"a slope in the width needs one horizon, got {', '.join(map(str, sorted(horizons)))}")
    by_size = {row["parameters"]: row["width"] for row in study}
    return [by_size[cell.parameters] for cell in cells]


def _cell(size: int, steps: int, by_rate: dict[float, list[Mapping[str, Any]]]) -> RateLosses:
    rates = tuple(sorted(by_rate))
    seeds = max(len(rows) for rows in by_rate.values())
    nmse = np.full((len(rates), seeds), np.nan)
    for i, rate in enumerate(rates):
        nmse[i, : len(by_rate[rate])] = [_nmse(row) for row in by_rate[rate]]
    return RateLosses(size, steps, rates, nmse, tuple(sum(_lost(row) for row in by_rate[rate]) for rate in rates))


def _lost(row: Mapping[str, Any]) -> bool:
    nmse = row["nmse"]
    return row.get("status") == "diverged" or nmse is None or not math.isfinite(nmse)


def _nmse(row: Mapping[str, Any]) -> float:
    return LOST if _lost(row) else min(max(row["nmse"], TINY), LOST)


def _refuse_mixed(study: Study) -> None:
    for column in FIXED:
        values = sorted({_fixed_value(row, column) for row in study})
        if len(values) > 1:
            raise ValueError(
                f"one law needs one recipe, and the rows have {column} {' and '.join(values)}: choose one of them"
            )


def _fixed_value(row: Mapping[str, Any], column: str) -> str:
    if column == "depth":
        return str(str(row.get("layers", "")).count("x"))
    return str(row.get(column, UNSAID.get(column, "unsaid")))
