"""Data sets with the answer that is planted in them, and real ones that travel inside scikit-learn's wheel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headcount.measuring import Sequences, sequences

__all__ = ["SETS", "BenchSet"]


@dataclass(frozen=True)
class BenchSet:
    """A data set; `worth` and `heads` are the truth where it is known, `terms` those under which it may be used."""

    name: str
    make: Callable[[], Sequences]
    worth: bool | None = None
    heads: int | None = None
    terms: str = "drawn here"


def look_ups(count: int, samples: int = 1500) -> Sequences:
    """y = sum_i max_t <a_i, x_t> over `count` random directions; with none, the mean along one."""
    rng = np.random.default_rng(100 + count)
    directions = rng.standard_normal((max(count, 1), 4))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    x = rng.standard_normal((samples, 12, 4))
    y = (x @ directions.T).max(axis=1).sum(axis=1) if count else x.mean(axis=1) @ directions[0]
    return sequences(x, y, name=f"{count} look-ups")


def squared_mean() -> Sequences:
    """y = <a, mean x>^2: a feed-forward of the mean is exact."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1500, 12, 4))
    return sequences(x, (x.mean(axis=1) @ rng.standard_normal(4)) ** 2, name="squared mean")


def one_position() -> Sequences:
    """y is one coordinate of the third token: a line is exact."""
    x = np.random.default_rng(2).standard_normal((1500, 12, 4))
    return sequences(x, x[:, 2, 1], name="one position")


def count_of_a_letter() -> Sequences:
    """How often one of ten letters occurs among thirty: the share of each is enough."""
    ids = np.random.default_rng(3).integers(0, 10, (1500, 30))
    return sequences(ids, (ids == 4).sum(axis=1).astype(float), kind="regression", name="count of a letter")


def noise() -> Sequences:
    """Nothing to learn."""
    rng = np.random.default_rng(4)
    return sequences(rng.standard_normal((1500, 12, 4)), rng.standard_normal(1500), name="noise")


def digits() -> Sequences:
    """Rows of 8 x 8 images as tokens."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return sequences(found.images, found.target, name="digits")


SETS = (
    BenchSet("1 look-up", lambda: look_ups(1), True, 1),
    BenchSet("2 look-ups", lambda: look_ups(2), True, 2),
    BenchSet("3 look-ups", lambda: look_ups(3), True, 3),
    BenchSet("4 look-ups", lambda: look_ups(4), True, 4),
    BenchSet("mean only", lambda: look_ups(0), False),
    BenchSet("squared mean", squared_mean, False),
    BenchSet("one position", one_position, False),
    BenchSet("count of a letter", count_of_a_letter, False),
    BenchSet("noise", noise, False),
    BenchSet("digits", digits, terms="UCI Machine Learning Repository, CC BY 4.0, in scikit-learn's wheel"),
)
