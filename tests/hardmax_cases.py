"""Data sets on which interpolation is hard: shared tokens, repeats, equal means, and pairs that differ in one place."""

import numpy as np


def sequences_of(rng, count, dim, longest=6):
    """Sequences from a small pool of tokens, a repeated token, and pairs {x, y} against {(x + y)/2}, all distinct."""
    pool = rng.standard_normal((10, dim))
    found = [np.stack([pool[0], pool[1]]), (pool[0] + pool[1])[None] / 2]
    found.append(np.stack([pool[2], pool[2], pool[3]]))
    found.append(np.stack([pool[0] + 1e-3, pool[1] - 1e-3]))  # the same mean as the first, tokens nearly the same
    while len(found) < count:
        found.append(pool[rng.integers(0, 10, rng.integers(2, longest + 1))])
    seen, kept = set(), []
    for rows in found:
        names, counts = np.unique(rows.round(6), axis=0, return_counts=True)
        key = (names.tobytes(), (counts / counts.min()).tobytes())
        if key not in seen:
            seen.add(key)
            kept.append(rows)
    return kept[:count]


def labelled(seed):
    """N = 4 to 24 sequences in 2 to 5 dimensions with at most five labels."""
    rng = np.random.default_rng((seed, 0))
    dim = int(rng.integers(2, 6))
    rows = sequences_of(rng, int(rng.integers(4, 25)), dim)
    targets = rng.standard_normal((5, dim))
    return rows, [targets[rng.integers(5)] for _ in rows]


def with_sets(seed, most=16):
    """A few sequences with one to three outputs each, `most` in all."""
    rng = np.random.default_rng((seed, 1))
    dim = int(rng.integers(2, 6))
    rows = sequences_of(rng, int(rng.integers(4, 7)), dim, longest=5)
    outputs, left = [], most - len(rows)
    for row in rows:
        m = min(len(np.unique(row, axis=0)), 1 + int(rng.integers(3)), 1 + left)
        left -= m - 1
        outputs.append(rng.standard_normal((m, dim)))
    return rows, outputs


def on_a_line(count=6):
    """Equal means, each differing from the first in one place: (x, x) against (x - 1, x + 1)."""
    places = [3.0 * k for k in range(count - 1)]
    rows = []
    for i in range(count):
        pairs = [(x - 1, x + 1) if k == i - 1 else (x, x) for k, x in enumerate(places)]
        rows.append([[v, 0.0] for pair in pairs for v in pair])
    return rows, [[float(i), float(i * i)] for i in range(count)]
