"""A saved model on new sequences: from a file without targets to one prediction for each sequence."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import arrays_in, whole
from headcount.measuring.fitted import FittedModel
from headcount.measuring.sequences import padded
from headcount.measuring.tables import Columns, read_csv
from headcount.refusals import nearest

__all__ = ["predictions", "write_predictions"]


def predictions(model: FittedModel, data: str | Path, sequence: str | None = None) -> list[dict[str, Any]]:
    """A row for each sequence of a `.npz` with x, of a long `.csv` by its column `sequence`, or each window of one."""
    path = Path(data)
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    names, x = _npz(path) if path.suffix == ".npz" else _table(model, read_csv(path), sequence)
    return [
        {"sequence": name, "prediction": value} for name, value in zip(names, model.predict(x).tolist(), strict=True)
    ]


def write_predictions(rows: list[dict[str, Any]], path: Path) -> None:
    """The rows as CSV, whole or not at all."""
    with whole(path) as scratch, Path(scratch).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("sequence", "prediction"))
        writer.writerows((row["sequence"], row["prediction"]) for row in rows)


def _npz(path: Path) -> tuple[list[Any], Any]:
    held = arrays_in(path)
    if "x" not in held:
        raise ValueError(f"{path} lacks 'x'; it has {', '.join(held) or 'no arrays'}")
    tokens, lengths = padded(held["x"], held.get("lengths"))
    return list(range(len(tokens))), [one[:count] for one, count in zip(tokens, lengths, strict=True)]


def _table(model: FittedModel, columns: Columns, sequence: str | None) -> tuple[list[Any], Any]:
    missing = [name for name in model.features if name not in columns]
    if missing or not model.features:
        raise ValueError(f"the model's features are not in the table: {nearest((missing or ['names'])[0], columns)}")
    try:
        table = np.array([[float(value) for value in columns[name]] for name in model.features]).T
    except ValueError as problem:
        raise ValueError(f"a feature holds what is no number: {problem}") from None
    if model.window is not None:
        return _windows(table, model.window)
    if sequence is None or sequence not in columns:
        raise ValueError("the model takes sequences of a long table: name their column as `sequence`")
    rows: dict[Any, list[int]] = {}
    for row, key in enumerate(columns[sequence]):
        rows.setdefault(key, []).append(row)
    return list(rows), [table[places] for places in rows.values()]


def _windows(table: np.ndarray, window: int) -> tuple[list[Any], np.ndarray]:
    if len(table) < window:
        raise ValueError(f"the model takes windows of {window} rows, the table has {len(table)}")
    cut = np.lib.stride_tricks.sliding_window_view(table, window, axis=0)
    return list(range(len(cut))), np.moveaxis(cut, -1, 1)
