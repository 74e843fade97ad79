"""How fast the smoother's error falls with the number of tokens, with intervals and one-sided verdicts.

Exponents are of the decay, positive: error ~ t^(-exponent). The claim is an upper bound on the error, so it is missed
only where the whole interval lies below the claimed exponent ("slower"); else it stands, and is not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student

from headcount.fits.verdict import Estimate
from headcount.papers.consistency.bounds import consistency_rate, lipschitz_rate
from headcount.results import Predicate

Errors = Float[np.ndarray, "repetitions lengths"]
Answer = Callable[[np.ndarray, np.ndarray, np.ndarray, float], np.ndarray]
Function = Callable[[np.ndarray], np.ndarray]
ROUNDING = 1e-12  # errors below are rounding, and have no rate


@dataclass(frozen=True)
class DecayCase:
    """A dimension, a noise, the lengths, the temperature beta = scale t^power, and the name of the function."""

    dimension: int
    noise: float
    lengths: tuple[int, ...]
    power: float
    scale: float = 1.0
    function: str = "sin(2 sum x)"

    @property
    def name(self) -> str:
        return f"d = {self.dimension}, noise {self.noise:g}, beta = t^{self.power:.3g}"


def _noisy(d: int, noise: float, lengths: Sequence[int]) -> DecayCase:
    return DecayCase(d, noise, tuple(lengths), 2 / (d + 2))


SHORT_RUN = tuple(2**k for k in range(6, 13))
NOISY = (
    _noisy(1, 1.0, [4**k for k in range(4, 10)]),
    *(_noisy(d, 0.5, SHORT_RUN) for d in (2, 3, 4)),
)
QUIET = tuple(DecayCase(d, 0.0, SHORT_RUN, 2 / d) for d in (1, 2, 3, 4))


@dataclass(frozen=True)
class Decay:
    """The decay exponent of a case with its interval over repetitions, and what it says about the claim.

    `later` is that of the longer half of the lengths: where it is steeper, the law has not begun yet.
    """

    case: DecayCase
    exponent: Estimate
    errors: tuple[float, ...]
    repetitions: int
    later: Estimate | None = None

    @property
    def verdict(self) -> str:
        """One-sided: the claim promises at least this decay, in the end; not settled where it still grows steeper."""
        claimed = consistency_rate(self.case.dimension).value
        if max(self.errors) < ROUNDING or (self.later is not None and self.later.high >= claimed > self.exponent.high):
            return "not settled"
        return of_our_reading(one_sided(self.exponent, claimed))

    def as_row(self) -> dict[str, object]:
        """The decay as one flat machine-readable row, claimed and minimax rates beside it."""
        d = self.case.dimension
        ends = {"exponent": self.exponent.value, "low": self.exponent.low, "high": self.exponent.high}
        rates = {"claimed": consistency_rate(d).value, "possible": lipschitz_rate(d).value if self.case.noise else None}
        span = {"from": self.case.lengths[0], "to": self.case.lengths[-1], "repetitions": self.repetitions}
        about = {
            "function": self.case.function,
            "dimension": d,
            "noise": self.case.noise,
            "power": self.case.power,
            **span,
        }
        return {**about, **rates, **ends, "errors": list(self.errors), "verdict": self.verdict}


def one_sided(measured: Estimate, claimed: float) -> str:
    """Slower where the whole interval of the decay lies below the claimed one; else the claim stands, unconfirmed.

    >>> one_sided(Estimate(0.35, 0.33, 0.37), 0.5), one_sided(Estimate(0.9, 0.8, 1.0), 0.5)
    ('slower', 'not slower')
    """
    return "slower" if measured.high < claimed else "not slower"


def of_our_reading(outcome: str) -> str:
    """What may be said of a statement that we fixed: the abstract's rate, with noise, new points and a Lipschitz f.

    A decay below it shows that this smoother has not the rate in our reading, and nothing of the authors' theorem.

    >>> of_our_reading("slower"), of_our_reading("not slower")
    ('not comparable', 'not slower')
    """
    return Predicate.NOT_COMPARABLE.value if outcome == "slower" else outcome


def sine(x: Float[np.ndarray, "points dimension"]) -> Float[np.ndarray, " points"]:
    """sin(2 sum x)."""
    return np.sin(2 * x.sum(1))


def decay(
    case: DecayCase, function: Function = sine, *, repetitions: int = 20, queries: int = 64, seed: int = 0
) -> Decay:
    """The decay of the smoother's root mean square error over new points of the cube, for a function of your own.

    The function takes points (points, dimension) and gives a number each; `case.function` is what a table calls it.

    >>> steps = DecayCase(2, 0.5, (64, 256, 1024), 0.5, function="a step")
    >>> decay(steps, lambda x: np.sign(x[:, 0] - 0.5), repetitions=3).as_row()["function"]
    'a step'
    """
    if repetitions < 2 or len(case.lengths) < 2:
        raise ValueError(f"a decay needs 2 repetitions and 2 lengths, got {repetitions} and {len(case.lengths)}")
    generator = np.random.default_rng(seed)
    errors = np.array(
        [[_error(case, function, t, queries, generator) for t in case.lengths] for _ in range(repetitions)]
    )
    middle = (len(case.lengths) - 1) // 2
    positive = np.maximum(errors, np.finfo(float).tiny)
    later = decay_of(positive[:, middle:], case.lengths[middle:]) if len(case.lengths) > 3 else None
    return Decay(case, decay_of(positive, case.lengths), tuple(np.median(errors, axis=0).tolist()), repetitions, later)


def decay_of(errors: Errors, lengths: Sequence[int], confidence: float = 0.95) -> Estimate:
    """The mean slope over repetitions of log error against log length, turned positive, with Student's interval.

    >>> print(decay_of(np.array([[1.0, 0.5], [1.0, 0.5]]), (4, 16)))
    0.5 [0.5, 0.5]
    """
    slopes = -np.polyfit(np.log(lengths), np.log(errors).T, 1)[0]
    half = student.ppf((1 + confidence) / 2, len(slopes) - 1) * slopes.std(ddof=1) / np.sqrt(len(slopes))
    return Estimate(float(slopes.mean()), float(slopes.mean() - half), float(slopes.mean() + half))


def _error(case: DecayCase, function: Function, length: int, queries: int, generator: np.random.Generator) -> float:
    x = generator.random((length, case.dimension))
    y = function(x) + case.noise * generator.standard_normal(length)
    q = generator.random((queries, case.dimension))
    beta = case.scale * length**case.power
    estimates = np.concatenate([_smoothed(x, y, part, beta) for part in np.array_split(q, max(1, length // 16384))])
    return float(np.sqrt(((estimates - function(q)) ** 2).mean()))


def _smoothed(x: np.ndarray, y: np.ndarray, q: np.ndarray, beta: float) -> np.ndarray:
    """Softmax attention with the smoother's scores, the largest taken off before the exponential."""
    scores = beta * (2 * q @ x.T - (x**2).sum(1))
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights @ y / weights.sum(1)
