"""What is reached without attention: a constant, the last value, linear models, and a network with zero heads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.measuring.planning import StudyPlan
from headcount.measuring.subject import Subject
from headcount.training.given import Part

__all__ = ["Baseline", "baselines"]

PENALTIES = (1e-4, 1e-2, 1.0, 100.0)  # of the squared weights, per sample; the best on a fifth of the training part
WIDEST = 4000  # features of a linear model; wider ones are not fitted
MOST = 20_000  # samples that a linear model is fitted to
POOLED_STEPS = 1500  # of the network with zero heads, at most
TRIED_STEPS = 5  # by which it is timed

Model = Callable[[Float[np.ndarray, "samples features"]], Float[np.ndarray, "samples outputs"]]


@dataclass(frozen=True)
class Baseline:
    """A predictor without attention: its loss on the validation part over the best constant's, and its wrong share."""

    name: str
    level: float
    error_rate: float | None = None

    def to_json(self) -> dict[str, str | float | None]:
        """The fields, ready for JSON."""
        return asdict(self)


def baselines(subject: Subject, plan: StudyPlan, seconds: float | None = None) -> tuple[Baseline, ...]:
    """Every baseline that these data allow, fitted to the training part and scored on the validation part.

    With `seconds`, the network with zero heads makes as many steps as fit.

    >>> from headcount.measuring.sequences import sequences
    >>> x = np.random.default_rng(0).standard_normal((300, 4, 1))
    >>> subject = Subject.of(sequences(x, x[:, 0, 0] - x[:, 3, 0]), 0, "cpu")
    >>> found = {base.name: base.level for base in baselines(subject, StudyPlan(steps=10))}
    >>> found["linear, flattened"] < 1e-3 < found["linear, pooled"]
    True
    """
    return tuple(_scored(subject, name, predicted) for name, predicted in _predictions(subject, plan, seconds))


def _predictions(subject: Subject, plan: StudyPlan, seconds: float | None) -> Iterator[tuple[str, np.ndarray]]:
    """The validation part as each baseline predicts it: targets as trained, or the logits of classes."""
    training, validation = subject.parts.training, subject.parts.validation
    y = _columns(training.y)
    constant = np.log(np.maximum(y.mean(axis=0), 1e-12)) if subject.data.classes else y.mean(axis=0)
    yield "constant", np.repeat(constant[None], len(validation), axis=0)
    if subject.data.past is not None:
        yield "last value", _last_value(subject)
    for name, features in (("linear, flattened", _flat), ("linear, pooled", _pooled)):
        if features(training).shape[1] <= WIDEST:
            model = _linear(features(training)[:MOST], y[:MOST], bool(subject.data.classes))
            yield name, model(features(validation))
    yield "zero heads", _zero_heads(subject, plan, seconds)


def _scored(subject: Subject, name: str, predicted: np.ndarray) -> Baseline:
    y = _columns(subject.parts.validation.y)
    lost = _entropy_lost(predicted, y) if subject.data.classes else float(((predicted - y) ** 2).mean())
    wrong = float((predicted.argmax(axis=1) != y.argmax(axis=1)).mean()) if subject.data.classes else None
    return Baseline(name, lost / subject.parts.constant[1], wrong)


def _entropy_lost(logits: np.ndarray, y: np.ndarray) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(axis=1)) - (shifted * y).sum(axis=1)).mean())


def _columns(y: np.ndarray) -> Float[np.ndarray, "samples outputs"]:
    return y.reshape(len(y), -1).astype(np.float64)


def _flat(part: Part) -> Float[np.ndarray, "samples features"]:
    return part.x.reshape(len(part), -1).astype(np.float64)


def _pooled(part: Part) -> Float[np.ndarray, "samples token_dim"]:
    return part.x.sum(axis=1, dtype=np.float64) / part.lengths[:, None]


