"""scikit-learn estimators: a network of so many heads with fit, predict, score and get_params."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from headcount.measuring.fitted import FittedModel, fit
from headcount.measuring.planning import StudyPlan
from headcount.measuring.preparing import prepare
from headcount.measuring.sequences import Sequences
from headcount.measuring.splitting import Split
from headcount.measuring.subject import Subject

__all__ = ["HeadcountClassifier", "HeadcountRegressor"]

APART = 50  # samples from which a fifth is held out to choose the step and the seed; fewer are all trained on


class _Estimator(BaseEstimator):
    model_: FittedModel

    # Any: scikit-learn sets parameters to whatever it likes, and `fit` is where they are looked at.
    def __init__(
        self, heads: Any = 2, *, seeds: Any = 2, steps: Any = 1000, width: Any = 32, embed_dim: Any = 24,
        positions: Any = 8, lr: Any = 1e-2, random_state: Any = 0,
    ) -> None:  # fmt: skip
        self.heads, self.seeds, self.steps, self.width = heads, seeds, steps, width
        self.embed_dim, self.positions, self.lr, self.random_state = embed_dim, positions, lr, random_state

    def _fitted(self, X: np.ndarray, y: np.ndarray, classes: tuple[str, ...]) -> FittedModel:
        x = _tokens(X)
        data = Sequences("data", x, np.full(len(x), x.shape[1]), y.reshape(len(y), -1).astype(np.float64), classes)
        halves = _halves(len(x), self.random_state or 0)
        plan = StudyPlan(
            (self.heads, self.heads + 1), self.seeds, self.steps, self.embed_dim, self.width,
            positions=self.positions, lr=self.lr,
        )  # fmt: skip
        subject = Subject(data, halves, prepare(data, halves), data.digest, "cpu")
        return fit(subject, plan, self.heads)

    def _seen(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        return _tokens(np.asarray(validate_data(self, X, reset=False, allow_nd=True, dtype=np.float64)))


class HeadcountRegressor(RegressorMixin, _Estimator):
    """A network with `heads` heads that predicts numbers; X is (samples, length) or (samples, length, token_dim)."""

    def fit(self, X: Any, y: Any) -> HeadcountRegressor:
        """Train on all samples but those that choose the step and the seed."""
        X, y = validate_data(
            self, X, y, allow_nd=True, ensure_min_samples=2, dtype=np.float64, y_numeric=True, multi_output=False
        )
        self.model_ = self._fitted(X, np.asarray(y, dtype=np.float64), ())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """A number for each sequence."""
        x = self._seen(X)
        return self.model_.predict(x)


class HeadcountClassifier(ClassifierMixin, _Estimator):
    """A network with `heads` heads that tells classes; X is (samples, length) or (samples, length, token_dim)."""

    classes_: np.ndarray

    def fit(self, X: Any, y: Any) -> HeadcountClassifier:
        """Train on all samples but those that choose the step and the seed."""
        X, y = validate_data(self, X, y, allow_nd=True, ensure_min_samples=2, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"only one class is there ({self.classes_[0]}); a classifier needs at least two")
        self.model_ = self._fitted(X, index, tuple(map(str, self.classes_)))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """A class for each sequence, as it was given."""
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The share of each class."""
        x = self._seen(X)
        return self.model_.predict_proba(x)


def _tokens(X: np.ndarray) -> np.ndarray:
    x = X.astype(np.float32)
    return x[:, :, None] if x.ndim == 2 else x


def _halves(count: int, seed: int) -> Split:
    rows = np.random.default_rng(seed).permutation(count)
    held = count // 5 if count >= APART else 0
    return Split(np.sort(rows[held:]), np.sort(rows[:held] if held else rows), "at random")
