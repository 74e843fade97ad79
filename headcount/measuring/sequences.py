"""Sequences with their targets, as a user gives them: checked once, then trusted."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.numerals import counted

Kind = Literal["regression", "classification"]
Tokens = Literal["numbers", "letters"]
LEAST = 50  # sequences; fewer cannot be split into a part to learn from and a part that tells head counts apart
# What a split column may say.
TRAINING = ("training", "train", "0", "false")
VALIDATION = ("validation", "valid", "val", "test", "held out", "1", "true")
FEW = 20  # a whole-numbered target with at most this many values is taken for classes
MOST_LETTERS = 20_000  # rows of a table of ids
RARE = 0.1  # a class with a smaller share is counted aloud


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences padded to the longest, and a target each.

    `x` holds numbers as they were given, in float64 and with NaN where one is missing; or, where `letters` names them,
    ids: letter number i of the list has id i + 1, and id 0 is for letters never seen. `y` holds numbers (one column an
    output) or, for classification, one column of indices into `classes`, which are labels of the type given. Sequences
    of one `group` stay on one side of the split; `held_out` says which are validation where the user has split. `apart`
    is set for windows of a series, in the order of time: so many windows between two share no value; `past` is then the
    feature that is the target itself, earlier. In a `wide` table every place has units of its own. `features` names the
    features where they have names; `text` says how a column of texts was cut, by characters or words. `notes` say what
    was decided while reading.
    """

    name: str
    x: Float[np.ndarray, "samples length token_dim"] | Int[np.ndarray, "samples length"]
    lengths: Int[np.ndarray, " samples"]
    y: Float[np.ndarray, "samples outputs"]
    classes: tuple[Any, ...] = ()
    groups: Int[np.ndarray, " samples"] | None = None
    apart: int | None = None
    notes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    past: int | None = None
    held_out: Bool[np.ndarray, " samples"] | None = None
    letters: tuple[Any, ...] = ()
    wide: bool = False
    text: str = ""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def kind(self) -> Kind:
        """What the target is."""
        return "classification" if self.classes else "regression"

    @property
    def token_dim(self) -> int:
        """Numbers that a token has; none where it is a letter."""
        return 0 if self.letters else self.x.shape[2]

    @property
    def rarest(self) -> tuple[Any, int] | None:
        """The class with the fewest sequences, and how many those are."""
        if not self.classes:
            return None
        counts = np.bincount(self.y[:, 0].astype(int), minlength=len(self.classes))
        return self.classes[int(counts.argmin())], int(counts.min())

    @property
    def uneven(self) -> bool:
        """Whether the rarest class has less than half of an even share, so that its sequences are what counts."""
        return self.rarest is not None and 2 * self.rarest[1] * len(self.classes) < len(self)

    @property
    def digest(self) -> str:
        """The fingerprint of everything that training sees."""
        digest = hashlib.sha256(f"{self.x.shape} {self.classes} {self.apart} {self.letters} {self.wide}".encode())
        arrays = (self.x, self.lengths, self.y, self.groups, *(() if self.held_out is None else (self.held_out,)))
        for array in arrays:
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def sequences(
    x: Any,
    y: Any,
    *,
    lengths: Any = None,
    groups: Any = None,
    kind: str | None = None,
    tokens: str | None = None,
    name: str = "data",
    apart: int | None = None,
    notes: Sequence[str] = (),
    features: Sequence[str] = (),
    past: int | None = None,
    split: Any = None,
    wide: bool = False,
) -> Sequences:
    """Check sequences and targets: `x` as (samples, length, token_dim), (samples, length), or a list of ragged ones.

    Texts, and lists of words or whole numbers without features, are read as letters unless `tokens` says numbers.

    >>> found = sequences([[[1.0], [2.0]], [[3.0]]] * 30, ["up", "down"] * 30)
    >>> found.x.shape, found.lengths[:2].tolist(), found.classes
    ((60, 2, 1), [2, 1], ('down', 'up'))
    >>> found = sequences(["abba", "b"] * 30, [1.5, 0.0] * 30)
    >>> found.letters, found.x[:2].tolist()
    (('a', 'b'), [[1, 2, 2, 1], [2, 0, 0, 0]])
    >>> sequences(np.eye(60), np.zeros(60))
    Traceback (most recent call last):
    ...
    ValueError: every target is 0: there is nothing to learn
    """
    letters, remarks = (), ()
    x = list(x) if isinstance(x, np.ndarray) and x.dtype == object else x  # ragged ones
    if _are_letters(x, tokens):
        values, counts, letters = padded_letters(x, lengths)
        remarks = _letter_remarks(x, letters)
    else:
        values, counts = padded(x, lengths)
    if len(values) < LEAST:
        raise ValueError(f"{name} holds {len(values)} sequences; measuring needs at least {LEAST}")
    target = _targets(y, len(values), values.shape[1])
    if not letters:
        remarks = _refuse_infinite(values, counts)
    numbers, classes, more = _target(target, kind)
    return Sequences(
        name, values, counts, numbers, classes, _groups(groups, len(values)), apart, (*notes, *remarks, *more),
        tuple(features), past, None if split is None else _held_out(split, len(values)), letters, wide,
    )  # fmt: skip


