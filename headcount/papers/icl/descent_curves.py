"""Exact errors of descent by depth: what one step a layer leaves, over contexts drawn from a spectrum.

The error is expected over the teacher and the query and relative to the variance of the answer,
tr((I - eta S)^L Sigma (I - eta S)^L) / tr(Sigma), S the covariance of the sample and Sigma that of the population.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from headcount.papers.icl.bounds import effective_step
from headcount.papers.icl.contexts import Spectrum
from headcount.refusals import at_least_one

DEPTHS = (1, 2, 4, 8, 16, 32, 64)
Rates = Callable[[Float[np.ndarray, "contexts d"], int], Float[np.ndarray, " contexts"]]


def by_largest(values: Float[np.ndarray, "contexts d"], layers: int) -> Float[np.ndarray, " contexts"]:
    """The step 1 / lambda_max of each context, whatever the depth."""
    return 1 / values[:, -1]


def claimed_step(values: Float[np.ndarray, "contexts d"], layers: int) -> Float[np.ndarray, " contexts"]:
    """The claimed step 1 / sqrt(L d)."""
    return np.full(len(values), effective_step(layers, values.shape[1]).value)


@dataclass(frozen=True)
class DescentCurve:
    """The mean and the median error over contexts at each depth; `slopes` are those of the means between depths."""

    depths: tuple[int, ...]
    means: tuple[float, ...]
    medians: tuple[float, ...]

    @property
    def slopes(self) -> tuple[float, ...]:
        """d log error / d log depth between neighbouring depths: constant for a power law."""
        steps = np.diff(np.log(self.means)) / np.diff(np.log(self.depths))
        return tuple(steps.tolist())


def descent_curve(
    spectrum: Spectrum,
    *,
    dimension: int = 16,
    examples: int = 64,
    rates: Rates = by_largest,
    depths: Sequence[int] = DEPTHS,
    contexts: int = 2000,
    seed: int = 0,
) -> DescentCurve:
    """The error that L steps of descent leave, over contexts drawn from the spectrum, labels without noise."""
    at_least_one(dimension=dimension, examples=examples, contexts=contexts)
    sigma = np.array(spectrum.values(dimension))
    x = np.random.default_rng(seed).standard_normal((contexts, examples, dimension)) * np.sqrt(sigma)
    values, vectors = np.linalg.eigh(np.einsum("cki,ckj->cij", x, x) / examples)
    projected = np.einsum(
        "cij,i->cj", vectors**2, sigma
    )  # v_j^T Sigma v_j: the matrices commute with S, so this is enough
    errors = [
        ((1 - rates(values, depth)[:, None] * values) ** (2 * depth) * projected).sum(1) / sigma.sum()
        for depth in depths
    ]
    means, medians = (tuple(float(f(e)) for e in errors) for f in (np.mean, np.median))
    return DescentCurve(tuple(depths), means, medians)


def ridge_curve(
    examples: Sequence[int], *, dimension: int = 16, noise: float = 0.5, contexts: int = 500, seed: int = 0
) -> tuple[float, ...]:
    """The error of the posterior mean by the length of the context, isotropic inputs: what no network goes below.

    Of w ~ N(0, I/d) the context leaves the covariance noise^2 (X^T X + d noise^2 I)^(-1); its trace over tr(I/d) = 1 is
    the error.
    """
    generator, errors = np.random.default_rng(seed), []
    for k in examples:
        x = generator.standard_normal((contexts, k, dimension))
        gram = np.einsum("cki,ckj->cij", x, x) + dimension * noise**2 * np.eye(dimension)
        errors.append(float(noise**2 * np.trace(np.linalg.inv(gram), axis1=1, axis2=2).mean()))
    return tuple(errors)


def plateau(spectrum: Spectrum, depth: int, *, dimension: int = 4) -> float:
    """What is left with an infinite context, each layer at its best step: the floor that only depth lowers.

    By arithmetic, not measured. A fixed covariance lets a layer learn a step for each of its axes, 1/s, and isotropic
    ones have one axis only: what those steps leave is computed. Rotated anew the layers know the eigenvalues only: the
    best polynomial of degree L in them, prod (1 - eta_l s), is left.

    >>> plateau(Spectrum(), 1) < 1e-30, plateau(Spectrum(2.0), 1) < 1e-30
    (True, True)
    >>> round(plateau(Spectrum(2.0, rotated=True), 1), 3)
    0.196
    """
    at_least_one(depth=depth, dimension=dimension)
    sigma = np.array(spectrum.values(dimension))
    if not (spectrum.rotated and spectrum.decay):
        return float((sigma * (1 - (1 / sigma) * sigma) ** (2 * depth)).sum() / sigma.sum())
    if depth >= dimension:  # the polynomial vanishes at every eigenvalue
        return 0.0

    def left(etas: Float[np.ndarray, " depth"]) -> float:
        return float((sigma * np.prod(1 - np.outer(sigma, etas), axis=1) ** 2).sum() / sigma.sum())

    starts = [1 / np.quantile(sigma, np.linspace(q, 1, depth)) for q in (0.0, 0.3, 0.6)]
    return min(float(minimize(left, start, method="Nelder-Mead", options={"xatol": 1e-9}).fun) for start in starts)
