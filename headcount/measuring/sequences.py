"""Sequences with their targets, as a user gives them: checked once, then trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

__all__ = ["Kind", "Sequences", "padded", "sequences"]

Kind = Literal["regression", "classification"]
LEAST = 50  # sequences; fewer cannot be split into a part to learn from and a part that tells head counts apart
# What a split column may say.
TRAINING = ("training", "train", "0", "false")
VALIDATION = ("validation", "valid", "val", "test", "held out", "1", "true")
FEW = 20  # a whole-numbered target with at most this many values is taken for classes


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences padded with zeros to the longest, and a target each.

    `y` holds numbers (one column an output) or, for classification, one column of indices into `classes`. Sequences of
    one `group` stay on one side of the split; `held_out` says which are validation where the user has split. `apart` is
    set for windows of a series, in the order of time: so many windows between two share no value; `past` is then the
    feature that is the target itself, earlier. `features` names the features where they have names. `notes` say what
    was decided while reading.
    """

    name: str
    x: Float[np.ndarray, "samples length token_dim"]
    lengths: Int[np.ndarray, " samples"]
    y: Float[np.ndarray, "samples outputs"]
    classes: tuple[str, ...] = ()
    groups: Int[np.ndarray, " samples"] | None = None
    apart: int | None = None
    notes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    past: int | None = None
    held_out: Bool[np.ndarray, " samples"] | None = None

    def __len__(self) -> int:
        return len(self.x)

    @property
    def kind(self) -> Kind:
        """What the target is."""
        return "classification" if self.classes else "regression"

    @property
    def digest(self) -> str:
        """The fingerprint of everything that training sees."""
        seen = hashlib.sha256(f"{self.x.shape} {self.classes} {self.apart}".encode())
        given = (self.x, self.lengths, self.y, self.groups, *(() if self.held_out is None else (self.held_out,)))
        for array in given:
            seen.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return seen.hexdigest()[:16]


def sequences(
    x: Any,
    y: Any,
    *,
    lengths: Any = None,
    groups: Any = None,
    kind: str | None = None,
    name: str = "data",
    apart: int | None = None,
    notes: Sequence[str] = (),
    features: Sequence[str] = (),
    past: int | None = None,
    split: Any = None,
) -> Sequences:
    """Check sequences and targets: `x` as (samples, length, token_dim), (samples, length), or a list of ragged ones.

    >>> found = sequences([[[1.0], [2.0]], [[3.0]]] * 30, ["up", "down"] * 30)
    >>> found.x.shape, found.lengths[:2].tolist(), found.classes
    ((60, 2, 1), [2, 1], ('down', 'up'))
    >>> sequences(np.eye(60), np.zeros(60))
    Traceback (most recent call last):
    ...
    ValueError: every target is 0: there is nothing to learn
    """
    tokens, counts = padded(x, lengths)
    if len(tokens) < LEAST:
        raise ValueError(f"{name} holds {len(tokens)} sequences; measuring needs at least {LEAST}")
    target = np.asarray(y)
    if target.ndim not in (1, 2) or len(target) != len(tokens):
        shape = tuple(target.shape)
        raise ValueError(f"there are {len(tokens)} sequences, so y must be ({len(tokens)},) numbers, got shape {shape}")
    _refuse_gaps(tokens, counts)
    values, classes, said = _target(target, kind)
    return Sequences(
        name, tokens, counts, values, classes, _groups(groups, len(tokens)), apart, (*notes, *said),
        tuple(features), past, None if split is None else _held_out(split, len(tokens)),
    )  # fmt: skip


def _held_out(split: Any, count: int) -> np.ndarray:
    """Which sequences are validation, by names as training and validation, or by 0 and 1.

    >>> _held_out(["train", "test", "Validation"], 3).tolist(), _held_out([0, 1], 2).tolist()
    ([False, True, True], [False, True])
    """
    named = [str(value).strip().lower().removesuffix(".0") for value in np.asarray(split).ravel().tolist()]
    if len(named) != count:
        raise ValueError(f"there are {count} sequences, so split must hold as many names, got {len(named)}")
    strange = next((value for value in named if value not in TRAINING + VALIDATION), None)
    if strange is not None:
        raise ValueError(f"split holds {strange!r}; it takes training and validation (or train, test, 0, 1)")
    return np.array([value in VALIDATION for value in named])