def _are_letters(x: Any, tokens: str | None) -> bool:
    """Whether the tokens are letters: texts and words are, and so are whole numbers without features."""
    if tokens not in (None, "numbers", "letters"):
        raise ValueError(f"tokens must be numbers or letters, got {tokens!r}")
    if tokens is not None:
        return tokens == "letters"
    if isinstance(x, list | tuple):
        return bool(x) and (isinstance(x[0], str) or (np.asarray(x[0]).ndim == 1 and _kind_of(x[0]) in "USiu"))
    array = np.asarray(x)
    return array.dtype.kind in "US" or (array.ndim == 2 and array.dtype.kind in "iu")


def _kind_of(one: Any) -> str:
    return np.asarray(one).dtype.kind


def _letter_remarks(x: Any, letters: tuple[Any, ...]) -> tuple[str, ...]:
    sentence = f"tokens were read as {counted(len(letters), 'letter')}"
    numeric = not isinstance(letters[0], str)
    return (f"{sentence}; `tokens` numbers reads them as numbers" if numeric else sentence,)


def padded_letters(
    x: Any, lengths: Any = None, letters: Sequence[Any] = ()
) -> tuple[np.ndarray, np.ndarray, tuple[Any, ...]]:
    """Ids padded with 0 to the longest, the lengths, and the letters: those found, in order, unless given.

    >>> ids, lengths, _ = padded_letters(["ab", "ax"], letters=("a", "b"))
    >>> ids.tolist(), lengths.tolist()
    ([[1, 2], [1, 0]], [2, 2])
    """
    parts = [list(one) if isinstance(one, str) else np.asarray(one).ravel().tolist() for one in x]
    if lengths is not None:
        parts = [one[:count] for one, count in zip(parts, np.asarray(lengths).tolist(), strict=True)]
    empty = next((i for i, one in enumerate(parts) if not one), None)
    if empty is not None:
        raise ValueError(f"sequence {empty} has no tokens")
    known = tuple(letters) or tuple(
        sorted({letter for one in parts for letter in one}, key=lambda v: (str(type(v)), v))
    )
    if len(known) > MOST_LETTERS:
        raise ValueError(f"{len(known):,} different letters are more than {MOST_LETTERS:,}; are the tokens numbers?")
    ids = {letter: i for i, letter in enumerate(known, start=1)}
    counts = np.array([len(one) for one in parts])
    token_ids = np.zeros((len(parts), int(counts.max())), dtype=np.int64)
    for row, one in zip(token_ids, parts, strict=True):
        row[: len(one)] = [ids.get(letter, 0) for letter in one]
    return token_ids, counts, known


def _targets(y: Any, count: int, longest: int) -> np.ndarray:
    target = _natural(y)
    if target.ndim not in (1, 2) or len(target) != count:
        raise ValueError(f"there are {count} sequences, so y must be ({count},) numbers, got shape {target.shape}")
    if target.ndim == 2 and target.shape[1] == longest > 2:
        raise ValueError(f"y has {longest} values a sequence, one per token: measure predicts one answer per sequence")
    return target


