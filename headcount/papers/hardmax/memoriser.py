"""Labelled sequences learnt by heart, used as an estimator is: fit, predict, score."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from headcount.papers.hardmax.narrow import padded
from headcount.papers.hardmax.networks import Interpolation, interpolate


class SequenceMemoriser:
    """A classifier that returns the label of every sequence it was given, exactly; of others, the nearest target's.

    Class k has the target (k + 1)(1, ..., 1). It memorises and does not generalise: between its sequences nothing is
    promised.

    >>> rows = [[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0]], [[0.0, 3.0]]]
    >>> SequenceMemoriser().fit(rows, ["a", "b", "a"]).predict(rows).tolist()
    ['a', 'b', 'a']
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """The arguments it was made with."""
        return {"seed": self.seed}

    def set_params(self, **given: Any) -> SequenceMemoriser:
        """The same with other arguments."""
        if set(given) - {"seed"}:
            raise ValueError(f"unknown parameter {next(iter(set(given) - {'seed'}))!r}; known: seed")
        self.seed = given.get("seed", self.seed)
        return self

    def fit(self, sequences: Any, labels: Any) -> SequenceMemoriser:
        """Build the network; `built_` is it, with its certificate."""
        self.classes_, of = np.unique(np.asarray(labels), return_inverse=True)
        dim = np.shape(sequences[0])[-1]
        self.targets_ = np.repeat(np.arange(1.0, len(self.classes_) + 1)[:, None], dim, axis=1)
        self.built_: Interpolation = interpolate(sequences, list(self.targets_[of]), self.seed)
        return self

    def outputs(self, sequences: Any) -> np.ndarray:
        """The token that each sequence collapses to."""
        rows = padded([torch.as_tensor(s, dtype=torch.float64) for s in sequences])
        with torch.no_grad():
            return self.built_.net(rows)[:, 0].numpy()

    def predict(self, sequences: Any) -> np.ndarray:
        """The class whose target is nearest."""
        far = np.linalg.norm(self.outputs(sequences)[:, None] - self.targets_, axis=2)
        return self.classes_[far.argmin(axis=1)]

    def score(self, sequences: Any, labels: Any) -> float:
        """The share of sequences whose label comes back."""
        return float(np.mean(self.predict(sequences) == np.asarray(labels)))
