"""What is reached without attention and without a network: a constant, the last value, linear models, boosting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.measuring.contestants import BOOSTING, CONSTANT, LAST_VALUE, POOLED, Contestant
from headcount.measuring.planning import nothing
from headcount.measuring.preparing import Fold
from headcount.training.given import Part

PENALTIES = (1e-4, 1e-2, 1.0, 100.0)  # of the squared weights, per sample
FEW_INNER, QUARTERS = 200, 4  # sequences of an inner part below which quarters of the training part choose as well
WIDEST = 4000  # features of a linear model; wider ones are not fitted
MOST_BOOSTED = 2000  # features of trees; with more than
WIDE_BOOSTED = 600  # of them, the larger rate alone
TREES = 120  # at most; as many as are best on the inner part
BOOSTING_RATES = (0.1, 0.3)

Model = Callable[[Float[np.ndarray, "samples features"]], Float[np.ndarray, "samples outputs"]]
Fit = Callable[[np.ndarray, np.ndarray, float], Model]


@dataclass(frozen=True, eq=False)
class Predicted:
    """The outer and the inner part as somebody predicts them (targets as trained, or logits).

    `short` is the outer one where the search ended, before the finals: how much more steps have brought.
    """

    outer: Float[np.ndarray, "outer outputs"]
    inner: Float[np.ndarray, "inner outputs"]
    short: Float[np.ndarray, "outer outputs"] | None = None


def fit_baseline(
    contestant: Contestant, fold: Fold, letters: int = 0, look: Callable[[], None] = nothing
) -> Predicted | None:
    """Fit to the training part, choose on the inner one, predict the outer one; None where the data are too wide."""
    look()
    y = _columns(fold.training.y)
    if contestant == CONSTANT:
        constant = np.log(np.maximum(y.mean(axis=0), 1e-12)) if fold.classes else y.mean(axis=0)
        return _fixed(fold, constant[None])
    if contestant == LAST_VALUE:
        assert fold.last is not None
        return Predicted(fold.last[1], fold.last[0])
    if contestant == BOOSTING:
        return _boosted(fold, letters, look)
    features = _pooled if contestant == POOLED else _flat
    three = [features(part, letters) for part in (fold.training, fold.inner, fold.outer)]
    if three[0].shape[1] > WIDEST:
        return None
    three = _rotated(three)
    fit = _logistic if fold.classes else _ridge
    models = [fit(three[0], y, penalty) for penalty in PENALTIES]
    losses = [float(losses_of(model(three[1]), fold.inner, fold.classes).sum()) for model in models]
    if fold.exchangeable and len(fold.inner) < FEW_INNER:
        losses = np.add(losses, [_cross_validated(fit, three[0], fold, penalty) for penalty in PENALTIES])
    best = models[int(np.argmin(losses))]
    return Predicted(best(three[2]), best(three[1]))


def _rotated(parts: list[Float[np.ndarray, "samples features"]]) -> list[Float[np.ndarray, "samples rotated"]]:
    """Features along the span of the first part's rows, where there are more features than rows.

    Penalised weights have no share outside it, and squares of weights do not depend on the basis.
    """
    rows, features = parts[0].shape
    if features <= rows:
        return parts
    basis = np.linalg.qr(parts[0].T)[0]
    return [part @ basis for part in parts]


def _cross_validated(fit: Fit, x: Float[np.ndarray, "samples features"], fold: Fold, penalty: float) -> float:
    """What is lost on each quarter of the training part by what was fitted to the others.

    Classes that a small inner part separates ask for no penalty at all, and lose twenty times as much outside.
    """
    part, quarter = fold.training, np.random.default_rng(0).permutation(len(x)) % QUARTERS
    total = 0.0
    for number in range(QUARTERS):
        inside = quarter != number
        model = fit(x[inside], _columns(part.y[inside]), penalty)
        held_out = Part(part.x[~inside], part.lengths[~inside], part.y[~inside])
        total += float(losses_of(model(x[~inside]), held_out, fold.classes).sum())
    return total


def lost(predicted: Float[np.ndarray, "samples outputs"], part: Part, classes: bool) -> float:
    """The mean loss of a prediction."""
    return float(losses_of(predicted, part, classes).mean())


def losses_of(
    predicted: Float[np.ndarray, "samples outputs"], part: Part, classes: bool
) -> Float[np.ndarray, " samples"]:
    """What a prediction loses on every sequence: cross-entropy of logits, or the squared gap."""
    y = _columns(part.y)
    if not classes:
        return ((predicted - y) ** 2).mean(axis=1)
    shifted = predicted - predicted.max(axis=1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=1)) - (shifted * y).sum(axis=1)


def _fixed(fold: Fold, answer: Float[np.ndarray, "1 outputs"]) -> Predicted:
    outer, inner = (np.repeat(answer, len(part), axis=0) for part in (fold.outer, fold.inner))
    return Predicted(outer, inner)


def _columns(y: np.ndarray) -> Float[np.ndarray, "samples outputs"]:
    return y.reshape(len(y), -1).astype(np.float64)


def _flat(part: Part, letters: int) -> Float[np.ndarray, "samples features"]:
    """All tokens on end; a letter is a one among zeros."""
    if part.x.ndim == 3:
        return part.x.reshape(len(part), -1).astype(np.float64)
    if part.x.shape[1] * letters > WIDEST:
        return np.empty((len(part), WIDEST + 1))
    return np.eye(letters + 1)[part.x][:, :, 1:].reshape(len(part), -1)


def _pooled(part: Part, letters: int) -> Float[np.ndarray, "samples features"]:
    """The mean token; of letters, the share of each."""
    if part.x.ndim == 3:
        return part.x.sum(axis=1, dtype=np.float64) / part.lengths[:, None]
    counts = np.zeros((len(part), letters + 1))
    rows, places = np.nonzero(np.arange(part.x.shape[1]) < part.lengths[:, None])
    np.add.at(counts, (rows, part.x[rows, places]), 1.0)
    return counts[:, 1:] / part.lengths[:, None]


def _ridge(x: np.ndarray, y: np.ndarray, penalty: float) -> Model:
    """The weights w that make mean |(x - m)w + c - y|^2 + penalty |w|^2 / samples smallest, in closed form.

    >>> model = _ridge(np.array([[0.0], [1.0], [2.0]]), np.array([[1.0], [3.0], [5.0]]), 0.0)
    >>> model(np.array([[3.0]])).round(9).tolist()
    [[7.0]]
    """
    middle, level = x.mean(axis=0), y.mean(axis=0)
    gram = (x - middle).T @ (x - middle) + penalty * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, (x - middle).T @ (y - level))  # definite: the penalty is above 0
    return lambda new: (new - middle) @ weights + level


def _logistic(x: np.ndarray, y: np.ndarray, penalty: float) -> Model:
    """Multinomial logistic regression by L-BFGS: cross-entropy + penalty |w|^2 / (2 samples)."""
    features, target = torch.as_tensor(x), torch.as_tensor(y)
    weights = torch.zeros(x.shape[1], y.shape[1], dtype=torch.float64, requires_grad=True)
    level = torch.zeros(y.shape[1], dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([weights, level], max_iter=100, line_search_fn="strong_wolfe")

    def loss_of_weights() -> Tensor:
        solver.zero_grad()
        loss = nn.functional.cross_entropy(features @ weights + level, target)
        loss = loss + penalty * weights.square().sum() / (2 * len(x))
        loss.backward()
        return loss

    solver.step(loss_of_weights)
    w, c = weights.detach().numpy(), level.detach().numpy()
    return lambda new: new @ w + c


def _boosted(fold: Fold, letters: int, look: Callable[[], None]) -> Predicted | None:
    """scikit-learn's boosted trees on all tokens and their mean: rate and number of trees chosen on the inner part."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    three = [_for_trees(part, letters) for part in (fold.training, fold.inner, fold.outer)]
    if three[0].shape[1] > MOST_BOOSTED:
        return None
    y = _columns(fold.training.y)
    tried: list[tuple[float, Predicted]] = []
    for rate in BOOSTING_RATES if three[0].shape[1] <= WIDE_BOOSTED else BOOSTING_RATES[-1:]:
        look()
        if fold.classes:
            trees = HistGradientBoostingClassifier(learning_rate=rate, max_iter=_trees(y), early_stopping=False)  # pyright: ignore[reportArgumentType]
            trees.fit(three[0], y.argmax(axis=1))
            stages = [
                [_logits(p, np.asarray(trees.classes_), y) for p in trees.staged_predict_proba(x)] for x in three[1:]
            ]
        else:
            trees = HistGradientBoostingRegressor(learning_rate=rate, max_iter=TREES, early_stopping=False)  # pyright: ignore[reportArgumentType]
            trees.fit(three[0], y[:, 0])
            stages = [[p[:, None] for p in trees.staged_predict(x)] for x in three[1:]]
        losses = [lost(p, fold.inner, fold.classes) for p in stages[0]]
        place = int(np.argmin(losses))
        tried.append((losses[place], Predicted(stages[1][place], stages[0][place])))
    return min(tried, key=lambda one: one[0])[1]


def _trees(y: Float[np.ndarray, "samples classes"]) -> int:
    """Rounds of boosting: a round grows a tree for every class."""
    return max(20, TREES * 2 // max(2, y.shape[1]))


def _for_trees(part: Part, letters: int) -> Float[np.ndarray, "samples features"]:
    flat = part.x.reshape(len(part), -1).astype(np.float64)
    return np.concatenate([flat, _pooled(part, letters)], axis=1)


def _logits(probabilities: np.ndarray, known: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "samples classes"]:
    logits = np.full((len(probabilities), y.shape[1]), -16.0)
    logits[:, known] = np.log(np.maximum(probabilities, 1e-7))
    return logits
