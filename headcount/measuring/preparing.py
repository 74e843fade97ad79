"""From a split to what contestants are trained on: scaled in float64 by the training part alone, then rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headcount.kernels.loss import Loss, cross_entropy, squared
from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import Split
from headcount.training.given import Part, Parts

STILL = 0.1  # of the training part's constant: a small inner part that hardly moves is not made a small unit


@dataclass(frozen=True)
class Scaling:
    """Network input = (x - x_mean) x_factor; target = output y_spread + y_mean. Factor 0: never moves in training.

    Means and factors have one row, or one for each place of a wide table. A missing value counts as the mean, and the
    features numbered in `missing` are followed by a 1 where they were. Letters are not scaled.
    """

    x_mean: list[list[float]]
    x_factor: list[list[float]]
    y_mean: list[float]
    y_spread: list[float]
    missing: list[int]

    @property
    def features(self) -> int:
        """Numbers of a token as the network reads it."""
        return len(self.x_mean[0]) + len(self.missing) if self.x_mean else 0


@dataclass(frozen=True, eq=False)
class Fold:
    """One split, ready: the part to train on, the inner one to choose by, the outer one that judges.

    `constants` is what the best constant loses on each. Sequences that are `exchangeable` are neither of groups nor in
    time, and may be dealt at random once more.
    """

    training: Part
    inner: Part
    outer: Part
    constants: tuple[float, float, float]
    loss: Loss
    scale: Scaling
    last: tuple[Float[np.ndarray, "inner outputs"], Float[np.ndarray, "outer outputs"]] | None = None
    exchangeable: bool = True

    @property
    def parts(self) -> Parts:
        """What a bank sees: nothing of the outer part."""
        return Parts(self.training, self.inner, self.constants[:2], self.loss)

    @property
    def classes(self) -> bool:
        """Whether the targets are classes."""
        return self.loss is cross_entropy


def prepare(data: Sequences, split: Split) -> Fold:
    """The three parts, every feature and output with mean 0 and variance 1 over the training part.

    >>> from headcount.measuring.sequences import sequences
    >>> from headcount.measuring.splitting import outer_splits
    >>> seconds = 1.7e9 + np.arange(60.0)  # no two alike, in float32 one
    >>> data = sequences(seconds[:, None], np.sin(seconds))
    >>> len(np.unique(prepare(data, outer_splits(data, 1)[0]).training.x))
    36
    """
    scale = scaling(data, split.training)

    def part(rows: Int[np.ndarray, " rows"]) -> Part:
        x = data.x[rows] if data.letters else scaled(data.x[rows], data.lengths[rows], scale)
        y = np.eye(len(data.classes))[data.y[rows, 0].astype(int)] if data.classes else _in_spreads(data.y[rows], scale)
        return Part(x, data.lengths[rows].astype(np.int64), y if y.shape[1] > 1 else y[:, 0])

    three = part(split.training), part(split.inner), part(split.outer)
    lost = _entropy if data.classes else _variance
    known, inner, outer = (lost(one.y.reshape(len(one), -1)) for one in three)
    known = known or 1.0  # targets that never move: any unit will do
    constants = known, max(inner, STILL * known), outer or known
    last = None
    if data.past is not None and not data.classes:
        before, after = (
            _in_spreads(data.x[rows, -1, data.past][:, None], scale) for rows in (split.inner, split.outer)
        )
        last = np.nan_to_num(before), np.nan_to_num(after)
    exchangeable = data.groups is None and data.apart is None
    return Fold(*three, constants, cross_entropy if data.classes else squared, scale, last, exchangeable)


def outputs_of(data: Sequences) -> int:
    """Numbers that a network returns: one a class, or one a target."""
    return len(data.classes) or data.y.shape[1]


def scaling(data: Sequences, rows: Int[np.ndarray, " rows"]) -> Scaling:
    """Mean 0 and variance 1 over these rows; classes are not scaled."""
    y = data.y[rows]
    y_mean, y_spread = y.mean(axis=0), np.maximum(y.std(axis=0), 1e-300)
    if data.classes:
        y_mean, y_spread = np.zeros(len(data.classes)), np.ones(len(data.classes))
    if data.letters:
        return Scaling([], [], y_mean.tolist(), y_spread.tolist(), [])
    x = data.x[rows]
    present = np.arange(x.shape[1]) < data.lengths[rows, None]
    values = np.where(present[..., None], x, np.nan)
    values = values if data.wide else values.reshape(1, -1, x.shape[2]).transpose(1, 0, 2)
    there = ~np.isnan(values)
    count = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there, values, 0.0).sum(axis=0) / count
    spread = np.sqrt((np.where(there, values - mean, 0.0) ** 2).sum(axis=0) / count)
    moves = spread > 1e-12 * (1e-300 + np.abs(mean))
    factor = np.where(moves, 1 / np.where(moves, spread, 1.0), 0.0)
    missing = np.flatnonzero((np.isnan(x) & present[..., None]).any(axis=(0, 1)))
    return Scaling(mean.tolist(), factor.tolist(), y_mean.tolist(), y_spread.tolist(), missing.tolist())


def scaled(
    x: Float[np.ndarray, "samples length token_dim"], lengths: Int[np.ndarray, " samples"], scale: Scaling
) -> Float[np.ndarray, "samples length features"]:
    """Tokens as a network reads them: scaled in float64, the missing as 0 with their marks, absent ones 0.

    >>> scale = Scaling([[2.0]], [[0.5]], [0.0], [1.0], [0])
    >>> scaled(np.array([[[4.0], [np.nan]]]), np.array([2]), scale)[0].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    places = slice(0, x.shape[1] if len(scale.x_mean) > 1 else 1)
    values = (x - np.array(scale.x_mean)[places]) * np.array(scale.x_factor)[places]
    gone = np.isnan(values)
    values = np.concatenate([np.where(gone, 0.0, values), gone[:, :, scale.missing]], axis=2)
    present = np.arange(x.shape[1]) < lengths[:, None]
    return np.where(present[..., None], values, 0.0).astype(np.float32)


def _in_spreads(y: Float[np.ndarray, "samples outputs"], scale: Scaling) -> Float[np.ndarray, "samples outputs"]:
    return (y - np.array(scale.y_mean)) / np.array(scale.y_spread)


def _variance(y: Float[np.ndarray, "samples outputs"]) -> float:
    """What the best constant loses in squares."""
    return float(y.var(axis=0).mean())


def _entropy(y: Float[np.ndarray, "samples classes"]) -> float:
    """What the best constant loses in cross-entropy: the entropy of the classes' shares.

    >>> round(_entropy(np.eye(2)), 4)
    0.6931
    """
    frequencies = y.mean(axis=0)
    return float(-(frequencies * np.log(np.where(frequencies > 0, frequencies, 1.0))).sum())
