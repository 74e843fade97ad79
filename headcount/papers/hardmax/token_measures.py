"""Sequences as the network sees them: tokens in proportions, no order; which of them no such network tells apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

SAME = 1e-9  # of the largest token: closer than this is the same token, mean or target
SMALLEST = 1e-100  # squares of what is larger, and of its inverse, stay inside float64
Array = NDArray[np.float64]


@dataclass(frozen=True)
class TokenData:
    """Sequences without what is told twice: distinct tokens with their share, and the distinct outputs of each.

    `tokens[k]` belongs to sequence `owner[k]` with share `share[k]`; `outputs[k]` to sequence `asked[k]`; `kept` are
    the numbers of the sequences given that these are. `blur[k]` is how far tokens that count as token k lie from it,
    `merged` the same for targets.
    """

    tokens: Array
    owner: NDArray[np.int64]
    share: Array
    outputs: Array
    asked: NDArray[np.int64]
    kept: tuple[int, ...]
    longest: int
    blur: Array
    merged: float

    @property
    def count(self) -> int:
        return len(self.kept)

    @property
    def scale(self) -> float:
        """The largest token or target."""
        return float(max(np.linalg.norm(self.tokens, axis=1).max(), np.linalg.norm(self.outputs, axis=1).max()))

    def means(self, tokens: Array) -> Array:
        """The mean of every sequence, its tokens being where they are now."""
        total = np.zeros((self.count, tokens.shape[1]))
        np.add.at(total, self.owner, tokens * self.share[:, None])
        return total


def token_data(sequences: Sequence[Array], outputs: Sequence[Array]) -> TokenData:
    """Check the sequences and their outputs, and drop what is told twice.

    Two sequences with the same tokens in the same proportions, as (a, b) and (a, b, a, b), get the same output from
    every network of attention without positions: with equal outputs one of them is kept, otherwise they are refused.
    """
    dim = _checked(sequences, outputs)
    lengths = [len(s) for s in sequences]
    names = identities(np.concatenate(sequences))
    wanted = identities(np.concatenate(outputs))
    of = np.split(names, np.cumsum(lengths)[:-1])
    targets_of = np.split(wanted, np.cumsum([len(y) for y in outputs])[:-1])
    distinct = _distinct(of, targets_of)
    parts, fractions, owner, rows, target_owner = [], [], [], [], []
    for j, i in enumerate(distinct):
        first, counts = _first(of[i])
        target, _ = _first(targets_of[i])
        if len(first) < len(target):
            raise ValueError(
                f"sequence {i} has {len(target)} outputs but only {len(first)} distinct tokens; ask for fewer"
            )
        parts.append(np.asarray(sequences[i], dtype=np.float64)[first])
        fractions.append(counts / len(of[i]))
        rows.append(np.asarray(outputs[i], dtype=np.float64)[target])
        owner += [j] * len(first)
        target_owner += [j] * len(target)
    named = np.concatenate([of[i][_first(of[i])[0]] for i in distinct])
    return TokenData(
        np.concatenate(parts).reshape(-1, dim),
        np.array(owner),
        np.concatenate(fractions),
        np.concatenate(rows),
        np.array(target_owner),
        distinct,
        max(lengths),
        _spread(np.concatenate(sequences), names)[named],
        float(_spread(np.concatenate(outputs), wanted).max()),
    )


def identities(rows: Array, near: float | None = None) -> NDArray[np.int64]:
    """A number for every row; rows closer than `near` (1e-9 of the largest) to a chain of others share it.

    >>> identities(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-12]])).tolist()
    [0, 1, 0]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import KDTree

    near = SAME * float(np.linalg.norm(rows, axis=1).max()) if near is None else near
    exact, back = np.unique(rows, axis=0, return_inverse=True)
    pairs = KDTree(exact).query_pairs(near, output_type="ndarray")
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(len(exact),) * 2)
    names = connected_components(graph, directed=False)[1][back.ravel()]
    _, first, again = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[again].astype(np.int64)  # numbered in the order they appear


def _checked(sequences: Sequence[Array], outputs: Sequence[Array]) -> int:
    if not len(sequences) or len(sequences) != len(outputs):
        raise ValueError(f"every sequence needs its outputs: got {len(sequences)} sequences and {len(outputs)} outputs")
    dim = np.shape(sequences[0])[-1] if np.ndim(sequences[0]) == 2 else 0
    for i, (x, y) in enumerate(zip(sequences, outputs, strict=True)):
        for what, rows in (("sequence", x), ("outputs of sequence", y)):
            if np.ndim(rows) != 2 or not len(rows) or np.shape(rows)[1] != dim:
                raise ValueError(f"{what} {i} must be rows of {dim or 'several'} numbers, got shape {np.shape(rows)}")
            if not np.isfinite(rows).all():
                raise ValueError(f"{what} {i} holds a number that is not finite")
    for what, rows in (("token", sequences), ("output", outputs)):
        size = max(float(np.abs(r).max()) for r in rows)
        if size and not SMALLEST < size < 1 / SMALLEST:
            raise ValueError(f"the largest {what} is {size:.1e}: scale the data to between 1e-100 and 1e100")
    if dim < 2:
        raise ValueError(f"tokens need at least 2 dimensions, got {dim}: on a line points cannot pass each other")
    return dim


def _distinct(of: Sequence[NDArray[np.int64]], targets_of: Sequence[NDArray[np.int64]]) -> tuple[int, ...]:
    first_of: dict[frozenset[tuple[int, Fraction]], int] = {}
    for i, names in enumerate(of):
        measure = frozenset((k, Fraction(c, len(names))) for k, c in Counter(names.tolist()).items())
        first = first_of.setdefault(measure, i)
        if set(targets_of[first].tolist()) != set(targets_of[i].tolist()):
            raise ValueError(
                f"sequences {first} and {i} hold the same tokens in the same proportions (to 1e-9 of the largest), "
                f"so no attention without positions tells them apart; give them the same outputs, or drop one"
            )
    return tuple(first_of.values())


def _spread(rows: Array, names: NDArray[np.int64]) -> Array:
    """Twice the distance from the first row of each name to the farthest of the same name."""
    _, first = np.unique(names, return_index=True)
    distances = np.zeros(len(first))
    np.maximum.at(distances, names, np.linalg.norm(rows - rows[first[names]], axis=1))
    return 2 * distances


def _first(names: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    _, first, counts = np.unique(names, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]