def _natural(y: Any) -> np.ndarray:
    """Targets as an array of the type that its values have, where they came as objects.

    >>> _natural(np.array(["a", "b"], dtype=object)).dtype.kind, _natural(np.array([1, 2.5], dtype=object)).dtype.kind
    ('U', 'f')
    """
    array = np.asarray(y)
    if array.dtype.kind != "O":
        return array
    gone = next((i for i, value in enumerate(array.ravel().tolist()) if value is None or value != value), None)
    if gone is not None:
        raise ValueError(f"target {gone} is missing ({array.ravel()[gone]}): leave sequences without a target out")
    return np.array(array.tolist())


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
    """Sequences of numbers padded with zeros to the longest, in float64, and their lengths."""
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
    tokens = np.zeros((len(parts), int(counts.max()), *widths.pop()))
    for i, part in enumerate(parts):
        tokens[i, : len(part)] = part
    return tokens, counts


def _numbers(x: Any) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"x must hold numbers, got values of type {array.dtype}")
    return array.astype(np.float64)


def _refuse_infinite(tokens: np.ndarray, counts: np.ndarray) -> tuple[str, ...]:
    """Refuse what cannot be scaled; say how much is missing."""
    bad = np.isinf(tokens)
    if bad.any():
        i, t, k = (int(place) for place in np.argwhere(bad)[0])
        where = f"the first in sequence {i}, token {t}, feature {k}"
        raise ValueError(
            f"{int(bad.sum())} of {tokens.size} values of x are infinite, {where}; as NaN they count as missing"
        )
    missing = np.isnan(tokens)
    if missing.all():
        raise ValueError("every value of x is missing: there is nothing to look up")
    if bool((tokens == tokens[0, 0]).all()) and (counts == counts[0]).all():
        raise ValueError("every token of every sequence is the same: there is nothing to look up")
    if not missing.any():
        return ()
    return (f"{int(missing.sum()):,} values are missing; a token shows which, and they count as the mean",)


def _target(y: np.ndarray, kind: str | None) -> tuple[np.ndarray, tuple[Any, ...], tuple[str, ...]]:
    if kind not in (None, "regression", "classification"):
        raise ValueError(f"kind must be regression or classification, got {kind!r}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        place = int(np.argwhere(~np.isfinite(y))[0][0])
        bad = f"{int((~np.isfinite(y)).sum())} targets are NaN or infinite, the first in sequence {place}"
        raise ValueError(f"{bad}: leave sequences without a target out")
    if y.dtype.kind not in "fiubUS":
        raise ValueError(f"y must hold numbers or names of classes, got values of type {y.dtype}")
    remarks: tuple[str, ...] = ()
    if kind is None:
        kind = _guessed(y)
        other = "regression" if kind == "classification" else "classification"
        remarks = (f"the target was read as {kind}; `kind` {other} reads it as the other",) if _integral(y) else ()
    if kind == "regression":
        return *_values(y), remarks
    index, classes = _classes(y)
    return index, classes, (*remarks, *_rare_remarks(index, classes))


def _rare_remarks(index: np.ndarray, classes: tuple[Any, ...]) -> tuple[str, ...]:
    counts = np.bincount(index[:, 0].astype(int), minlength=len(classes))
    if counts.min() >= RARE * len(index) or len(classes) > 1 / RARE:
        return ()
    return (f"of class {classes[int(counts.argmin())]} there are only {counts.min()} of {len(index)} sequences",)


def _guessed(y: np.ndarray) -> Kind:
    if y.dtype.kind in "USb":
        return "classification"
    return "classification" if _integral(y) and 2 <= len(np.unique(y)) <= FEW else "regression"


def _integral(y: np.ndarray) -> bool:
    """Whether the targets are whole numbers, which may be counts or names."""
    return y.ndim == 1 and y.dtype.kind in "fiu" and bool((y == np.round(y)).all())


def _classes(y: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Indices into the labels, which keep their type.

    >>> _classes(np.array([7, 5, 7, 5, 5, 7, 7, 5]))[1]
    (5, 7)
    """
    if y.ndim == 2 and y.shape[1] != 1:
        raise ValueError(f"for classification y must be one class a sequence, got shape {y.shape}")
    names, index = np.unique(y.reshape(len(y)), return_inverse=True)
    if len(names) == 1:
        raise ValueError(f"every sequence is of class {names[0]}: classification needs at least two classes")
    if len(names) > len(y) / 4:
        raise ValueError(f"{len(names)} classes among {len(y)} sequences are too many to learn; is `kind` regression?")
    return index.reshape(-1, 1).astype(np.float32), tuple(names.tolist())


def _values(y: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...]]:
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