def _last_value(subject: Subject) -> Float[np.ndarray, "samples outputs"]:
    """The target's own last value in the window, in the units of training."""
    data, halves = subject.data, subject.split
    assert data.past is not None
    seen = data.y[halves.training]
    last = data.x[halves.validation, -1, data.past].astype(np.float64)[:, None]
    return (last - seen.mean(axis=0)) / np.maximum(seen.std(axis=0), 1e-300)


def _linear(x: np.ndarray, y: np.ndarray, classes: bool) -> Model:
    """Ridge or logistic regression, its penalty chosen on the last fifth of the training part."""
    fit, cut = (_logistic if classes else _ridge), len(x) - len(x) // 5

    def lost(penalty: float) -> float:
        predicted = fit(x[:cut], y[:cut], penalty)(x[cut:])
        return _entropy_lost(predicted, y[cut:]) if classes else float(((predicted - y[cut:]) ** 2).mean())

    return fit(x, y, min(PENALTIES, key=lost))


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

    def lost() -> Tensor:
        solver.zero_grad()
        loss = nn.functional.cross_entropy(features @ weights + level, target)
        loss = loss + penalty * weights.square().sum() / (2 * len(x))
        loss.backward()
        return loss

    solver.step(lost)
    w, c = weights.detach().numpy(), level.detach().numpy()
    return lambda new: new @ w + c


def _zero_heads(subject: Subject, plan: StudyPlan, seconds: float | None) -> Float[np.ndarray, "samples outputs"]:
    """The plan's network without attention: a feed-forward for every token, the mean, a feed-forward.

    Its training ends where the error on a fifth of the training part is smallest.
    """
    member, recipe = subject.members(plan, plan.heads[0])[0], subject.recipe(plan)
    data = subject.parts.resident([member], recipe, torch.float32, "cpu")
    target = torch.as_tensor(_columns(subject.parts.training.y), dtype=torch.float32)
    cut = len(target) - len(target) // 5
    torch_seed = torch.Generator().manual_seed(0)
    net = _Pooling(data.train.x.shape[-1], plan.width, plan.embed_dim, target.shape[1], torch_seed)
    lost = nn.functional.cross_entropy if subject.data.classes else nn.functional.mse_loss
    x, present = data.train.x[0], data.train.present
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)

    def advance() -> None:
        rows = torch.randint(cut, (min(plan.batch, cut),), generator=torch_seed)
        optimiser.zero_grad()
        lost(net(x[rows], None if present is None else present[rows]), target[rows]).backward()
        optimiser.step()

    steps = min(plan.steps, POOLED_STEPS)
    if seconds is not None:
        steps = max(1, min(steps, _steps_within(seconds, advance)))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    held, best, predicted = slice(cut, None), float("inf"), torch.zeros(0)
    over = float("inf") if seconds is None else time.perf_counter() + seconds
    for step in range(steps):
        advance()
        schedule.step()
        if (step + 1) % max(1, steps // 20) == 0:
            with torch.no_grad():
                now = float(lost(net(x[held], None if present is None else present[held]), target[held]))
                if now < best or not len(predicted):
                    best, predicted = now, net(data.validation.x[0], data.validation.present)
            if time.perf_counter() > over:
                break
    return predicted.double().numpy()


def _steps_within(seconds: float, advance: Callable[[], None]) -> int:
    """How many steps fit, by the time of a few of them."""
    advance()
    start = time.perf_counter()
    for _ in range(TRIED_STEPS):
        advance()
    return int(seconds * TRIED_STEPS / max(time.perf_counter() - start, 1e-9))


class _Pooling(nn.Module):
    def __init__(self, inputs: int, width: int, embed_dim: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        self.token = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, embed_dim))
        self.out = nn.Sequential(nn.Linear(embed_dim, width), nn.GELU(), nn.Linear(width, outputs))
        for layer in (*self.token, *self.out):
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, present: Tensor | None) -> Tensor:
        states = self.token(x)
        if present is None:
            return self.out(states.mean(dim=1))
        return self.out((states * present[..., None]).sum(dim=1) / present.sum(dim=1, keepdim=True))
