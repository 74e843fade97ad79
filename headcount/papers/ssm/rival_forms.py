"""One filter in four forms at equal bits: nested chains, second-order sections, lattice, balanced state space.

A form has so many numbers; at a budget of B bits each gets B over that many. What counts is the response: relative L2
of the kernel over ten time constants, and the worst error of the gain in dB down to 60 dB below its peak.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import numpy as np
import scipy.linalg
import scipy.signal

from headcount.papers.ssm.chains import by_angle, by_modulus
from headcount.papers.ssm.interchange import markov, to_sos, to_tf
from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.quantise import FixedPoint, least_reach, quantise, quantise_sos, rms_gap, sos_impulse
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM
from headcount.results.gathering import grouped

FLOAT32 = 32
DEEP = "nested chains"
DEPTHS = (1, 2, 3, 4, 6, 8)
LONGEST, SHORTEST = 1 << 14, 256
FLOOR = 1e-3  # of the peak of the gain: below it dB say nothing
Kernel = Callable[[int, int], np.ndarray]


@dataclass(frozen=True)
class FilterForm:
    """A way to store a filter: its real numbers, and the kernel that they give at so many bits each (32: float32)."""

    name: str
    numbers: int
    kernel: Kernel


def forms_of(system: DiagonalSSM, deep: DeepSSM | None = None) -> tuple[FilterForm, ...]:
    """The forms of a real filter; without a `deep` one, every depth and grouping of nested chains is a candidate."""
    if not system.is_real:
        raise ValueError("sections, lattice and balanced forms are for real kernels; this one is complex")
    chains = [deep] if deep is not None else _chains(system)
    sos, order = to_sos(system), len(to_tf(system)[1]) - 1
    return (
        *(FilterForm(DEEP, _reals(one), partial(_deep, one)) for one in chains),
        FilterForm("sections", 5 * len(sos), partial(_sections, sos)),
        FilterForm("lattice", 2 * order + 1, partial(_lattice, system)),
        FilterForm("balanced", order**2 + 2 * order + 1, partial(_balanced, system)),
    )


FormRow = TypedDict(
    "FormRow", {"budget": int, "form": str, "numbers": int, "bits": int, "gap": float, "worst dB": float}
)
"""A form of a filter at a budget: its numbers, the bits of each, and what rounding does to the kernel."""


def form_rows(
    system: DiagonalSSM, bits: Iterable[int] = (8, 12, 16, FLOAT32), deep: DeepSSM | None = None
) -> list[FormRow]:
    """A row for each budget and form: bits per number, relative L2 of the kernel, worst dB; the best depth of chains.

    The budget is that of second-order sections at so many bits a number; float32 gives every number 32.
    """
    forms, count = forms_of(system, deep), _count(system)
    wanted = np.real(system.impulse(count))
    sections = next(form.numbers for form in forms if form.name == "sections")
    rows = []
    for b in bits:
        by_form: list[tuple[str, FormRow]] = []
        for form in forms:
            own = b if b == FLOAT32 else min(52, sections * b // form.numbers)
            gap, worst = _lost(form, own, wanted) if own >= 2 else (math.inf, math.inf)
            row: FormRow = {"budget": b, "form": form.name, "numbers": form.numbers, "bits": own, "gap": gap,
                            "worst dB": worst}  # fmt: skip
            by_form.append((form.name, row))
        rows += [min(some, key=lambda row: row["gap"]) for some in grouped(by_form).values()]
    return rows


def winners(rows: Iterable[Mapping[str, Any]]) -> str:
    """Who keeps the response best at each budget, in one sentence; by how much is in the rows.

    >>> gaps = {(8, "lattice"): 1e-3, (8, "sections"): 1e-2, (32, "lattice"): 1e-7, (32, "sections"): 1e-8}
    >>> winners({"budget": b, "form": form, "gap": gap} for (b, form), gap in gaps.items())
    'the response is kept best by lattice at 8 bits, by sections in float32'
    """
    groups = grouped((row["budget"], row) for row in rows)
    first = {budget: min(group, key=lambda row: row["gap"]) for budget, group in groups.items()}
    stable = "none that is stable"
    won = grouped((row["form"] if math.isfinite(row["gap"]) else stable, budget) for budget, row in first.items())
    return "the response is kept best " + ", ".join(f"by {form} {_spoken(budgets)}" for form, budgets in won.items())


def _spoken(budgets: list[int]) -> str:
    """Budgets in few words.

    >>> _spoken([8, 12, FLOAT32])
    'at 8, 12 bits and in float32'
    """
    bits = ", ".join(str(b) for b in budgets if b != FLOAT32)
    return " and ".join([f"at {bits} bits"] * bool(bits) + ["in float32"] * (FLOAT32 in budgets))


def _chains(system: DiagonalSSM) -> list[DeepSSM]:
    chains = []
    for depth in DEPTHS:
        for deal in (by_modulus, by_angle):
            try:
                chains.append(system.deepen(depth, deal=deal))
            except ValueError:  # a response that this grouping would lose
                continue
    return chains


def _count(system: DiagonalSSM) -> int:
    """Ten time constants of the slowest pole."""
    slowest = float(np.abs(system.poles).max(initial=0.0))
    return int(min(max(10 / max(1 - slowest, 1e-9), SHORTEST), LONGEST))


def _lost(form: FilterForm, bits: int, wanted: np.ndarray) -> tuple[float, float]:
    kernel = np.real(form.kernel(bits, len(wanted)))
    gap = rms_gap(kernel, wanted)
    if not math.isfinite(gap):
        return math.inf, math.inf
    gain, got = np.abs(np.fft.rfft(wanted, 8192)), np.abs(np.fft.rfft(kernel, 8192))
    audible = gain > FLOOR * gain.max()
    return gap, float(np.abs(20 * np.log10(np.maximum(got[audible], 1e-300) / gain[audible])).max())


def _reals(deep: DeepSSM) -> int:
    """Stored real numbers: the real and imaginary parts that are not 0."""
    parts = [*(layer.poles for layer in deep.layers), *(layer.weights for layer in deep.layers), deep.readout]
    return int(sum((np.real(p) != 0).sum() + (np.imag(p) != 0).sum() for p in parts))


def _deep(deep: DeepSSM, bits: int, count: int) -> np.ndarray:
    if bits != FLOAT32:
        return quantise(deep, FixedPoint(bits)).impulse(count)
    layers = [Layer(_single(layer.poles), _single(layer.weights)) for layer in deep.layers]
    return DeepSSM(layers, _single(deep.readout)).impulse(count)


def _single(numbers: np.ndarray) -> np.ndarray:
    kind = np.complex64 if np.iscomplexobj(numbers) else np.float32
    return numbers.astype(kind).astype(np.complex128 if np.iscomplexobj(numbers) else float)


def _rounded(numbers: np.ndarray, bits: int, reach: float | None = None) -> np.ndarray:
    if bits == FLOAT32:
        return _single(np.asarray(numbers, dtype=float))
    return FixedPoint(bits, reach or least_reach(numbers)).weights(np.asarray(numbers, dtype=float))[0]


def _sections(sos: np.ndarray, bits: int, count: int) -> np.ndarray:
    return sos_impulse(_single(sos) if bits == FLOAT32 else quantise_sos(sos, FixedPoint(bits)), count)


def _lattice(system: DiagonalSSM, bits: int, count: int) -> np.ndarray:
    """Reflection coefficients and taps, by steps down from the denominator; stable as long as they are below 1."""
    b, a = (np.real(part) for part in to_tf(system))
    order = len(a) - 1
    reflections, polynomials = np.zeros(order), [a / a[0]]
    for m in range(order, 0, -1):
        now = polynomials[-1]
        reflections[m - 1] = now[m]
        if abs(now[m]) >= 1:
            return np.full(count, np.inf)
        polynomials.append((now[:m] - now[m] * now[m:0:-1]) / (1 - now[m] ** 2))
    polynomials.reverse()
    taps, left = np.zeros(order + 1), np.zeros(order + 1)
    left[: len(b)] = b / a[0]
    for m in range(order, -1, -1):
        taps[m] = left[m]
        left[: m + 1] -= taps[m] * polynomials[m][::-1]
    rounded = _rounded(reflections, bits, 1.0)
    if (np.abs(rounded) >= 1).any():
        return np.full(count, np.inf)
    return _lattice_kernel(rounded, _rounded(taps, bits), count)


def _lattice_kernel(reflections: np.ndarray, taps: np.ndarray, count: int) -> np.ndarray:
    order, out = len(reflections), np.zeros(count)
    back = np.zeros(order + 1)
    for t in range(count):
        forward, now = 1.0 if t == 0 else 0.0, np.zeros(order + 1)
        for m in range(order, 0, -1):
            forward -= reflections[m - 1] * back[m - 1]
            now[m] = reflections[m - 1] * forward + back[m - 1]
        now[0] = forward
        back, out[t] = now, taps @ now
    return out


def _balanced(system: DiagonalSSM, bits: int, count: int) -> np.ndarray:
    """State space in balanced coordinates: controllable and observable alike in every direction."""
    b, a = (np.real(part) for part in to_tf(system))
    A, B, C, D = scipy.signal.tf2ss(np.pad(b, (0, len(a) - len(b))), a)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # poles near the circle: what is lost shows in the response
            controllability = scipy.linalg.solve_discrete_lyapunov(A, B @ B.T)
            observability = scipy.linalg.solve_discrete_lyapunov(A.T, C.T @ C)
        root = np.linalg.cholesky(controllability + 1e-14 * np.trace(controllability) * np.eye(len(A)))
        left, squares, _ = np.linalg.svd(root.T @ observability @ root)
        turn = root @ left / np.maximum(squares, squares[0] * 1e-14) ** 0.25
        back = np.linalg.inv(turn)
        A, B, C = (_rounded(part, bits) for part in (back @ A @ turn, back @ B, C @ turn))
    except np.linalg.LinAlgError:
        return np.full(count, np.inf)
    if np.abs(np.linalg.eigvals(A)).max() >= 1:
        return np.full(count, np.inf)
    return np.real(markov(A, B, C, _rounded(D, bits), count))