def padded(x: Any, lengths: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Sequences padded with zeros to the longest, and their lengths."""
    if isinstance(x, list | tuple):
        return _ragged([_numbers(one) for one in x])
    tokens = _numbers(x)
    if tokens.ndim == 2:
        tokens = tokens[:, :, None]
    if tokens.ndim != 3 or 0 in tokens.shape:
        raise ValueError(f"x must be (samples, length, token_dim) or (samples, length), got shape {tokens.shape}")
    if lengths is None:
        return tokens, np.full(len(tokens), tokens.shape[1])
    counts = np.asarray(lengths)
    if counts.shape != (len(tokens),) or counts.dtype.kind not in "iu":
        raise ValueError(f"lengths must be {len(tokens)} whole numbers, got {counts.dtype} of shape {counts.shape}")
    if counts.min() < 1 or counts.max() > tokens.shape[1]:
        raise ValueError(f"lengths run from {counts.min()} to {counts.max()}; x has room for 1 to {tokens.shape[1]}")
    counts = counts.astype(np.int64)
    present = np.arange(tokens.shape[1]) < counts[:, None]
    longest = int(counts.max())
    return np.where(present[..., None], tokens, 0.0)[:, :longest], counts


def _ragged(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    if not parts:
        raise ValueError("x is empty: there is no sequence in it")
    parts = [part[:, None] if part.ndim == 1 else part for part in parts]
    widths = {part.shape[1:] for part in parts}
    if len(widths) != 1 or parts[0].ndim != 2:
        raise ValueError(f"every sequence must be (length, token_dim) with one token_dim, got {sorted(widths)[:4]}")
    counts = np.array([len(part) for part in parts])
    if counts.min() < 1:
        raise ValueError(f"sequence {int(counts.argmin())} has no tokens")
    tokens = np.zeros((len(parts), int(counts.max()), *widths.pop()), dtype=np.float32)
    for i, part in enumerate(parts):
        tokens[i, : len(part)] = part
    return tokens, counts


def _numbers(x: Any) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"x must hold numbers, got values of type {array.dtype}")
    return array.astype(np.float32)


def _refuse_gaps(tokens: np.ndarray, counts: np.ndarray) -> None:
    bad = ~np.isfinite(tokens)
    if bad.any():
        i, t, k = (int(place) for place in np.argwhere(bad)[0])
        raise ValueError(
            f"{int(bad.sum())} of {tokens.size} values of x are NaN or infinite, the first in sequence {i}, "
            f"token {t}, feature {k}; fill or drop them first"
        )
    if bool((tokens == tokens[0, 0]).all()) and (counts == counts[0]).all():
        raise ValueError("every token of every sequence is the same: there is nothing to look up")


def _target(y: np.ndarray, kind: str | None) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    if kind not in (None, "regression", "classification"):
        raise ValueError(f"kind must be regression or classification, got {kind!r}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        place = int(np.argwhere(~np.isfinite(y))[0][0])
        raise ValueError(f"{int((~np.isfinite(y)).sum())} targets are NaN or infinite, the first in sequence {place}")
    if y.dtype.kind not in "fiubUS":
        raise ValueError(f"y must hold numbers or names of classes, got values of type {y.dtype}")
    said: tuple[str, ...] = ()
    if kind is None:
        kind = _guessed(y)
        other = "regression" if kind == "classification" else "classification"
        said = (f"the target was read as {kind}; `kind` {other} reads it as the other",) if _whole(y) else ()
    return *(_classes(y) if kind == "classification" else _values(y)), said


def _guessed(y: np.ndarray) -> Kind:
    if y.dtype.kind in "USb":
        return "classification"
    return "classification" if _whole(y) and 2 <= len(np.unique(y)) <= FEW else "regression"


def _whole(y: np.ndarray) -> bool:
    """Whether the targets are whole numbers, which may be counts or names."""
    return y.ndim == 1 and y.dtype.kind in "fiu" and bool((y == np.round(y)).all())


def _classes(y: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    if y.ndim == 2 and y.shape[1] != 1:
        raise ValueError(f"for classification y must be one class a sequence, got shape {y.shape}")
    names, index = np.unique(y.reshape(len(y)), return_inverse=True)
    if len(names) == 1:
        raise ValueError(f"every sequence is of class {names[0]}: classification needs at least two classes")
    if len(names) > len(y) / 4:
        raise ValueError(f"{len(names)} classes among {len(y)} sequences are too many to learn; is `kind` regression?")
    words = tuple(f"{name:g}" if y.dtype.kind == "f" else str(name) for name in names)
    return index.reshape(-1, 1).astype(np.float32), words


def _values(y: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    if y.dtype.kind in "US":
        raise ValueError(f"regression needs numbers as targets, got names such as {y.flat[0]!r}")
    values = y.reshape(len(y), -1).astype(np.float64)
    still = values.std(axis=0) <= 1e-9 * np.abs(values).max(axis=0)
    if still.all():
        raise ValueError(f"every target is {values[0, 0]:g}: there is nothing to learn")
    if still.any():
        raise ValueError(f"output {int(still.argmax())} of y is the same for every sequence: leave it out")
    return values, ()


def _groups(groups: Any, count: int) -> np.ndarray | None:
    if groups is None:
        return None
    array = np.asarray(groups)
    if array.shape != (count,):
        raise ValueError(f"groups must name one group for each of {count} sequences, got shape {array.shape}")
    index = np.unique(array, return_inverse=True)[1].reshape(-1)
    if index.max() == 0:
        raise ValueError("all sequences are of one group, which cannot be on both sides of a split")
    return index.astype(np.int64)
