"""Sequences and their outputs from a `.npz` file: x, y, and lengths where they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headcount.files import arrays_in
from headcount.refusals import refuse_unknown

KEYS = ("x", "y", "lengths")
PairFile = tuple[list[np.ndarray], list[np.ndarray], tuple[Any, ...]]


def read_pairs(path: Path) -> PairFile:
    """Sequences, outputs, and the labels in the order of their targets (none where y holds tokens).

    x is (count, length, token_dim), shorter sequences padded with NaN or cut by `lengths`. y is (count,) labels, for
    which class k gets the target (k + 1)(1, ..., 1), (count, token_dim) outputs, or (count, most, token_dim) sets of
    them, padded with NaN.
    """
    arrays = arrays_in(path)
    refuse_unknown(arrays, KEYS, str(path))
    for key in ("x", "y"):
        if key not in arrays:
            raise ValueError(f"{path} lacks {key!r}; it has {', '.join(arrays) or 'no arrays'}")
    rows = _sequences(arrays["x"], arrays.get("lengths"), path)
    return rows, *_outputs(arrays["y"], rows, path)


def _sequences(x: np.ndarray, lengths: np.ndarray | None, path: Path) -> list[np.ndarray]:
    if x.ndim != 3 or not np.issubdtype(x.dtype, np.number):
        raise ValueError(f"{path}: x must be numbers (count, length, token_dim), got {x.dtype} {x.shape}")
    x = x.astype(np.float64)
    if lengths is None:
        return [row[~np.isnan(row).all(axis=1)] for row in x]
    if lengths.shape != (len(x),) or lengths.min() < 1 or lengths.max() > x.shape[1]:
        raise ValueError(f"{path}: lengths must be {len(x)} whole numbers from 1 to {x.shape[1]}")
    return [row[: int(n)] for row, n in zip(x, lengths, strict=True)]


def _outputs(y: np.ndarray, rows: list[np.ndarray], path: Path) -> tuple[list[np.ndarray], tuple[Any, ...]]:
    dim = rows[0].shape[1] if rows else 0
    if y.ndim not in (1, 2, 3) or len(y) != len(rows) or (y.ndim > 1 and y.shape[-1] != dim):
        raise ValueError(
            f"{path}: y must be labels ({len(rows)},), outputs ({len(rows)}, {dim}) or sets ({len(rows)}, most, {dim})"
            f", got {y.shape}"
        )
    if y.ndim == 1:
        classes, of = np.unique(y, return_inverse=True)
        return [np.full((1, dim), k + 1.0) for k in of], tuple(classes.tolist())
    if not np.issubdtype(y.dtype, np.number):
        raise ValueError(f"{path}: y must hold numbers, got {y.dtype}")
    sets = y.astype(np.float64)[:, None] if y.ndim == 2 else y.astype(np.float64)
    return [rows_[~np.isnan(rows_).all(axis=1)] for rows_ in sets], ()
