"""Twelve sets with the answer that is planted in them."""

from __future__ import annotations

import numpy as np

from headcount.measuring import Sequences, sequences

SIZE = (1500, 12, 4)  # sequences, tokens, features
OTHER = 1000  # seeds between one draw and the next


def tokens(seed: int, draw: int = 0, samples: int = SIZE[0]) -> tuple[np.random.Generator, np.ndarray]:
    """Normal tokens, and the stream they come from."""
    rng = np.random.default_rng(seed + OTHER * draw)
    return rng, rng.standard_normal((samples, *SIZE[1:]))


def directions(rng: np.random.Generator, count: int) -> np.ndarray:
    """Unit vectors."""
    drawn = rng.standard_normal((count, SIZE[2]))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def look_ups(count: int, samples: int = SIZE[0], draw: int = 0) -> Sequences:
    """y = sum_i max_t <a_i, x_t> over `count` random directions; with none, the mean along one."""
    rng = np.random.default_rng(100 + count + OTHER * draw)
    along = directions(rng, max(count, 1))
    x = rng.standard_normal((samples, *SIZE[1:]))
    y = (x @ along.T).max(axis=1).sum(axis=1) if count else x.mean(axis=1) @ along[0]
    return sequences(x, y, name=f"{count} look-ups")


def squared_mean(draw: int = 0) -> Sequences:
    """y = <a, mean x>^2: a feed-forward of the mean is exact."""
    rng, x = tokens(1, draw)
    return sequences(x, (x.mean(axis=1) @ rng.standard_normal(SIZE[2])) ** 2, name="squared mean")


def log_mean_exp(draw: int = 0) -> Sequences:
    """y = log mean_t exp x_t1: a feed-forward of each token, the mean and a feed-forward of that are exact."""
    _, x = tokens(5, draw)
    return sequences(x, np.log(np.exp(x[:, :, 0]).mean(axis=1)), name="log mean exp")


def one_position(draw: int = 0) -> Sequences:
    """y is one coordinate of the third token: a line is exact."""
    _, x = tokens(2, draw)
    return sequences(x, x[:, 2, 1], name="one position")


def order_only(draw: int = 0) -> Sequences:
    """y = x_1 - x_T in one coordinate, which no bag of tokens has: a line of all tokens is exact."""
    _, x = tokens(6, draw)
    return sequences(x, x[:, 0, 0] - x[:, -1, 0], name="order only")


def count_of_a_letter(draw: int = 0) -> Sequences:
    """How often one of ten letters occurs among thirty: the share of each is exact."""
    ids = np.random.default_rng(3 + OTHER * draw).integers(0, 10, (SIZE[0], 30))
    return sequences(ids, (ids == 4).sum(axis=1).astype(float), kind="regression", name="count of a letter")


def rare_class(draw: int = 0) -> Sequences:
    """One in twenty: those whose token with the largest <a, x_t> has the largest <b, x_t>; a mean tells little.

    Whether any token exceeds a level would be no look-up: the mean of a steep feed-forward says it. There are 6,000
    sequences: of 1,500, 75 are in the class, and what 15 of a fold lose does not show a gain of a fifth.
    """
    rng, x = tokens(7, draw, 6000)
    a, b = directions(rng, 2)
    looked_up = np.take_along_axis(x @ b, (x @ a).argmax(axis=1)[:, None], axis=1)[:, 0]
    return sequences(x, looked_up > np.quantile(looked_up, 0.95), name="rare class")


def noise(draw: int = 0) -> Sequences:
    """Nothing to learn."""
    rng, x = tokens(4, draw)
    return sequences(x, rng.standard_normal(SIZE[0]), name="noise")
