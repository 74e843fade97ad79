"""Deep to shallow: the poles of a deep system with their residues, repeated poles included."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex

from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.responses import powers
from headcount.sources import Source, implements


@dataclass(frozen=True, eq=False)
class Mode:
    """The part sum_p weights[p-1] / (1 - pole w)^p of a response: in time, weights[p-1] binom(t+p-1, p-1) pole^t.

    One weight is an ordinary mode R lambda^t; a second one adds t lambda^t, which no diagonal layer has.
    """

    pole: complex
    weights: Complex[np.ndarray, " order"]


@implements(
    Source("ssm2025depth", "Theorem 4.1, first inclusion"),
    test="tests/test_ssm_values.py::test_flattening_gives_back_poles_and_residues",
    status="proved in the paper",
)
def modes(layers: Sequence[Layer], readout: Complex[np.ndarray, " width"]) -> tuple[Mode, ...]:
    """The partial fractions of C^T (I - A_l w)^-1 B_l ... (I - A_1 w)^-1 B_1, a Mode for each distinct pole.

    A pole that stands in r layers may carry up to r weights; zero poles pass their input at once and never pile up.
    """
    count = _layers_with_pole(layers)
    fractions = [Mode(0j, np.array([_constant(layers, readout)]))] if 0 in count else []
    for order in sorted({r for pole, r in count.items() if pole != 0}):
        poles = np.array([pole for pole, r in count.items() if r == order and pole != 0])
        weights = _laurent(layers, readout, poles, order)
        fractions += [Mode(complex(pole), w) for pole, w in zip(poles, weights, strict=True)]
    return tuple(sorted(fractions, key=lambda mode: -abs(mode.pole)))


def modes_impulse(parts: Sequence[Mode], count: int) -> Complex[np.ndarray, " count"]:
    """The kernel of modes in closed form: sum of weights[p-1] binom(t+p-1, p-1) pole^t.

    >>> modes_impulse([Mode(0.5 + 0j, np.array([0j, 1]))], 4).real
    array([1.  , 1.  , 0.75, 0.5 ])
    """
    t = np.arange(count)
    kernel = np.zeros(count, dtype=np.complex128)
    for mode in parts:
        decay = powers(np.array([mode.pole]), count)[0]
        rising = np.ones(count)
        for p, weight in enumerate(mode.weights, start=1):
            kernel += weight * rising * decay
            rising = rising * (t + p) / p  # binom(t+p, p) from binom(t+p-1, p-1)
    return kernel


def _layers_with_pole(layers: Sequence[Layer]) -> dict[complex, int]:
    count: dict[complex, int] = {}
    for layer in layers:
        for pole in set(layer.poles.tolist()):
            count[pole] = count.get(pole, 0) + 1
    return count


def _constant(layers: Sequence[Layer], readout: Complex[np.ndarray, " width"]) -> complex:
    """H at w = infinity, where only paths through zero poles alone survive."""
    v = np.ones(1, dtype=np.complex128)
    for layer in layers:
        v = np.where(layer.poles == 0, layer.weights @ v, 0)
    return complex(readout @ v)


def _laurent(
    layers: Sequence[Layer], readout: Complex[np.ndarray, " width"], poles: Complex[np.ndarray, " some"], order: int
) -> Complex[np.ndarray, "some order"]:
    """The coefficients of u^-1 .. u^-order at each pole, where u = 1 - pole w and the pole stands in `order` layers.

    Through every layer goes a series sum_s v_s u^(s-q), q the number of layers with the pole met so far, cut after
    `order` terms. A channel with the pole multiplies by 1/u, one of another pole a, with rho = a/pole, by
    1/(1 - rho + rho u) = sum_j (1/(1-rho)) (-rho/(1-rho))^j u^j.
    """
    v = np.zeros((len(poles), order, 1), dtype=np.complex128)
    v[:, 0] = 1
    for layer in layers:
        x = v @ layer.weights.T
        same = layer.poles == poles[:, None]
        series = _series(np.where(same, 0, layer.poles / poles[:, None]), order)
        met = same.any(axis=1)
        v = np.zeros_like(x)
        for s in range(order):
            v[:, s] = sum(series[:, j] * x[:, s - j] for j in range(s + 1))
        v[met, 1:] = v[met, :-1]  # counted from u^-(q+1) now, the others start one power later
        v[met, 0] = 0
        v = np.where(same[:, None, :], x, v)
    return (v @ readout)[:, ::-1]


def _series(rho: Complex[np.ndarray, "some width"], order: int) -> Complex[np.ndarray, "some order width"]:
    j = np.arange(order)[None, :, None]
    rho = rho[:, None, :]
    return (-rho / (1 - rho)) ** j / (1 - rho)
