"""Which lags carry the information that training looks for: stationary laws, chi-square information, its maximiser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from headcount.refusals import at_least_one, positive
from headcount.sources import Source, implements

MIXING = 1e-3  # of the uniform law in every row: random kernels are nearly reducible
Lags = tuple[int, ...]


def subsets(window: int, largest: int | None = None) -> list[Lags]:
    """Every set of lags 1..window with at most `largest` of them, the empty one first.

    >>> subsets(2)
    [(), (1,), (2,), (1, 2)]
    """
    sizes = range((window if largest is None else min(largest, window)) + 1)
    return [chosen for size in sizes for chosen in combinations(range(1, window + 1), size)]


def stationary_law(transition: np.ndarray) -> np.ndarray:
    """The stationary law of a chain with positive probabilities, (..., states, states) to (..., states).

    States are removed one by one, each replaced by the ways through it, with no subtraction at all: every entry comes
    out positive with a small relative error, however nearly reducible the chain is.
    Source: Grassmann, Taksar, Heyman 1985.

    >>> stationary_law(np.array([[0.5, 0.5], [0.25, 0.75]])).round(12).tolist()
    [0.333333333333, 0.666666666667]
    """
    p = np.array(transition, dtype=float)
    states = p.shape[-1]
    for k in range(states - 1, 0, -1):
        leaving = p[..., k, :k].sum(axis=-1)[..., None]
        p[..., :k, k] /= leaving
        p[..., :k, :k] += p[..., :k, k, None] * p[..., k, None, :k]
    law = np.zeros(p.shape[:-1])
    law[..., 0] = 1.0
    for k in range(1, states):
        law[..., k] = (law[..., :k] * p[..., :k, k]).sum(axis=-1)
    return law / law.sum(axis=-1, keepdims=True)


def chi2_information(
    kernel: np.ndarray,
    lags: Sequence[int],
    power: int = 2,
    *,
    parents: Sequence[int] | None = None,
    mixing: float = MIXING,
) -> np.ndarray:
    """I_p(S) = sum_z mu(z)^p (sum_e mu(e|z)^2 / mu(e) - 1), z the letters at the lags S of a stationary chain.

    p = 1 is the chi-square mutual information, which no added lag lowers; p = 2 weighs every pattern by its frequency
    once more and so charges for rare ones. `kernel` is (..., V^k, V): the letter at the i-th parent counts V^i in the
    number of a row, and the parents are 1..k unless given.
    Source: Chen et al. 2024 (induction heads), modified chi-square mutual information.
    Departs: 0.001 of every row is uniform, so that the law is one; at concentration 0.1 that moves values by some 5%.

    >>> copying = np.array([[1.0, 0.0], [0.0, 1.0]])  # the next letter is the last one
    >>> [round(float(chi2_information(copying, lags, 1, mixing=1e-9)), 6) for lags in ((), (1,))]
    [0.0, 1.0]
    """
    return _informations(kernel, [tuple(lags)], power, parents, mixing)[0]


@dataclass(frozen=True)
class InformationSet:
    """The lags of largest mean information, the runner-up, and their difference with its standard error."""

    lags: Lags
    value: float
    runner_up: Lags
    margin: float
    margin_error: float

    @property
    def decided(self) -> bool:
        """Whether the lead is more than two standard errors."""
        return self.margin > 2 * self.margin_error


@implements(
    Source("chen2024induction", "modified chi-square mutual information"),
    test="tests/test_induction_bounds.py::test_the_modified_information_chooses_the_parents_alone",
    status="measured",
)
def information_set(
    concentration: float,
    vocab: int,
    parents: Sequence[int],
    window: int,
    *,
    power: int = 2,
    kernels: int = 400,
    seed: int = 0,
) -> InformationSet:
    """The set S* of lags that maximises E I_p over random kernels, and by how much it leads.

    The expectation is a mean over `kernels` of them; the margin is a mean of differences kernel by kernel, so its
    standard error is that of the comparison, not of the two values.

    >>> information_set(1.0, 2, (2,), window=3, kernels=50).lags
    (2,)
    """
    values = information_table(concentration, vocab, parents, window, power=power, kernels=kernels, seed=seed)
    best, second = sorted(values, key=lambda lags: -values[lags].mean())[:2]
    ahead = values[best] - values[second]
    error = float(ahead.std(ddof=1) / len(ahead) ** 0.5)
    return InformationSet(best, float(values[best].mean()), second, float(ahead.mean()), error)


def _refuse_chain(vocab: int, parents: Sequence[int], window: int) -> None:
    if vocab < 2:
        raise ValueError(f"a chain needs 2 letters to say anything, got {vocab}")
    if not parents or len(set(parents)) < len(parents) or min(parents) < 1:
        raise ValueError(f"parents are different lags from 1 on, at least one of them, got {tuple(parents)}")
    if max(parents) > window:
        raise ValueError(f"the parent {max(parents)} lies outside the window of {window} lags: no set holds it")


def information_table(
    concentration: float,
    vocab: int,
    parents: Sequence[int],
    window: int,
    *,
    power: int = 2,
    kernels: int = 400,
    seed: int = 0,
) -> dict[Lags, np.ndarray]:
    """I_p of every set of lags of a window, kernel by kernel, on the same random kernels."""
    positive(concentration=concentration)
    at_least_one(window=window)
    _refuse_chain(vocab, parents, window)
    if kernels < 2:
        raise ValueError(f"a standard error needs at least 2 kernels, got {kernels}")
    rows = (kernels, vocab ** len(parents))
    kernel = np.random.default_rng(seed).dirichlet([concentration] * vocab, rows)
    chosen = subsets(window)
    return dict(zip(chosen, _informations(kernel, chosen, power, parents, MIXING), strict=True))


def _informations(
    kernel: np.ndarray, chosen: Sequence[Lags], power: int, parents: Sequence[int] | None, mixing: float
) -> list[np.ndarray]:
    """The information of several sets of lags, from one stationary law of windows."""
    V = kernel.shape[-1]
    known = sorted(parents) if parents is not None else list(range(1, round(np.log(kernel.shape[-2]) / np.log(V)) + 1))
    if V ** len(known) != kernel.shape[-2]:
        raise ValueError(f"{len(known)} parents of {V} letters need {V ** len(known)} rows, got {kernel.shape[-2]}")
    window = max([*known, *(lag for lags in chosen for lag in lags)])
    joint = _joint(kernel * (1 - mixing) + mixing / V, known, window)
    return [_information(joint, lags, window, power) for lags in chosen]


def _joint(kernel: np.ndarray, parents: Sequence[int], window: int) -> np.ndarray:
    """The stationary law of (next letter, letter at lag 1, ..., at lag `window`), an axis each."""
    V, batch = kernel.shape[-1], kernel.shape[:-2]
    state = np.indices((V,) * window).reshape(window, -1)  # the letter at lag 1, 2, ...: the first counts most
    rows = sum(state[lag - 1] * V**i for i, lag in enumerate(parents))
    chances = kernel[..., rows, :]  # (..., states, V)
    transition = np.zeros((*batch, V**window, V**window))
    for letter in range(V):
        after = letter * V ** (window - 1) + np.arange(V**window) // V  # the newest enters, the oldest leaves
        transition[..., np.arange(V**window), after] += chances[..., letter]
    joint = np.swapaxes(stationary_law(transition)[..., None] * chances, -1, -2)
    return joint.reshape(*batch, *(V,) * (window + 1))


def _information(joint: np.ndarray, lags: Lags, window: int, power: int) -> np.ndarray:
    start = joint.ndim - window - 1  # the axis of the next letter
    gone = tuple(start + lag for lag in range(1, window + 1) if lag not in lags)
    pairs = joint.sum(axis=gone)
    pairs = pairs.reshape(*joint.shape[:start], joint.shape[-1], -1)  # (..., e, z)
    patterns, letters = pairs.sum(axis=-2), pairs.sum(axis=-1)
    # mu(e|z)^2 = mu(e, z)^2 / mu(z)^2; the mixing keeps every pattern possible
    excess = ((pairs / patterns[..., None, :]) ** 2 / letters[..., None]).sum(axis=-2) - 1
    return np.asarray((patterns**power * excess).sum(axis=-1))
