"""The cells of a study: log10 NMSE of every seed, in one array over groups, a column's values, and seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.results import Study
from headcount.results.study import Row

CELL = ("length", "heads")
DESIGN = ("task", "layers", "head_dim", "width", "positions")  # a cell may hold one value of each, or is no cell
EMPTY = "the study has no rows yet, so there is nothing to fit or show; `headcount sweep` makes them"
TINY = 1e-300  # stands for an NMSE of zero, whose logarithm no curve could pass


@dataclass(frozen=True, eq=False)
class Cells:
    """Logarithms of NMSE as `logs[group, point, sample, seed]`, padded with NaN at the end of each axis.

    A point is a value of the column asked about (`heads`), a group one of the column held fixed (`length`), a
    sample one `data_seed`. A member that diverged before it was ever measured counts as NMSE 1, what predicting the
    mean would score, and so does any value above 1; how many diverged is kept in `diverged`. Of rows that differ in
    learning rate, weight decay or steps alone, a seed keeps its best: tuning is part of training.

    >>> rows = tuple({"heads": h, "length": 8, "seed": s, "nmse": 10.0**-h} for h in (1, 2) for s in (0, 1, 2))
    >>> cells = Cells.of(Study(rows), "heads")
    >>> cells.points, cells.groups, cells.levels().tolist()
    ((1, 2), (8,), [[-1.0, -2.0]])
    """

    points: tuple[Any, ...]
    groups: tuple[Any, ...]
    logs: Float[np.ndarray, "group point sample seed"]
    diverged: int

    @classmethod
    def of(cls, study: Study, points: str, groups: str = "length") -> Cells:
        """The cells of `study`, refused where one would mix networks of different design."""
        if not study.rows:
            raise ValueError(EMPTY)
        _refuse_mixed(study, points, groups)
        best = _best_of_tuned(study, points, groups)
        across, down = study.values(points), study.values(groups)
        table = [[_by_sample(best.get((g, p), {})) for p in across] for g in down]
        diverged = sum(row.get("status") == "diverged" for row in study)
        return cls(across, down, _padded(table), diverged)

    @property
    def counts(self) -> Int[np.ndarray, "group point"]:
        """How many seeds each cell holds."""
        return np.isfinite(self.logs).sum((-2, -1))

    def levels(self) -> Float[np.ndarray, "group point"]:
        """The level of each cell; see `level`."""
        return level(self.seeds)

    def medians(self) -> Float[np.ndarray, "group point"]:
        """The median of each cell's seeds."""
        return np.nanmedian(self.seeds, -1)

    @property
    def seeds(self) -> Float[np.ndarray, "group point seed"]:
        """The logarithms of all seeds of a cell, whatever their sample."""
        return self.logs.reshape(*self.logs.shape[:2], -1)


def level(logs: Float[np.ndarray, "*cell seed"]) -> Float[np.ndarray, "*cell"]:
    """The mean of the best half of the seeds, rounded up: seeds caught in a poor minimum do not move it.

    Training fails upwards only: a seed may stick far above what the network can do, never far below. A mean is
    then a statement about the failures, and a minimum rests on one seed.

    >>> level(np.array([-5.0, -4.0, -1.0])).item(), level(np.array([-5.0, np.nan, np.nan])).item()
    (-4.5, -5.0)
    """
    best_count = np.ceil(np.isfinite(logs).sum(-1, keepdims=True) / 2)
    best = np.where(np.arange(logs.shape[-1]) < best_count, np.sort(logs, axis=-1), 0.0)
    total = best.sum(-1, keepdims=True)
    return np.divide(total, best_count, out=np.full_like(total, np.nan), where=best_count > 0).squeeze(-1)


def log_nmse(row: Row) -> float:
    """log10 of a row's NMSE, at most 0.

    >>> log_nmse({"nmse": 0.01}), log_nmse({"nmse": None, "status": "diverged"}), log_nmse({"nmse": float("inf")})
    (-2.0, 0.0, 0.0)
    """
    nmse = row.get("nmse")
    if nmse is None or math.isnan(nmse):
        return 0.0
    return math.log10(min(max(nmse, TINY), 1.0))


