"""Why small entries pay: systems stored with a few bits a number, and what their responses lose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.signal
from jaxtyping import Float, Num

from headcount.ssm.interchange import to_sos
from headcount.ssm.layer import Layer
from headcount.ssm.values import DeepSSM, DiagonalSSM

__all__ = ["FixedPoint", "bits_rows", "quantise", "quantise_sos", "rms_gap", "sos_impulse"]


@dataclass(frozen=True)
class FixedPoint:
    """Signed numbers of b bits: multiples of reach / 2^(b-1) up to reach, a power of two that all numbers share.

    >>> FixedPoint(bits=3)(np.array([0.3, -0.8]), reach=1.0)
    array([ 0.25, -0.75])
    """

    bits: int

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 52:
            raise ValueError(f"a number needs 2 to 52 bits, got {self.bits}")

    def step(self, reach: float) -> float:
        """The distance of two neighbours."""
        return reach / 2 ** (self.bits - 1)

    def __call__(self, numbers: Num[np.ndarray, "*shape"], reach: float) -> Num[np.ndarray, "*shape"]:
        """The nearest numbers of the format; a complex number is two of them."""
        if np.iscomplexobj(numbers):
            return self(numbers.real, reach) + 1j * self(numbers.imag, reach)
        step = self.step(reach)
        return np.clip(np.round(numbers / step) * step, -reach, reach - step)

    def poles(self, numbers: Num[np.ndarray, " modes"]) -> Num[np.ndarray, " modes"]:
        """The same with reach 1, but towards 0 where the nearest number would leave the unit circle."""
        near, step = self(numbers, 1.0), self.step(1.0)
        inward = np.trunc(numbers.real / step) * step + 1j * np.trunc(numbers.imag / step) * step
        return np.where(np.abs(near) < 1, near, inward)


def reach(*arrays: np.ndarray) -> float:
    """The least power of two above every real and imaginary part.

    >>> reach(np.array([3.0, -1.0])), reach(np.array([0.3j]))
    (4.0, 0.5)
    """
    top = max(float(max(np.abs(a.real).max(), np.abs(a.imag).max())) for a in arrays)
    return 2.0 ** (math.floor(math.log2(top)) + 1) if top > 0 else 1.0


def quantise(system: DiagonalSSM | DeepSSM, form: FixedPoint) -> DiagonalSSM | DeepSSM:
    """The system with its poles (reach 1) and its weights (one shared reach) rounded to the format.

    A diagonal layer is stored as poles, b and c with b_i = c_i = sqrt(R_i), the balanced split that its norm speaks of.
    """
    if isinstance(system, DiagonalSSM):
        root = np.sqrt(system.residues)
        return DiagonalSSM(form.poles(system.poles), form(root, reach(root)) ** 2)
    top = reach(*(layer.weights for layer in system.layers), system.readout)
    layers = [Layer(form.poles(layer.poles), form(layer.weights, top)) for layer in system.layers]
    return DeepSSM(layers, form(system.readout, top))


def quantise_sos(sos: Float[np.ndarray, "sections 6"], form: FixedPoint) -> Float[np.ndarray, "sections 6"]:
    """Second-order sections with all coefficients but a0 = 1 rounded to one shared reach, the gain spread evenly."""
    gain = np.prod(np.abs(sos[:, 0])) ** (1 / len(sos)) if sos[:, 0].all() else 1.0
    even = sos.copy()
    if sos[:, 0].all():
        even[:, :3] *= (gain / np.abs(sos[:, :1]))  # each section starts with b0 of the same size
    rounded = form(even, reach(even))
    rounded[:, 3] = 1.0
    return rounded


def sos_impulse(sos: Float[np.ndarray, "sections 6"], count: int) -> Float[np.ndarray, " count"]:
    """The kernel of second-order sections; infinite where rounding has made a section unstable.

    A section is stable inside the triangle |a2| < 1, |a1| < 1 + a2.
    """
    a1, a2 = sos[:, 4], sos[:, 5]
    if (np.abs(a2) >= 1).any() or (np.abs(a1) >= 1 + a2).any():
        return np.full(count, np.inf)
    return scipy.signal.sosfilt(sos, np.eye(1, count)[0])


def rms_gap(measured: Num[np.ndarray, " length"], wanted: Num[np.ndarray, " length"]) -> float:
    """The root mean square of the difference relative to that of the wanted response; infinite if unstable."""
    if not np.isfinite(measured).all():
        return math.inf
    return float(np.linalg.norm(measured - wanted) / np.linalg.norm(wanted))


def bits_rows(
    system: DiagonalSSM, forms: dict[str, DiagonalSSM | DeepSSM], bits: Iterable[int], count: int = 1024
) -> list[dict[str, Any]]:
    """A row for each form and number of bits: what the response loses. Second-order sections join a real kernel.

    >>> system = DiagonalSSM([0.9, 0.899], [900, -899.0])
    >>> rows = bits_rows(system, {"one layer": system, "depth 2": system.deepen(2)}, bits=[12])
    >>> [row["form"] for row in sorted(rows, key=lambda row: row["gap"])][-1]
    'one layer'
    """
    wanted = system.impulse(count)
    stored: dict[str, Callable[[FixedPoint], np.ndarray]] = {
        name: (lambda form, s=s: quantise(s, form).impulse(count)) for name, s in forms.items()
    }
    if system.is_real and system.merged().modes > 1:
        sos = to_sos(system)
        stored["second-order sections"] = lambda form: sos_impulse(quantise_sos(sos, form), count)
    return [
        {"form": name, "bits": b, "gap": rms_gap(impulse(FixedPoint(b)), wanted)}
        for name, impulse in stored.items()
        for b in bits
    ]
