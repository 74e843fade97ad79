"""Linear state-space systems as values: one diagonal layer, or many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float, Num

from headcount.papers.ssm import deepen, flatten, responses
from headcount.papers.ssm.chains import Deal, by_angle, by_modulus, conjugates, least_chains, merge
from headcount.papers.ssm.layer import Layer, Numbers, complex_array, refuse_unstable
from headcount.refusals import at_least_one

REAL = 1e-9  # of a response: an imaginary part below this is rounding
TOLERANCE = 1e-6  # of the response: a deep system further off than this is refused


@dataclass(frozen=True, eq=False)
class DiagonalSSM:
    """One diagonal layer: the kernel rho(t) = sum_i R_i lambda_i^t, discrete time, |lambda_i| < 1.

    As a layer h(t+1) = diag(lambda) h(t) + b x(t+1), y = c^T h it has the residues R_i = b_i c_i; a pole 0 passes its
    input at once, so it is the direct term of a filter.
    Source: the depth paper on linear SSMs, Section 2, with l = 1.

    >>> system = DiagonalSSM(poles=[0.5, -0.5], residues=[3, 1])
    >>> system.impulse(3).real
    array([4., 1., 1.])
    >>> system.deepen(depth=2, width=2).impulse(3).real.round(12)
    array([4., 1., 1.])
    """

    poles: Numbers
    residues: Numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "poles", complex_array(self.poles, "poles", axes=1))
        object.__setattr__(self, "residues", complex_array(self.residues, "residues", axes=1))
        if len(self.poles) != len(self.residues):
            raise ValueError(f"{len(self.poles)} poles but {len(self.residues)} residues; each pole needs one")
        refuse_unstable(self.poles)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DiagonalSSM) and _equal((self.poles, self.residues), (other.poles, other.residues))

    def __hash__(self) -> int:
        return hash((self.poles.tobytes(), self.residues.tobytes()))

    @property
    def modes(self) -> int:
        """The number n of modes."""
        return len(self.poles)

    @property
    def largest_entry(self) -> float:
        """The norm c_1: the least c with |b_i|, |c_i| <= c, which is sqrt(max|R|) at b_i = c_i.

        >>> DiagonalSSM([0.5, 0.1], [100, 1]).largest_entry
        10.0
        """
        return math.sqrt(np.abs(self.residues).max())

    @property
    def parameters(self) -> int:
        """The numbers of a layer of this width: poles, b and c."""
        return 3 * self.modes

    @cached_property
    def is_real(self) -> bool:
        """Whether every mode's conjugate is a mode too, so that the kernel is real, and what it gives real inputs."""
        return conjugates(*merge(self.poles, self.residues)) is not None

    def merged(self) -> DiagonalSSM:
        """The same kernel with distinct poles, by falling modulus; a kernel of nothing keeps one empty mode."""
        poles, residues = merge(self.poles, self.residues)
        return DiagonalSSM(poles, residues) if len(poles) else DiagonalSSM([0], [0])

    def impulse(self, count: int) -> Num[np.ndarray, " count"]:
        """The kernel at t = 0 .. count-1, in closed form; real numbers where the system is real."""
        return _real_if(self.is_real, responses.closed_form(self.poles, self.residues, count))

    def impulse_by_recurrence(self, count: int) -> Num[np.ndarray, " count"]:
        """The same, one step at a time."""
        return _real_if(self.is_real, responses.recurrence(self.poles, self.residues, count))

    def frequency(self, omega: Float[np.ndarray, " points"]) -> Complex[np.ndarray, " points"]:
        """The transfer function on the unit circle, at angles omega (pi is half the sample rate)."""
        return responses.frequency(self.poles, self.residues, omega)

    def convolve(self, x: Num[np.ndarray, " length"]) -> Num[np.ndarray, " length"]:
        """The output for an input, by FFT; real for a real input of a real system."""
        y = responses.convolve(self.impulse(len(x)), x)
        return _real_if(self.is_real and not np.iscomplexobj(x), y)

    def scan(self, x: Num[np.ndarray, " length"]) -> Num[np.ndarray, " length"]:
        """The same by recurrence, from a zero state."""
        y = responses.scan([Layer(self.poles, np.ones((self.modes, 1)))], self.residues, x)
        return _real_if(self.is_real and not np.iscomplexobj(x), y)

    def deepen(
        self, depth: int, width: int | None = None, *, deal: Deal = by_modulus, tolerance: float = TOLERANCE
    ) -> DeepSSM:
        """The deep system with the same response and entries at most 2^((l-1)/(l+1)) c_1^(2/(l+1)).

        c_1 is the norm of the merged system, in which equal poles have added their residues; the number stands on the
        result as `entry_bound`, and beside it `gap`, how far the response is from this one, and `condition`.
        Without a width, the least that holds the modes (conjugates in conjugate chains where the kernel is real).
        Refuses more than l(m-1)+1 distinct modes, which no such network can all represent (Theorem 4.1), and a gap
        above `tolerance`.
        `deal` says which modes share a chain: `by_modulus` as in the proof, `by_angle` for close poles.

        >>> deep = DiagonalSSM([0.9, 0.8, 0.7], [100, -100, 50]).deepen(depth=2)
        >>> deep.gap < 1e-15, round(deep.largest_entry, 3), round(deep.entry_bound**3)
        (True, 3.684, 200)
        """
        at_least_one(depth=depth)
        m = width if width is not None else 1 + least_chains(*merge(self.poles, self.residues), depth)
        return self._deepened(deepen.nested_chains(self.poles, self.residues, depth, m, deal), tolerance)

    def deepen_to(
        self, max_entry: float, width: int | None = None, *, deal: Deal | None = None, tolerance: float = TOLERANCE
    ) -> DeepSSM:
        """The nested chains of least depth with entries at most `max_entry`, at the least width of each depth.

        Without a `deal` the best of all groupings: the least depth, then the fewest numbers. A larger width shortens
        the chains and may need less depth; `minimal_depth` says how much.

        >>> DiagonalSSM([0.9, 0.8, 0.7], [100, -100, 50]).deepen_to(2).depth
        5
        """
        deals = (by_modulus, by_angle) if deal is None else (deal,)
        candidates, problems = list[DeepSSM](), list[ValueError]()
        for one in deals:
            try:
                parts = deepen.shallowest_chains(self.poles, self.residues, max_entry, width, one)
                candidates.append(self._deepened(parts, tolerance))
            except ValueError as problem:
                problems.append(problem)
        if not candidates:
            raise problems[0]
        return min(candidates, key=lambda deep: (deep.depth, deep.used_parameters))

    def gain_stages(self, max_entry: float, width: int | None = None, *, tolerance: float = TOLERANCE) -> DeepSSM:
        """The other route: modes in layer 1, then layers that only amplify; width n, fewer layers, more weights.

        >>> DiagonalSSM([0.9, 0.8, 0.7], [100, -100, 50]).gain_stages(2).depth
        3
        """
        return self._deepened(deepen.gain_stages(self.poles, self.residues, max_entry, width), tolerance, max_entry)

    def _deepened(self, parts: deepen.Parts, tolerance: float, promise: float | None = None) -> DeepSSM:
        """The deep system with what is known about it; refused where its response is another one's."""
        layers, readout, cancels = parts
        count = 4 * self.modes + 256
        wanted = self.impulse(count)
        peak = float(np.abs(wanted).max()) or 1.0
        lost = responses.gap(DeepSSM(layers, readout).impulse(count), wanted)
        # The closed form adds up modes that may cancel; nothing is known better than its own rounding.
        known = float(np.abs(self.residues).sum()) / peak * 2**-50
        if not lost <= max(tolerance, known):
            raise ValueError(
                f"at depth {len(layers)} the response would be lost by {lost:.1g} of its size (tolerance "
                f"{tolerance:g}): parts {cancels / peak:.1g} times as large cancel; use less depth and more width"
            )
        depth, norm = len(layers), self.merged().largest_entry
        chains = 2 ** ((depth - 1) / (depth + 1)) * norm ** (2 / (depth + 1))
        return DeepSSM(layers, readout, Deepening(lost, cancels / peak, chains if promise is None else promise))


