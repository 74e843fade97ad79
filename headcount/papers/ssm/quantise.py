"""Why small entries pay: systems stored with a few bits per number, and what their responses lose."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import scipy.signal
from jaxtyping import Float, Num

from headcount.papers.ssm.chains import by_angle, by_modulus
from headcount.papers.ssm.interchange import to_sos
from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM
from headcount.results.gathering import grouped

SECTIONS = "second-order sections"


@dataclass(frozen=True)
class FixedPoint:
    """Signed numbers of b bits: multiples of reach / 2^(b-1) up to reach, beyond which they saturate.

    `reach` is that of the weights: given, as in a chip whose format is fixed, or (None) the least power of two that
    holds the form at hand, as a compiler would choose it. Poles always have reach 1.

    >>> FixedPoint(bits=3, reach=1.0).weights(np.array([0.3, -0.8, 7.0]))
    (array([ 0.25, -0.75,  0.75]),)
    """

    bits: int
    reach: float | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 52:
            raise ValueError(f"a number needs 2 to 52 bits, got {self.bits}")
        if self.reach is not None and not self.reach > 0:
            raise ValueError(f"the reach must be above 0, got {self.reach}")

    def weights(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """The nearest numbers of the format, all arrays at one reach; a complex number is two of them."""
        top = self.reach or least_reach(*arrays)
        return tuple(self._nearest(array, top) for array in arrays)

    def _nearest(self, numbers: Num[np.ndarray, "*shape"], top: float) -> Num[np.ndarray, "*shape"]:
        if np.iscomplexobj(numbers):
            return self._nearest(np.real(numbers), top) + 1j * self._nearest(np.imag(numbers), top)
        step = top / 2 ** (self.bits - 1)
        return np.clip(np.round(numbers / step) * step, -top, top - step)

    def poles(self, numbers: Num[np.ndarray, " modes"]) -> Num[np.ndarray, " modes"]:
        """The nearest numbers of reach 1, or those towards 0 where the nearest would leave the unit circle."""
        near, step = self._nearest(numbers, 1.0), 2.0 ** (1 - self.bits)
        inward = np.trunc(np.real(numbers) / step) * step + 1j * np.trunc(np.imag(numbers) / step) * step
        return np.where(np.abs(near) < 1, near, inward)


def least_reach(*arrays: np.ndarray) -> float:
    """The least power of two above every real and imaginary part.

    >>> least_reach(np.array([3.0, -1.0])), least_reach(np.array([0.3j]))
    (4.0, 0.5)
    """
    top = max(float(max(np.abs(np.real(a)).max(initial=0), np.abs(np.imag(a)).max(initial=0))) for a in arrays)
    return 2.0 ** (math.floor(math.log2(top)) + 1) if top > 0 else 1.0


def quantise(system: DiagonalSSM | DeepSSM, form: FixedPoint) -> DiagonalSSM | DeepSSM:
    """The system with its poles and its weights rounded to the format.

    A diagonal layer is stored as poles, b and c with b_i = c_i = sqrt(R_i), the balanced split that its norm speaks of.
    """
    if isinstance(system, DiagonalSSM):
        (root,) = form.weights(np.sqrt(system.residues))
        return DiagonalSSM(form.poles(system.poles), root**2)
    *weights, readout = form.weights(*(layer.weights for layer in system.layers), system.readout)
    layers = [Layer(form.poles(layer.poles), w) for layer, w in zip(system.layers, weights, strict=True)]
    return DeepSSM(layers, readout)


def quantise_sos(sos: Float[np.ndarray, "sections 6"], form: FixedPoint) -> Float[np.ndarray, "sections 6"]:
    """Second-order sections with all coefficients but a0 = 1 rounded to the format, the gain spread evenly first."""
    even = sos.copy()
    if sos[:, 0].all():  # each section starts with a b0 of the same size
        even[:, :3] *= np.prod(np.abs(sos[:, 0])) ** (1 / len(sos)) / np.abs(sos[:, :1])
    (rounded,) = form.weights(even)
    rounded[:, 3] = 1.0
    return rounded


def sos_impulse(sos: Float[np.ndarray, "sections 6"], count: int) -> Float[np.ndarray, " count"]:
    """The kernel of second-order sections; infinite where rounding has made a section unstable.

    A section is stable inside the triangle |a2| < 1, |a1| < 1 + a2.
    """
    a1, a2 = sos[:, 4], sos[:, 5]
    if (np.abs(a2) >= 1).any() or (np.abs(a1) >= 1 + a2).any():
        return np.full(count, np.inf)
    return np.asarray(scipy.signal.sosfilt(sos, np.eye(1, count)[0]))


def rms_gap(measured: Num[np.ndarray, " length"], wanted: Num[np.ndarray, " length"]) -> float:
    """The root mean square of the difference relative to that of the wanted response; infinite if unstable."""
    if not np.isfinite(measured).all():
        return math.inf
    size = float(np.linalg.norm(wanted))
    if not size:
        raise ValueError("the wanted response is zero, and no share of it can be lost")
    return float(np.linalg.norm(measured - wanted)) / size


def hardened(
    system: DiagonalSSM, form: FixedPoint, depths: Iterable[int] = (2, 3, 4, 6, 8), count: int = 1024
) -> DeepSSM:
    """The nested chains, over depths and both ways to deal the modes, whose response loses least to the format."""
    wanted = system.impulse(count)
    candidates = [system.deepen(depth, deal=deal) for depth in depths for deal in (by_modulus, by_angle)]
    return min(candidates, key=lambda deep: rms_gap(quantise(deep, form).impulse(count), wanted))


class BitsRow(TypedDict):
    """What the response of a form loses when its numbers have so many bits."""

    form: str
    bits: int
    gap: float


def bits_rows(
    system: DiagonalSSM,
    forms: Mapping[str, DiagonalSSM | DeepSSM],
    bits: Iterable[int],
    reach: float | None = None,
    count: int = 1024,
) -> list[BitsRow]:
    """A row for each form and number of bits: what the response loses.

    Second-order sections join a real kernel, unless its poles are so close that they miss it unrounded.

    >>> system = DiagonalSSM([0.9, 0.899], [900, -899.0])
    >>> rows = bits_rows(system, {"one": system, "two": system.deepen(2, deal=by_angle)}, bits=[10])
    >>> rows[0]["gap"] > 100 * rows[1]["gap"]
    True
    """
    wanted = system.impulse(count)
    stored: dict[str, Callable[[FixedPoint], np.ndarray]] = {
        name: (lambda form, s=s: quantise(s, form).impulse(count)) for name, s in forms.items()
    }
    sos = to_sos(system) if system.is_real and system.merged().modes > 1 else None
    if sos is not None and rms_gap(sos_impulse(sos, count), wanted) < 1e-6:
        stored[SECTIONS] = lambda form: sos_impulse(quantise_sos(sos, form), count)
    return [
        {"form": name, "bits": b, "gap": rms_gap(impulse(FixedPoint(b, reach)), wanted)}
        for name, impulse in stored.items()
        for b in bits
    ]


def rows_by_bits(rows: Iterable[BitsRow]) -> list[dict[str, float]]:
    """A row for each number of bits, a column for each form.

    >>> rows_by_bits([{"form": "one", "bits": 8, "gap": 0.5}, {"form": "two", "bits": 8, "gap": 0.25}])
    [{'bits': 8, 'one': 0.5, 'two': 0.25}]
    """
    by_bits = grouped((row["bits"], (row["form"], row["gap"])) for row in rows)
    return [{"bits": bits, **dict(cells)} for bits, cells in by_bits.items()]


def bits_sentence(rows: Sequence[BitsRow]) -> str:
    """Which form loses least with the fewest bits."""
    few = min(row["bits"] for row in rows)
    best = min((row for row in rows if row["bits"] == few), key=lambda row: row["gap"])
    loses = f"{best['form']} {'lose' if best['form'].endswith('s') else 'loses'} least"
    return f"with {few} bits {loses}, {best['gap']:.1%} of the response"
