"""From sequences to what a bank trains on: normalised by the training part alone, targets as the loss wants them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.kernels.loss import Loss, cross_entropy, squared
from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import Split
from headcount.training.given import Part, Parts

__all__ = ["Scaling", "outputs_of", "prepare", "scaling"]


def prepare(data: Sequences, parts: Split) -> Parts:
    """Both parts, every feature and output with mean 0 and variance 1 over the training part.

    A feature that never moves in training is set to zero: nothing can be learned about it.
    """
    scale = scaling(data, parts)
    x = _normalised(data, scale)
    y = _one_hot(data) if data.classes else (data.y - np.array(scale.y_mean)) / np.array(scale.y_spread)
    whole = Part(x, data.lengths.astype(np.int64), y if y.shape[1] > 1 else y[:, 0])
    training, validation = whole.at(parts.training), whole.at(parts.validation)
    lost = _entropy if data.classes else _variance
    return Parts(training, validation, (lost(y[parts.training]), lost(y[parts.validation])), _loss_of(data))


def _loss_of(data: Sequences) -> Loss:
    """What training makes small."""
    return cross_entropy if data.classes else squared


def outputs_of(data: Sequences) -> int:
    """Numbers that a network returns: one a class, or one a target."""
    return len(data.classes) or data.y.shape[1]


@dataclass(frozen=True)
class Scaling:
    """Network input = (x - x_mean) x_factor; target = output y_spread + y_mean. Factor 0: never moves in training."""

    x_mean: list[float]
    x_factor: list[float]
    y_mean: list[float]
    y_spread: list[float]


def scaling(data: Sequences, parts: Split) -> Scaling:
    """Mean 0 and variance 1 over the training part; classes are not scaled."""
    present = np.arange(data.x.shape[1]) < data.lengths[:, None]
    seen = data.x[parts.training][present[parts.training]].astype(np.float64)
    mean, spread = seen.mean(axis=0), seen.std(axis=0)
    moves = spread > 1e-9 * (1 + np.abs(mean))
    factor = np.where(moves, 1 / np.where(moves, spread, 1.0), 0.0)
    y = data.y[parts.training]
    y_mean, y_spread = y.mean(axis=0), np.maximum(y.std(axis=0), 1e-300)
    if data.classes:
        y_mean, y_spread = np.zeros(len(data.classes)), np.ones(len(data.classes))
    return Scaling(mean.tolist(), factor.tolist(), y_mean.tolist(), y_spread.tolist())


def _normalised(data: Sequences, scale: Scaling) -> Float[np.ndarray, "samples length token_dim"]:
    present = np.arange(data.x.shape[1]) < data.lengths[:, None]
    scaled = (data.x - np.array(scale.x_mean)) * np.array(scale.x_factor)
    return np.where(present[..., None], scaled, 0.0).astype(np.float32)


def _one_hot(data: Sequences) -> Float[np.ndarray, "samples classes"]:
    return np.eye(len(data.classes))[data.y[:, 0].astype(int)]


def _variance(y: Float[np.ndarray, "samples outputs"]) -> float:
    """What the best constant loses in squares."""
    return float(y.var(axis=0).mean())


def _entropy(y: Float[np.ndarray, "samples classes"]) -> float:
    """What the best constant loses in cross-entropy: the entropy of the classes' shares.

    >>> round(_entropy(np.eye(2)), 4)
    0.6931
    """
    shares = y.mean(axis=0)
    return float(-(shares * np.log(np.where(shares > 0, shares, 1.0))).sum())