@dataclass(frozen=True)
class Deepening:
    """How a deep system stands to the shallow one it was made from.

    `gap` is the largest difference of the impulse responses, relative to the largest value of the shallow one's, over
    4 modes + 256 samples. `condition` is how many times as large as that value the parts are whose sum is the response:
    sum_k |a_k| max|T_k|, so that rounding costs about 2^-53 of it. `entry_bound` is what the largest entry may be.
    """

    gap: float
    condition: float
    entry_bound: float


@dataclass(frozen=True, eq=False)
class DeepSSM:
    """Layers of diagonal state spaces, the output of each the input of the next, and a read-out y = C^T h_l.

    H(w) = C^T (I - A_l w)^-1 B_l ... (I - A_1 w)^-1 B_1: no activation, no skip, no delay between layers.
    Source: the depth paper on linear SSMs, Section 2.

    >>> two = DeepSSM([Layer([0.5], [[1]]), Layer([0.25], [[1]])], readout=[1])
    >>> two.impulse(3).real
    array([1.    , 0.75  , 0.4375])
    >>> two.flatten().residues.real
    array([ 2., -1.])
    """

    layers: Numbers
    readout: Numbers
    deepening: Deepening | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "readout", complex_array(self.readout, "readout", axes=1))
        if not self.layers:
            raise ValueError("layers is empty; a deep system needs at least one layer")
        widths = [1, *(layer.width for layer in self.layers)]
        for number, (layer, below) in enumerate(zip(self.layers, widths, strict=False), start=1):
            if layer.inputs != below:
                raise ValueError(f"layer {number} takes {layer.inputs} inputs, but what is below has width {below}")
        if len(self.readout) != widths[-1]:
            raise ValueError(f"the readout has {len(self.readout)} numbers, but the last layer has width {widths[-1]}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeepSSM) and _equal(self.arrays, other.arrays)

    def __hash__(self) -> int:
        return hash(tuple(array.tobytes() for array in self.arrays))

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Poles and weights of every layer in turn, then the read-out."""
        return (*(array for layer in self.layers for array in (layer.poles, layer.weights)), self.readout)

    @property
    def depth(self) -> int:
        """The number l of layers."""
        return len(self.layers)

    @property
    def width(self) -> int:
        """The number m of states in the widest layer."""
        return max(layer.width for layer in self.layers)

    @property
    def largest_entry(self) -> float:
        """The norm c_2: the largest modulus in any B_k and in C. Poles do not count."""
        return float(max(np.abs(part).max() for part in (*(layer.weights for layer in self.layers), self.readout)))

    @property
    def gap(self) -> float | None:
        """How far the response is from that of the shallow system it was made from; None if it was not."""
        return self.deepening.gap if self.deepening else None

    @property
    def condition(self) -> float | None:
        """How many times as large as the response the parts are that it is the sum of; see `Deepening`."""
        return self.deepening.condition if self.deepening else None

    @property
    def entry_bound(self) -> float | None:
        """What the construction promises of the largest entry, for the merged system."""
        return self.deepening.entry_bound if self.deepening else None

    @property
    def parameters(self) -> int:
        """All numbers, zero or not: l m poles, m + (l-1) m^2 weights and m of the read-out at equal widths."""
        return sum(array.size for array in self.arrays)

    @property
    def used_parameters(self) -> int:
        """The numbers that are not zero: a chain uses few of its weights."""
        return sum(int(np.count_nonzero(array)) for array in self.arrays)

    @cached_property
    def is_real(self) -> bool:
        """Whether the response is real: all numbers are, or the imaginary parts cancel to rounding (1e-9 of it).

        A response with n states obeys a recurrence of n terms, its imaginary part one of 2n: so many samples decide.
        """
        if all((np.imag(array) == 0).all() for array in self.arrays):
            return True
        first = responses.scan(self.layers, self.readout, np.eye(1, 2 * sum(l.width for l in self.layers))[0])
        return bool(np.abs(np.imag(first)).max() <= REAL * np.abs(first).max())

    def impulse(self, count: int) -> Num[np.ndarray, " count"]:
        """The kernel at t = 0 .. count-1, by recurrence, which close poles do not disturb; real where it is."""
        return self.scan(np.eye(1, count)[0])

    def impulse_by_modes(self, count: int) -> Complex[np.ndarray, " count"]:
        """The same in closed form, repeated poles included; it divides by the gaps of poles."""
        return flatten.modes_impulse(self.modes(), count)

    def frequency(self, omega: Float[np.ndarray, " points"]) -> Complex[np.ndarray, " points"]:
        """The transfer function on the unit circle, at angles omega."""
        return responses.deep_frequency(self.layers, self.readout, omega)

    def convolve(self, x: Num[np.ndarray, " length"]) -> Num[np.ndarray, " length"]:
        """The output for an input, by FFT; real for a real input of a real system."""
        return _real_if(self.is_real and not np.iscomplexobj(x), responses.convolve(self.impulse(len(x)), x))

    def scan(self, x: Num[np.ndarray, " length"]) -> Num[np.ndarray, " length"]:
        """The same by recurrence, from zero states."""
        return _real_if(self.is_real and not np.iscomplexobj(x), responses.scan(self.layers, self.readout, x))

    def modes(self) -> tuple[flatten.Mode, ...]:
        """The partial fractions: every pole with its weights, t lambda^t and higher included."""
        return flatten.modes(self.layers, self.readout)

    def flatten(self, tolerance: float = 1e-6) -> DiagonalSSM:
        """The poles and residues of the same response; refused where one layer cannot have it.

        A pole that a path meets in two layers gives t lambda^t, which no diagonal layer has (`modes` keeps it).
        Poles of two layers that nearly meet give residues like 1/gap; when these cost more than `tolerance` of the
        response, the answer is refused as well. Source: Theorem 4.1, first inclusion.
        Departs: the inclusion is stated without the condition that poles differ across layers.
        """
        parts = self.modes()
        largest = max(float(np.abs(mode.weights).max()) for mode in parts)
        for mode in parts:
            if len(mode.weights) > 1 and np.abs(mode.weights[1:]).max() > 1e-9 * largest:
                raise ValueError(
                    f"pole {mode.pole:.6g} stands in {len(mode.weights)} layers of one path, so the response holds "
                    "t * pole^t, which no diagonal layer has; `modes()` keeps such terms"
                )
        flat = DiagonalSSM([mode.pole for mode in parts], [mode.weights[0] for mode in parts])
        count = 4 * sum(layer.width for layer in self.layers) + 16
        lost = responses.gap(flat.impulse(count), self.impulse(count))
        if lost > tolerance:
            raise ValueError(
                f"poles of different layers are so close that residues reach {largest:.3g} and the response would be "
                f"lost by {lost:.1g} of its size (tolerance {tolerance:g}); keep the deep form"
            )
        return flat


def _real_if(real: bool, response: Num[np.ndarray, " length"]) -> Num[np.ndarray, " length"]:
    return np.ascontiguousarray(np.real(response)) if real else response


def _equal(left: tuple[np.ndarray, ...], right: tuple[np.ndarray, ...]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
