"""Outer parts that nobody has seen, over several splits, and inside each training part an inner one to choose by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from headcount.measuring.sequences import Sequences
from headcount.numerals import counted

FOLDS = 5  # outer parts, which share nothing among them; splits that are alike modulo 5 have the same one
MOST_SPLITS = 20  # four inner parts to each outer one
MOST_PILES, FEWEST_PILES = 6, 4  # of what is not outer, one of them for choosing; fewer where one has less than
ENOUGH_INNER = 60  # sequences
BLOCKS = 32  # of sequences, by which it is told what their choice does to an error
LEAST_OUTER = 10
MOST_TRAINING, MOST_OUTER = 8000, 4000  # sequences of a part; more make every contestant slower alike


@dataclass(frozen=True, eq=False)
class Split:
    """The rows that are trained on, that choices are made by, and that judge; how they were told apart, in words.

    `blocks` numbers the block of every sequence of the data, the same in all splits: whole groups, or pieces of time.
    """

    training: Int[np.ndarray, " training"]
    inner: Int[np.ndarray, " inner"]
    outer: Int[np.ndarray, " outer"]
    words: str
    blocks: Int[np.ndarray, " samples"] = field(default_factory=lambda: np.zeros(0, dtype=int))

    def in_blocks(self, losses: Float[np.ndarray, " outer"]) -> list[float]:
        """The sum of these over the outer sequences of every block, to five digits."""
        sums = np.bincount(self.blocks[self.outer], weights=losses, minlength=int(self.blocks.max()) + 1)
        return [float(f"{one:.5g}") for one in sums]


def outer_splits(data: Sequences, count: int = MOST_SPLITS) -> tuple[Split, ...]:
    """`count` splits: parts in time, whole groups, or sequences with all their copies, a fifth of them outer.

    Five splits in a row have outer parts that share nothing, and the five after them the same ones with other inner
    parts: what is chosen for an outer part may be chosen by all its inner parts, none of which has seen it. Windows
    have one inner part, the latest. Where the data say what is held out, that is outer in pieces, one a split.

    >>> from headcount.measuring.sequences import sequences
    >>> x = np.arange(200.0).repeat(2)[:, None]
    >>> parts = outer_splits(sequences(x, np.sin(x[:, 0])), 5)
    >>> len(parts), {len(part.outer) for part in parts}, set(x[parts[0].training, 0]) & set(x[parts[0].outer, 0])
    (5, {80}, set())
    """
    fingerprints = _fingerprints(data)
    if data.held_out is not None:
        pairs, words = _as_given(data.held_out, data.groups), "as the data say"
    elif data.apart is not None:
        pairs = _in_time(data)
        words = f"in time, {data.apart} windows left out between the parts so that they share no value"
    elif data.groups is not None:
        pairs, words = _by_folds(data.groups, None), "by groups, each on one side"
    else:
        pairs, words = _by_folds(fingerprints, _classes(data)), "at random, copies of a sequence on one side"
    blocks = _blocks(data, fingerprints, pairs)
    found = (_split(data, fingerprints, n, *pairs[n % FOLDS % len(pairs)]) for n in range(count))
    return tuple(Split(*three, words + more, blocks) for three, more in found)


def _blocks(data: Sequences, marks: np.ndarray, pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """At most 32 blocks of whole groups, or of sequences with all their copies; of windows, those in a row."""
    if data.apart is None:
        return _dealt(marks if data.groups is None else data.groups, None, 0, BLOCKS)
    judged = np.unique(np.concatenate([outer for _, outer in pairs]))
    blocks = np.zeros(len(data), dtype=int)
    blocks[judged] = np.arange(len(judged)) * min(BLOCKS, len(judged)) // len(judged)
    return blocks


def _split(
    data: Sequences, fingerprints: np.ndarray, number: int, rest: np.ndarray, outer: np.ndarray
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], str]:
    """Training, inner and outer rows, and what was left out, in words."""
    words = ""
    outer, dropped = _without_copies(fingerprints, rest, outer)
    if dropped:
        words += f"; {counted(dropped, 'sequence')} that training holds too stayed out of validation"
    distinct = len(np.unique(fingerprints[outer]))
    if distinct < LEAST_OUTER:
        raise ValueError(
            f"only {distinct} different sequences are left for validation once groups and copies are kept apart; "
            f"at least {LEAST_OUTER} are needed"
        )
    if data.apart is not None:
        cut = len(rest) - round(len(rest) / _inner_piles(len(rest)))
        training, inner = rest[: max(cut - data.apart, 1)], rest[cut:]
    elif data.groups is None:
        training, inner = _cut_off(rest, fingerprints[rest], _classes(data, rest), number)
    else:
        training, inner = _cut_off(rest, data.groups[rest], None, number)
    if len(training) > MOST_TRAINING or len(outer) > MOST_OUTER:
        words += f"; at most {MOST_TRAINING:,} of a part are trained on and {MOST_OUTER:,} judge"
    training = _some(training, MOST_TRAINING, number)
    inner, outer = _some(inner, MOST_OUTER, number), _some(outer, MOST_OUTER, number)
    for name, rows in (("training", training), ("inner", inner), ("validation", outer)):
        _refuse_still(data, rows, name)
    return (training, inner, outer), words


def _classes(data: Sequences, rows: np.ndarray | slice = slice(None)) -> Int[np.ndarray, " rows"] | None:
    return data.y[rows, 0].astype(int) if data.classes else None


def _inner_piles(rest: int) -> int:
    """Into how many piles the sequences that are not outer are dealt: one of them is chosen by.

    >>> [_inner_piles(n) for n in (100, 300, 2000)]
    [4, 5, 6]
    """
    return min(MOST_PILES, max(FEWEST_PILES, rest // ENOUGH_INNER))


def _some(rows: np.ndarray, most: int, seed: int) -> np.ndarray:
    return rows if len(rows) <= most else np.sort(np.random.default_rng(seed).permutation(rows)[:most])


def _as_given(held_out: np.ndarray, groups: np.ndarray | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """What is held out, in pieces: each judges networks of a seed of their own."""
    training, outer = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    if groups is not None and (both := np.intersect1d(groups[training], groups[outer])).size:
        raise ValueError(f"split puts {len(both)} groups on both sides; a group belongs to one")
    if not training.size or not outer.size:
        raise ValueError(f"split puts all {len(held_out)} sequences on one side; both are needed")
    pieces = max(1, min(FOLDS, len(outer) // (2 * LEAST_OUTER)))
    order = np.random.default_rng(0).permutation(outer)
    return [(training, np.sort(piece)) for piece in np.array_split(order, pieces)]


def _in_time(data: Sequences) -> list[tuple[np.ndarray, np.ndarray]]:
    """The last tenth judges what all before it taught, then the tenth before it, five times; with a gap between."""
    assert data.apart is not None
    size, pairs = len(data) // 10, []
    for number in range(FOLDS):
        first = len(data) - (number + 1) * size
        if first - data.apart >= len(data) // 4 and size >= LEAST_OUTER:
            pairs.append((np.arange(first - data.apart), np.arange(first, first + size)))
    if not pairs:
        raise ValueError(
            f"{len(data)} windows are too few to split in time with a gap of {data.apart} between the parts; "
            "take a shorter window or a longer series"
        )
    return pairs


def _by_folds(groups: np.ndarray, classes: np.ndarray | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Whole groups dealt to folds, the emptiest first; with `classes` class by class, so that every fold has some."""
    fold = _dealt(groups, classes, 0, FOLDS)
    return [(np.flatnonzero(fold != one), np.flatnonzero(fold == one)) for one in range(int(fold.max()) + 1)]


