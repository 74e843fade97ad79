"""Responses of linear systems: closed form, recurrence, frequencies, and convolution of long inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.fft
import scipy.signal
from jaxtyping import Complex, Float, Num

from headcount.papers.ssm.layer import Layer

CHUNK = 1 << 16  # samples a layer takes at a time: memory stays small however long the input
SILENCE = 1e-300  # below this a state is dropped at the end of a chunk: numbers this small slow processors down


def powers(bases: Complex[np.ndarray, " modes"], count: int) -> Complex[np.ndarray, "modes count"]:
    """The powers base^0 .. base^(count-1), by doubling; real bases stay real and conjugates stay conjugate.

    >>> powers(np.array([2.0 + 0j, 0.0]), 3).real
    array([[1., 2., 4.], [1., 0., 0.]])
    """
    table = np.ones((len(bases), count), dtype=np.complex128)
    done, step = 1, bases.astype(np.complex128)
    while done < count:
        new = min(done, count - done)
        table[:, done : done + new] = table[:, :new] * step[:, None]
        done, step = done + new, step * step
    return table


def closed_form(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], count: int
) -> Complex[np.ndarray, " count"]:
    """The kernel rho(t) = sum_i R_i lambda_i^t for t = 0 .. count-1 (0^0 = 1: a zero pole passes its input at once).

    lambda^(aK+b) = (lambda^K)^a lambda^b, so a million samples are one product of two small tables.

    >>> closed_form(np.array([0.5 + 0j, 0.0]), np.array([4.0 + 0j, 1.0]), 3).real
    array([5., 2., 1.])
    """
    fine = max(1, int(np.ceil(np.sqrt(count))))
    low = powers(poles, fine)
    high = powers(low[:, -1] * poles, -(-count // fine))
    return ((residues[:, None] * high).T @ low).ravel()[:count]


def recurrence(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], count: int
) -> Complex[np.ndarray, " count"]:
    """The same kernel from h(t+1) = diag(lambda) h(t), one step at a time: the slow road that checks the others.

    >>> recurrence(np.array([0.5 + 0j, 0.0]), np.array([4.0 + 0j, 1.0]), 3).real
    array([5., 2., 1.])
    """
    state, kernel = np.ones(len(poles), dtype=np.complex128), np.empty(count, dtype=np.complex128)
    for t in range(count):
        kernel[t] = residues @ state
        state = poles * state
    return kernel


def scan(
    layers: Sequence[Layer], readout: Complex[np.ndarray, " width"], x: Num[np.ndarray, " length"]
) -> Complex[np.ndarray, " length"]:
    """The output y(t) = C^T h_l(t) by recurrence through the layers, from zero states.

    h_1(t+1) = A_1 h_1(t) + B_1 x(t+1),  h_k(t+1) = A_k h_k(t) + B_k h_{k-1}(t+1): no delay between layers.
    Source: the depth paper on linear SSMs, Section 2; the initial state, which it leaves open, is 0.
    """
    states = [np.zeros(layer.width, dtype=np.complex128) for layer in layers]
    y = np.empty(len(x), dtype=np.complex128)
    for start in range(0, len(x), CHUNK):
        v = x[None, start : start + CHUNK].astype(np.complex128)
        if not v.any() and not any(state.any() for state in states):
            y[start : start + CHUNK] = 0
            continue
        for k, layer in enumerate(layers):
            v, states[k] = _advance(layer, states[k], layer.weights @ v)
        y[start : start + CHUNK] = readout @ v
    return y


def _advance(
    layer: Layer, state: Complex[np.ndarray, " width"], v: Complex[np.ndarray, "width length"]
) -> tuple[Complex[np.ndarray, "width length"], Complex[np.ndarray, " width"]]:
    h = np.empty_like(v)
    for j, pole in enumerate(layer.poles):
        # A first-order filter carries pole * h(t-1), so a zero pole carries nothing.
        h[j] = v[j] if pole == 0 else scipy.signal.lfilter([1.0], [1.0, -pole], v[j], zi=[pole * state[j]])[0]
    end = h[:, -1]
    return h, np.where(np.abs(end) > SILENCE, end, 0)


def frequency(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], omega: Float[np.ndarray, " points"]
) -> Complex[np.ndarray, " points"]:
    """The transfer function H = sum_i R_i / (1 - lambda_i w) at w = exp(-i omega)."""
    w = np.exp(-1j * omega)
    return (residues / (1 - np.multiply.outer(w, poles))).sum(axis=1)


def deep_frequency(
    layers: Sequence[Layer], readout: Complex[np.ndarray, " width"], omega: Float[np.ndarray, " points"]
) -> Complex[np.ndarray, " points"]:
    """H(w) = C^T (I - A_l w)^-1 B_l ... (I - A_1 w)^-1 B_1 at w = exp(-i omega)."""
    w = np.exp(-1j * omega)
    v = np.ones((len(w), 1), dtype=np.complex128)
    for layer in layers:
        v = (v @ layer.weights.T) / (1 - np.multiply.outer(w, layer.poles))
    return v @ readout


def convolve(kernel: Num[np.ndarray, " length"], x: Num[np.ndarray, " length"]) -> Complex[np.ndarray, " length"]:
    """The causal convolution (kernel * x)(t) for t below the length, by FFT.

    >>> convolve(np.array([1.0 + 0j, 0.5]), np.array([2.0, 0.0])).real
    array([2., 1.])
    """
    size = scipy.fft.next_fast_len(2 * len(x) - 1)
    return np.fft.ifft(np.fft.fft(kernel, size) * np.fft.fft(x, size))[: len(x)]


def gap(measured: Num[np.ndarray, " length"], wanted: Num[np.ndarray, " length"]) -> float:
    """The largest difference of two responses, relative to the largest value of the wanted one.

    >>> gap(np.array([1.0, 2.1]), np.array([1.0, 2.0])).__round__(3)
    0.05
    """
    scale = np.abs(wanted).max()
    return float(np.abs(measured - wanted).max() / (scale if scale > 0 else 1.0))
