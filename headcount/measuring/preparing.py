"""From sequences to what a bank trains on: normalised by the training part alone, targets as the loss wants them."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import Split
from headcount.training.given import Part, Parts
from headcount.training.loss import Loss, cross_entropy, squared

__all__ = ["loss_of", "outputs_of", "prepare"]


def prepare(data: Sequences, parts: Split) -> Parts:
    """Both parts, every feature and output with mean 0 and variance 1 over the training part.

    A feature that never moves in training is set to zero: nothing can be learned about it.
    """
    x = _normalised(data, parts)
    y = _one_hot(data) if data.classes else _standard(data.y, parts)
    whole = Part(x, data.lengths.astype(np.int64), y if y.shape[1] > 1 else y[:, 0])
    training, validation = whole.at(parts.training), whole.at(parts.validation)
    lost = _entropy if data.classes else _variance
    return Parts(training, validation, (lost(y[parts.training]), lost(y[parts.validation])))


def loss_of(data: Sequences) -> Loss:
    """What training makes small."""
    return cross_entropy if data.classes else squared


def outputs_of(data: Sequences) -> int:
    """Numbers that a network returns: one a class, or one a target."""
    return len(data.classes) or data.y.shape[1]


def _normalised(data: Sequences, parts: Split) -> Float[np.ndarray, "samples length token_dim"]:
    present = np.arange(data.x.shape[1]) < data.lengths[:, None]
    seen = data.x[parts.training][present[parts.training]].astype(np.float64)
    mean, spread = seen.mean(axis=0), seen.std(axis=0)
    moves = spread > 1e-9 * (1 + np.abs(mean))
    scaled = (data.x - mean) * np.where(moves, 1 / np.where(moves, spread, 1.0), 0.0)
    return np.where(present[..., None], scaled, 0.0).astype(np.float32)


def _standard(y: Float[np.ndarray, "samples outputs"], parts: Split) -> Float[np.ndarray, "samples outputs"]:
    seen = y[parts.training]
    return (y - seen.mean(axis=0)) / np.maximum(seen.std(axis=0), 1e-300)


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