def _dealt(groups: np.ndarray, classes: np.ndarray | None, seed: int, most: int) -> Int[np.ndarray, " samples"]:
    """The number of the pile of every sequence: at most so many piles, whole groups, the largest first."""
    names, first, index, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    folds = min(most, len(names))
    order = np.random.default_rng(seed).permutation(len(names))
    order = order[np.argsort(-sizes[order], kind="stable")]
    if classes is not None:
        order = order[np.argsort(classes[first[order]], kind="stable")]
    filled, fold = np.zeros(folds, dtype=int), np.zeros(len(names), dtype=int)
    for name in order:
        fold[name] = filled.argmin()
        filled[fold[name]] += sizes[name]
    return fold[index.reshape(-1)]


def _cut_off(
    rows: np.ndarray, groups: np.ndarray, classes: np.ndarray | None, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """One pile of these, dealt anew for every outer part, is chosen by: another one each time that part comes back."""
    if len(np.unique(groups)) < 2:
        raise ValueError("all sequences to train on are of one group, and a part to choose by needs another")
    pile = _dealt(groups, classes, 1 + number % FOLDS, _inner_piles(len(rows)))
    inside = pile == number // FOLDS % (int(pile.max()) + 1)
    return rows[~inside], rows[inside]


def _fingerprints(data: Sequences) -> np.ndarray:
    """A fingerprint per sequence, the same for copies."""
    tokens = np.ascontiguousarray(data.x)
    digests = [
        hashlib.blake2b(x[:n].tobytes(), digest_size=12).hexdigest() for x, n in zip(tokens, data.lengths, strict=True)
    ]
    return np.array(digests)


def _without_copies(fingerprints: np.ndarray, rest: np.ndarray, outer: np.ndarray) -> tuple[np.ndarray, int]:
    fresh = outer[~np.isin(fingerprints[outer], fingerprints[rest])]
    return fresh, len(outer) - len(fresh)


def _refuse_still(data: Sequences, rows: np.ndarray, name: str) -> None:
    if not len(rows) or not (data.y[rows] != data.y[rows[0]]).any():
        word = f"of class {data.classes[int(data.y[rows[0], 0])]}" if data.classes and len(rows) else "the same"
        raise ValueError(f"after the split every target of the {name} part is {word}; more varied data are needed")