def variants(study: Study, cell: tuple[str, ...] = CELL) -> dict[str, Study]:
    """The study in parts that hold one design for each cell, by what tells them apart; one part if nothing does.

    >>> rows = tuple({"heads": 1, "length": 8, "width": w, "seed": 0, "nmse": 0.1} for w in (16, 32))
    >>> list(variants(Study(rows)))
    ['width 16', 'width 32']
    """
    if not study.rows:
        raise ValueError(EMPTY)
    for column in cell:
        if any(column not in row for row in study):
            raise ValueError(f"a row of the study lacks {column!r}, so it belongs into no cell")
    options = [_parts(study, cell, ("task", "width", "positions", "depth", size)) for size in ("head_dim", "embed_dim")]
    return min(options, key=len)


def _parts(study: Study, cell: tuple[str, ...], columns: tuple[str, ...]) -> dict[str, Study]:
    varying = [c for c in columns if c not in cell and _varies(study, cell, c)]
    parts: dict[tuple[Any, ...], list[Row]] = {}
    for row in study:
        parts.setdefault(tuple(_design(row, c) for c in varying), []).append(row)
    named = {", ".join(f"{c} {v}" for c, v in zip(varying, key, strict=True)): rows for key, rows in parts.items()}
    return {name: Study(tuple(rows), study.spec, study.environment, study.name) for name, rows in named.items()}


def _varies(study: Study, cell: tuple[str, ...], column: str) -> bool:
    """Whether some cell holds two values of a column: then there are more pairs of both than cells."""
    cells = list(zip(*([row[c] for row in study] for c in cell), strict=True))
    values = [_design(row, column) for row in study]
    return len(set(zip(cells, values, strict=True))) > len(set(cells))


def _design(row: Row, column: str) -> Any:
    return str(row.get("layers", "")).count("x") if column == "depth" else row.get(column)


def _refuse_mixed(study: Study, points: str, groups: str) -> None:
    for column in (points, groups):
        if column not in study.rows[0]:
            raise ValueError(f"no column {column!r} in the study; columns: {', '.join(study.rows[0])}")
    cells = [(row[groups], row[points]) for row in study]
    count = len(set(cells))
    for column in DESIGN:
        values = [row.get(column) for row in study]
        if column in (points, groups) or len(set(zip(cells, values, strict=True))) == count:
            continue
        first_values: dict[tuple[Any, Any], Any] = {}
        for row in study:
            value = row.get(column)
            other = first_values.setdefault((row[groups], row[points]), value)
            if other != value:
                where = f"{points}={row[points]} and {groups}={row[groups]}"
                raise ValueError(
                    f"{where} has rows of {column} {other} and {value}: choose one, as where({column}=...)"
                )


def _best_of_tuned(study: Study, points: str, groups: str) -> dict[tuple[Any, Any], dict[tuple[Any, Any], float]]:
    best: dict[tuple[Any, Any], dict[tuple[Any, Any], float]] = {}
    for row in study:
        cell = best.setdefault((row[groups], row[points]), {})
        seed, value = (row.get("data_seed", 0), row.get("seed", 0)), log_nmse(row)
        if value < cell.setdefault(seed, value):
            cell[seed] = value
    return best


def _by_sample(cell: dict[tuple[Any, Any], float]) -> list[list[float]]:
    samples: dict[Any, list[float]] = {}
    for (sample, _), value in sorted(cell.items()):
        samples.setdefault(sample, []).append(value)
    return list(samples.values())


def _padded(table: list[list[list[list[float]]]]) -> Float[np.ndarray, "group point sample seed"]:
    samples = max(len(cell) for line in table for cell in line)
    seeds = max(len(sample) for line in table for cell in line for sample in cell)
    logs = np.full((len(table), len(table[0]), samples, seeds), np.nan)
    for g, line in enumerate(table):
        for p, cell in enumerate(line):
            for s, values in enumerate(cell):
                logs[g, p, s, : len(values)] = sorted(values)
    return logs
