"""A table of one's own losses as a learning-rate study: a CSV with parameters, steps, lr and loss, maybe seeds."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from headcount.refusals import nearest
from headcount.results import Store, Study, read_study

NEEDED = ("parameters", "steps", "lr")
LOSSES = ("nmse", "loss")


def read_losses(path: Path) -> Study:
    """The study in a CSV file; a `loss` of any scale is divided by the largest, which moves no optimum.

    A run that was lost has an empty loss, nan or inf; rows with the same sizes and rate are seeds.
    """
    try:
        with path.open(newline="") as file:
            table = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise ValueError(f"{path} is not a readable CSV file: {problem}") from None
    names = list(table[0]) if table else []
    for name in NEEDED:
        if name not in names:
            raise ValueError(f"{path} has no column {name!r}; {nearest(name, names) if names else 'it has no rows'}")
    measure = next((name for name in LOSSES if name in names), None)
    if measure is None:
        raise ValueError(f"{path} has no column 'loss' (or 'nmse'); it has {', '.join(names)}")
    rows: list[Any] = [_row(path, line, row, measure) for line, row in enumerate(table, 2)]
    if measure == "loss":
        top = max((row["nmse"] for row in rows if row["nmse"] is not None), default=1.0)
        rows = [{**row, "nmse": None if row["nmse"] is None else row["nmse"] / top} for row in rows]
    last_seed: dict[tuple[Any, ...], int] = {}
    for row in rows:
        at = (row["parameters"], row["steps"], row["lr"])
        row["seed"] = last_seed[at] = last_seed.get(at, -1) + 1
    return Study(tuple(rows))


def joined_study(run: Path) -> Study:
    """All studies of a store as one: the horizons of a spec, or sweeps that followed each other."""
    specs = Store.open(run).specs()
    if len(specs) < 2:
        return read_study(run)
    studies = [read_study(run, spec.content) for spec in specs]
    rows = {row["run"]: row for study in studies for row in study}
    damaged = sum(study.spec.get("damaged", 0) for study in studies)
    return replace(studies[-1], rows=tuple(rows.values()), spec={**studies[-1].spec, "damaged": damaged})


class LossRow(TypedDict):
    """A trained network of a table; `nmse` holds whatever loss it lists, None where it diverged."""

    parameters: int
    steps: int
    lr: float
    nmse: float | None


def _row(path: Path, line: int, row: dict[str, str], measure: str) -> LossRow:
    numbers = {name: _number(path, line, name, row[name]) for name in NEEDED}
    for name in NEEDED:
        if not (numbers[name] > 0 and math.isfinite(numbers[name])):
            raise ValueError(f"{path}, line {line}: {name} must be above 0, got {row[name]!r}")
    words = (row[measure] or "").strip().lower()
    loss = math.nan if words in ("", "nan", "inf", "diverged") else _number(path, line, measure, row[measure])
    if loss <= 0:
        raise ValueError(f"{path}, line {line}: a {measure} must be above 0 to have a logarithm, got {loss:g}")
    finite = loss if math.isfinite(loss) else None
    return LossRow(
        parameters=round(numbers["parameters"]), steps=round(numbers["steps"]), lr=numbers["lr"], nmse=finite
    )


def _number(path: Path, line: int, name: str, words: str) -> float:
    try:
        return float(words)
    except (TypeError, ValueError):
        raise ValueError(f"{path}, line {line}: {name} must be a number, got {words!r}") from None
