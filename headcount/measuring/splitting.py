"""A training and a validation part that share nothing: not a group, not a value of a series, not a sequence."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from headcount.measuring.sequences import Sequences
from headcount.numerals import counted

__all__ = ["Split", "split"]

SHARE = 0.2  # of the sequences, held out for validation
LEAST_VALIDATION = 10


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of both parts, and how they were told apart, in words."""

    training: Int[np.ndarray, " training"]
    validation: Int[np.ndarray, " validation"]
    words: str


def split(data: Sequences, seed: int = 0) -> Split:
    """Hold out what the data say, or a fifth: the last of a series, whole groups, or sequences with all their copies.

    A gap before the last of a series keeps the parts from sharing a value.

    >>> from headcount.measuring.sequences import sequences
    >>> x = np.arange(200.0).repeat(2)[:, None]
    >>> parts = split(sequences(x, np.sin(x[:, 0])))
    >>> len(parts.training), len(parts.validation)
    (320, 80)
    >>> set(x[parts.training, 0]) & set(x[parts.validation, 0])
    set()
    """
    marks = _fingerprints(data)
    if data.held_out is not None:
        training, validation, words = *_as_given(data.held_out, data.groups), "as the data say"
    elif data.apart is not None:
        training, validation, words = _in_time(data)
    elif data.groups is not None:
        training, validation, words = *_by_groups(data.groups, seed), "by groups, each on one side"
    else:
        training, validation, words = *_by_groups(marks, seed), "at random, copies of a sequence on one side"
    validation, dropped = _without_copies(marks, training, validation)
    if dropped:
        words += f"; {counted(dropped, 'sequence')} that training holds too stayed out of validation"
    distinct = len(np.unique(marks[validation]))
    if distinct < LEAST_VALIDATION:
        raise ValueError(
            f"only {distinct} different sequences are left for validation once groups and copies are kept apart; "
            f"at least {LEAST_VALIDATION} are needed"
        )
    _refuse_still(data, training, validation)
    return Split(training, validation, words)


def _as_given(held_out: np.ndarray, groups: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    training, validation = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    if groups is not None and (both := np.intersect1d(groups[training], groups[validation])).size:
        raise ValueError(f"split puts {len(both)} groups on both sides; a group belongs to one")
    if not training.size or not validation.size:
        raise ValueError(f"split puts all {len(held_out)} sequences on one side; both are needed")
    return training, validation


def _in_time(data: Sequences) -> tuple[np.ndarray, np.ndarray, str]:
    assert data.apart is not None
    first = len(data) - round(SHARE * len(data))
    last = first - data.apart
    if last < len(data) // 4:
        raise ValueError(
            f"{len(data)} windows are too few to split in time with a gap of {data.apart} between the parts; "
            "take a shorter window or a longer series"
        )
    words = f"in time, {data.apart} windows left out between the parts so that they share no value"
    return np.arange(last), np.arange(first, len(data)), words


def _by_groups(groups: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole groups in a random order into validation, up to its share and one group at least."""
    names, sizes = np.unique(groups, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    before = np.cumsum(sizes[order]) - sizes[order]
    room = SHARE * len(groups)
    held = order[(before == 0) | (before + sizes[order] <= room + 0.5)]
    inside = np.isin(groups, names[held])
    return np.flatnonzero(~inside), np.flatnonzero(inside)


def _fingerprints(data: Sequences) -> np.ndarray:
    """A mark a sequence that is the same for copies."""
    tokens = np.ascontiguousarray(data.x)
    marks = [
        hashlib.blake2b(x[:n].tobytes(), digest_size=12).hexdigest() for x, n in zip(tokens, data.lengths, strict=True)
    ]
    return np.array(marks)


def _without_copies(marks: np.ndarray, training: np.ndarray, validation: np.ndarray) -> tuple[np.ndarray, int]:
    fresh = validation[~np.isin(marks[validation], marks[training])]
    return fresh, len(validation) - len(fresh)


def _refuse_still(data: Sequences, training: np.ndarray, validation: np.ndarray) -> None:
    for name, rows in (("training", training), ("validation", validation)):
        if not (data.y[rows] != data.y[rows[0]]).any():
            word = f"of class {data.classes[int(data.y[rows[0], 0])]}" if data.classes else "the same"
            raise ValueError(f"after the split every target of the {name} part is {word}; more varied data are needed")
