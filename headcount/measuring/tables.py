"""Tables as sequences: a long table with a row per token, or a series of which windows are cut."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import refuse_no_file
from headcount.measuring.sequences import Sequences, sequences
from headcount.refusals import missing_package, nearest

__all__ = ["Columns", "Reading", "cut_windows", "from_columns", "read_csv", "read_parquet"]

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Reading:
    """How a table is read: `sequence` names the column that tells sequences apart, or `window` cuts a series.

    With `sequence`, rows of one sequence are its tokens in order, and `target` is the same in all of them. With
    `window`, a row is a moment, a sequence is `window` rows on end and its target the value of `target` `horizon`
    rows after the last. `split` names a column that says training or validation. Every other column of numbers is a
    feature of the token.
    """

    target: str = "target"
    sequence: str | None = None
    window: int | None = None
    horizon: int = 1
    group: str | None = None
    kind: str | None = None
    split: str | None = None

    def __post_init__(self) -> None:
        if self.sequence is not None and self.window is not None:
            raise ValueError("give `sequence` for a long table or `window` for a series, not both")
        for name in ("window", "horizon"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")


def read_csv(path: Path) -> Columns:
    """The columns of a CSV file with a header line."""
    refuse_no_file(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (UnicodeDecodeError, csv.Error) as problem:
        raise ValueError(f"{path} is not a CSV file in UTF-8: {problem}") from None
    rows = [row for row in rows if row]
    if len(rows) < 2:
        raise ValueError(f"{path} holds {len(rows)} lines; a header and rows are needed")
    names = [name.strip() for name in rows[0]]
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise ValueError(f"{path}: two columns are called {repeated!r}; each needs a name of its own")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise ValueError(f"{path}: line {number} has {len(row)} fields, the header {len(rows[0])}")
    return {name.strip(): list(column) for name, column in zip(rows[0], zip(*rows[1:], strict=True), strict=True)}


def read_parquet(path: Path) -> Columns:
    """The columns of a parquet file, by pyarrow or pandas, whichever is installed."""
    try:
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise ValueError(f"{path}: {missing_package('pyarrow')}; a .csv is read without") from None
    try:
        return parquet.read_table(path).to_pydict()
    except (ValueError, OSError) as problem:  # pyarrow's own errors are both
        raise ValueError(f"{path} is not a readable parquet file: {problem}") from None


def from_columns(columns: Columns, how: Reading, name: str) -> Sequences:
    """The sequences of a table, read as `how` says."""
    for option in ("target", "sequence", "group", "split"):
        column = getattr(how, option)
        if column is not None and column not in columns:
            raise ValueError(f"`{option}`: {name} has no column {column!r}; {nearest(column, columns)}")
    if how.window is not None:
        return _series(columns, how, name)
    if how.sequence is None:
        raise ValueError(
            f"{name} is a table: give `sequence`, a column (a row is a token), or `window` (a row is a moment)"
        )
    return _long(columns, how, name)


def cut_windows(values: np.ndarray, target: np.ndarray, window: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Every window of a series and the target `horizon` rows after its last row.

    >>> x, y = cut_windows(np.arange(5.0)[:, None], np.arange(5.0), window=3, horizon=1)
    >>> x[:, :, 0].tolist(), y.tolist()
    ([[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]], [3.0, 4.0])
    """
    count = len(values) - window - horizon + 1
    if count < 1:
        raise ValueError(f"a series of {len(values)} rows has no window of {window} with a target {horizon} rows later")
    cut = np.lib.stride_tricks.sliding_window_view(values, window, axis=0)[:count]
    return np.moveaxis(cut, -1, 1), target[window + horizon - 1 :]


def _series(columns: Columns, how: Reading, name: str) -> Sequences:
    if how.group is not None or how.split is not None:
        raise ValueError("`group` and `split` belong to `sequence`; windows of one series are split in time")
    assert how.window is not None
    features, names, notes = _features(columns, (), name)
    target = _column(columns, how.target, name)
    x, y = cut_windows(features, target, how.window, how.horizon)
    apart = how.window + how.horizon - 1  # the next window of which no row, target included, is shared
    return sequences(
        x, y, kind=how.kind, name=name, apart=apart, notes=notes, features=names, past=names.index(how.target)
    )


def _long(columns: Columns, how: Reading, name: str) -> Sequences:
    assert how.sequence is not None
    own = tuple(c for c in (how.sequence, how.target, how.group, how.split) if c is not None)
    features, names, notes = _features(columns, own, name)
    order: dict[Any, list[int]] = {}
    for row, key in enumerate(columns[how.sequence]):
        order.setdefault(key, []).append(row)

    def each(column: str) -> list[Any]:
        return [_one(columns[column], rows, f"{column!r} in sequence {key!r}") for key, rows in order.items()]

    x = [features[rows] for rows in order.values()]
    return sequences(
        x,
        _typed(each(how.target)),
        groups=each(how.group) if how.group else None,
        kind=how.kind,
        name=name,
        notes=notes,
        features=names,
        split=each(how.split) if how.split else None,
    )


def _one(column: list[Any], rows: list[int], where: str) -> Any:
    values = {column[row] for row in rows}
    if len(values) > 1:
        few = ", ".join(map(str, sorted(values, key=str)[:3]))
        raise ValueError(f"{where} takes {len(values)} values ({few}); a sequence has one")
    return values.pop()


def _typed(values: list[Any]) -> np.ndarray:
    """Numbers where all are numbers, names otherwise."""
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError):
        return np.array([str(value) for value in values])


def _features(columns: Columns, own: tuple[str, ...], name: str) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """The columns of numbers beside those with a part of their own; a column without any number is left out."""
    others = [c for c in columns if c not in own]
    left = [c for c in others if not any(_is_number(value) for value in columns[c])]
    kept = [c for c in others if c not in left]
    if not kept:
        raise ValueError(f"{name} has no column of numbers to make tokens of")
    table = np.stack([_column(columns, c, name) for c in kept], axis=1)
    return table, tuple(kept), (f"left out, for they hold no numbers: {', '.join(left)}",) if left else ()


def _column(columns: Columns, column: str, name: str) -> np.ndarray:
    try:
        return np.array([float(value) for value in columns[column]])
    except (TypeError, ValueError):
        row, value = next((i, v) for i, v in enumerate(columns[column], start=1) if not _is_number(v))
        shown = "is empty" if value in ("", None) else f"holds {value!r}, which is no number"
        raise ValueError(f"{name}: row {row} of column {column!r} {shown}") from None


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
