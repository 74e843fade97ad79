"""scikit-learn estimators: a standard encoder of so many heads with fit, predict, score and get_params."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from headcount.measuring.contestants import network
from headcount.measuring.fitted import FittedModel
from headcount.measuring.measure import one_thread
from headcount.measuring.planning import Fitting, StudyPlan
from headcount.measuring.preparing import prepare
from headcount.measuring.searching import fit_network
from headcount.measuring.sequences import Sequences, padded, padded_letters
from headcount.measuring.splitting import Split

APART = 50  # samples from which a sixth is held out to choose by; fewer are all trained on
ARRAYS: dict[str, Any] = {"allow_nd": True, "dtype": np.float64, "ensure_all_finite": "allow-nan"}
AUTO = (1, 2, 4, 8)  # head counts among which the inner part chooses


class _Estimator(BaseEstimator):
    model_: FittedModel

    # Any: scikit-learn sets parameters to whatever it likes, and `fit` is where they are looked at.
    def __init__(
        self, heads: Any = "auto", *, layers: Any = 1, steps: Any = 1000, width: Any = 96, embed_dim: Any = 48,
        rates: Any = (1e-3, 4e-3), tokens: Any = "numbers", pooling: Any = "class token", random_state: Any = 0,
    ) -> None:  # fmt: skip
        self.heads, self.layers, self.steps, self.width, self.embed_dim = heads, layers, steps, width, embed_dim
        self.rates, self.tokens, self.pooling, self.random_state = rates, tokens, pooling, random_state

    def _fitted(self, X: Any, y: np.ndarray, classes: tuple[Any, ...]) -> FittedModel:
        if self.heads != "auto":
            _at_least_one("heads", self.heads, " or 'auto'")
        _at_least_one("layers", self.layers)
        data = self._sequences(X, y, classes)
        split = _inner(len(data), self.random_state or 0)
        fold, counts = prepare(data, split), AUTO if self.heads == "auto" else (self.heads,)
        plan = StudyPlan(
            steps=self.steps, embed_dim=self.embed_dim, width=self.width, rates=tuple(self.rates), pooling=self.pooling
        )
        if len(plan.rates) == 1:
            plan = replace(plan, dropouts=plan.dropouts[:1])
        fitting = Fitting(plan, self.steps, self.random_state or 0, len(data.letters))
        with one_thread():
            searched = [fit_network(network(h, self.layers), fold, fitting)[1] for h in counts]
        best = min(searched, key=lambda one: one.inner)
        return FittedModel(best.net, fold.scale, classes, (), data.letters)

    def _sequences(self, X: Any, y: np.ndarray, classes: tuple[Any, ...]) -> Sequences:
        target, letters = y.reshape(len(y), -1).astype(np.float64), ()
        if self.tokens == "letters":
            x, lengths, letters = padded_letters(X)
        else:
            x, lengths = padded(X)
        return Sequences("data", x, lengths, target, classes, letters=letters)

    def _checked(self, X: Any, y: Any = None, *, reset: bool, **how: Any) -> tuple[Any, Any]:
        """Arrays as scikit-learn checks them; lists of ragged sequences and letters as they are."""
        if reset and y is None:
            raise ValueError("fit requires y to be passed, but the target y is None")
        if self.tokens == "letters" or _is_ragged(X):
            if y is not None and len(y) != len(X):
                raise ValueError(f"X holds {len(X)} sequences and y {len(y)} targets")
            return list(X), None if y is None else np.asarray(y)
        if y is None:
            return np.asarray(validate_data(self, X, reset=reset, **ARRAYS)), None
        checked: Any = validate_data(self, X, y, reset=reset, ensure_min_samples=2, **ARRAYS, **how)
        return checked

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value counts as the mean, and a token shows which
        return tags

    def _seen(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        return self._checked(X, reset=False)[0]


class Regressor(RegressorMixin, _Estimator):
    """A standard encoder that predicts numbers; X is (samples, length), (samples, length, token_dim), or ragged lists.

    With heads "auto" the inner part chooses among 1, 2, 4 and 8.
    """

    def fit(self, X: Any, y: Any) -> Regressor:
        """Train on all samples but those that choose the setting and the step."""
        X, y = self._checked(X, y, reset=True, y_numeric=True, multi_output=False)
        self.model_ = self._fitted(X, np.asarray(y, dtype=np.float64), ())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """A number for each sequence."""
        x = self._seen(X)
        return self.model_.predict(x)


class Classifier(ClassifierMixin, _Estimator):
    """A standard encoder that tells classes; X is (samples, length), (samples, length, token_dim), or ragged lists.

    With heads "auto" the inner part chooses among 1, 2, 4 and 8.
    """

    classes_: np.ndarray

    def fit(self, X: Any, y: Any) -> Classifier:
        """Train on all samples but those that choose the setting and the step."""
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"only one class is there ({self.classes_[0]}); a classifier needs at least two")
        self.model_ = self._fitted(X, index, tuple(self.classes_.tolist()))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """A class for each sequence, as it was given."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The share of each class."""
        x = self._seen(X)
        return self.model_.predict_proba(x)


def _at_least_one(name: str, value: Any, other: str = "") -> None:
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{other}, got {value!r}")


def _is_ragged(X: Any) -> bool:
    """Whether X is a list, or an array of objects, of sequences that no array of numbers holds."""
    objects = isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 1
    if not (objects or isinstance(X, list | tuple)) or not len(X) or np.ndim(X[0]) == 0:
        return False
    return len({np.shape(one) for one in X}) > 1


def _inner(count: int, seed: int) -> Split:
    """A sixth to choose by; few samples are all trained on and chosen by."""
    rows = np.random.default_rng(seed).permutation(count)
    held_out = count // 6 if count >= APART else 0
    training, inner = np.sort(rows[held_out:]), np.sort(rows[:held_out] if held_out else rows)
    return Split(training, inner, inner, "at random")
