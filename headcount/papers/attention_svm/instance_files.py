"""One instance of token selection in an npz file: tokens and queries, and chosen tokens or labels with a read-out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headcount.files import arrays_in, atomic_write
from headcount.papers.attention_svm.margins import MaxMargin
from headcount.refusals import nearest

if TYPE_CHECKING:
    from headcount.papers.attention_svm.path_picture import Gaps

KNOWN = ("tokens", "queries", "chosen", "labels", "read_out", "weights", "dual")

LARGEST = 1e60  # of a number in a file: products of five are finite


@dataclass(frozen=True, eq=False)
class SelectionFile:
    """What a file holds; labels and read-out only where it has them."""

    tokens: np.ndarray
    queries: np.ndarray
    chosen: np.ndarray
    labels: np.ndarray | None = None
    read_out: np.ndarray | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """n, T and d."""
        n, length, d = self.tokens.shape
        return {"sequences": n, "length": length, "token_dim": d}


def read_selection(path: Path) -> SelectionFile:
    """The instance in a file; without `chosen`, the tokens of the largest score Y_i v.x_it are chosen."""
    arrays = _arrays(path)
    for name in ("tokens", "queries"):
        if name not in arrays:
            raise ValueError(f"{path} has no array {name!r}; {nearest(name, arrays)}")
    x = _numbers(path, "tokens", arrays["tokens"], 3, "(sequences, length, token_dim)")
    z = _numbers(path, "queries", arrays["queries"], 2, "(sequences, query_dim)")
    labels = read_out = None
    if "labels" in arrays or "read_out" in arrays:
        labels, read_out = _labelled(path, arrays, x)
    if "chosen" in arrays:
        return SelectionFile(x, z, arrays["chosen"], labels, read_out)
    if labels is None or read_out is None:
        raise ValueError(f"{path} says no choice: give `chosen`, or `labels` (+-1) and `read_out`")
    return SelectionFile(x, z, (labels[:, None] * (x @ read_out)).argmax(axis=1), labels, read_out)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    arrays = arrays_in(path)
    for name in arrays:
        if name not in KNOWN:
            raise ValueError(f"unknown array {name!r} in {path}; {nearest(name, KNOWN)}")
    return arrays


def _numbers(path: Path, name: str, value: np.ndarray, axes: int, shape: str) -> np.ndarray:
    if value.ndim != axes or value.dtype.kind not in "fiub" or not value.size:
        raise ValueError(f"{name} in {path} must be numbers of shape {shape}, got {value.dtype} {value.shape}")
    value = value.astype(float)
    if not (np.abs(value) < LARGEST).all():
        raise ValueError(f"{name} in {path} must be finite numbers below {LARGEST:.0e}, whose products are finite too")
    return value


def _labelled(path: Path, arrays: dict[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    missing = [name for name in ("labels", "read_out") if name not in arrays]
    if missing:
        raise ValueError(f"{path} has no {missing[0]!r}: labels and read_out come together")
    labels = _numbers(path, "labels", arrays["labels"], 1, "(sequences,)")
    read_out = _numbers(path, "read_out", arrays["read_out"], 1, "(token_dim,)")
    if labels.shape != (len(x),) or not np.isin(labels, (-1.0, 1.0)).all():
        raise ValueError(f"labels in {path} must be {len(x)} numbers -1 or 1")
    if read_out.shape != (x.shape[2],):
        raise ValueError(f"read_out in {path} must have the tokens' {x.shape[2]} coordinates, got {len(read_out)}")
    return labels, read_out


def write_solution(path: Path, data: SelectionFile, solution: MaxMargin) -> Path:
    """The instance with its solution, as `read_selection` reads it again."""
    extra = {} if data.labels is None else {"labels": data.labels, "read_out": data.read_out}
    with atomic_write(path) as scratch, scratch.open("wb") as file:
        np.savez(file, tokens=data.tokens, queries=data.queries, chosen=data.chosen, weights=solution.weights,
                 dual=solution.dual, **extra)  # fmt: skip
    return path


def trained_gaps(data: SelectionFile, steps: int = 2000) -> dict[str, Gaps]:
    """Train W and (K, Q) on the instance: 1 - cosine to both solutions for the tokens each chose, step by step."""
    import torch

    from headcount.papers.attention_svm.descent import select
    from headcount.papers.attention_svm.direction import direction_gap
    from headcount.papers.attention_svm.experiments import solutions
    from headcount.papers.attention_svm.selection import Instances

    if data.labels is None or data.tokens.shape[2] != data.queries.shape[1]:
        return {}
    parts = (data.tokens, data.queries, data.labels, data.read_out)
    one = Instances(*(torch.as_tensor(np.asarray(part))[None] for part in parts))
    gaps_by_name: dict[str, Gaps] = {}
    for name, factored in (("W", False), ("K and Q", True)):
        path = select(one, factored=factored, steps=steps, looks=20, generator=torch.Generator().manual_seed(0))
        solved = solutions(one, path, 0)
        if solved is not None:
            gaps = [direction_gap(path.weights[:, 0].numpy(), s.weights).tolist() for s in solved]
            names = ("Frobenius", "nuclear")
            gaps_by_name[name] = {
                n: list(zip(map(float, path.steps), g, strict=True)) for n, g in zip(names, gaps, strict=True)
            }
    return gaps_by_name
