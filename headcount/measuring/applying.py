"""A saved model on new sequences: from a file without targets to one prediction for each sequence."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import arrays_in, atomic_write
from headcount.measuring.fitted import FittedModel
from headcount.measuring.sequences import padded
from headcount.measuring.tables import Columns, as_numbers, cut_text, read_csv
from headcount.refusals import nearest


def predictions(model: FittedModel, data: str | Path, sequence: str | None = None) -> list[dict[str, object]]:
    """A row for each sequence of a `.npz` with x or of a table, with the share of every class where there are classes.

    A table is read as the model's own was: windows, a wide row or a text a sequence, or a long one by its column
    `sequence`.
    """
    path = Path(data)
    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    names, x = _npz(model, path) if path.suffix == ".npz" else _table(model, read_csv(path), sequence)
    rows = [
        {"sequence": name, "prediction": value} for name, value in zip(names, model.predict(x).tolist(), strict=True)
    ]
    if model.classes:
        for row, probabilities in zip(rows, model.predict_proba(x).tolist(), strict=True):
            row |= {f"p({label})": probability for label, probability in zip(model.classes, probabilities, strict=True)}
    return rows


def write_predictions(rows: list[dict[str, object]], path: Path) -> None:
    """The rows as CSV, whole or not at all."""
    with atomic_write(path) as scratch, Path(scratch).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0] if rows else ("sequence", "prediction"))
        writer.writerows(row.values() for row in rows)


def _npz(model: FittedModel, path: Path) -> tuple[list[Any], Any]:
    arrays = arrays_in(path)
    if "x" not in arrays:
        raise ValueError(f"{path} lacks 'x'; it has {', '.join(arrays) or 'no arrays'}")
    if model.letters:
        counts = arrays.get("lengths", np.full(len(arrays["x"]), np.shape(arrays["x"])[1]))
        return list(range(len(arrays["x"]))), [one[:n].tolist() for one, n in zip(arrays["x"], counts, strict=True)]
    tokens, lengths = padded(arrays["x"], arrays.get("lengths"))
    return list(range(len(tokens))), [one[:count] for one, count in zip(tokens, lengths, strict=True)]


def _table(model: FittedModel, columns: Columns, sequence: str | None) -> tuple[list[Any], Any]:
    if not model.features:
        raise ValueError(
            "the model does not say which columns it reads: measure the table again, or give an .npz with x"
        )
    missing = [name for name in model.features if name not in columns]
    if missing:
        raise ValueError(f"the table lacks the model's column {missing[0]!r}; {nearest(missing[0], columns)}")
    if model.text:
        texts = [cut_text(str(value), model.text) for value in columns[model.features[0]]]
        return list(range(len(texts))), texts
    table = np.stack([as_numbers(columns, name, "the table") for name in model.features], axis=1)
    if model.window is not None:
        return _windows(table, model.window)
    if len(model.scale.x_mean) > 1:  # a wide table: every place has units of its own
        return list(range(len(table))), table[:, :, None]
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
