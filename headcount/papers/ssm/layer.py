"""One layer of a linear state-space model: diagonal poles and the weights that feed them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Complex

Numbers = Any  # what a field takes: lists or an array, real or complex; it is kept as a read-only complex array


@dataclass(frozen=True, eq=False)
class Layer:
    """State h(t+1) = diag(poles) h(t) + weights v(t+1), for an input v of the width of the layer below.

    >>> Layer(poles=[0.5, 0.0], weights=[[1.0], [2.0]]).width
    2
    """

    poles: Numbers
    weights: Numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "poles", complex_array(self.poles, "poles", axes=1))
        object.__setattr__(self, "weights", complex_array(self.weights, "weights", axes=2))
        if self.weights.shape[0] != self.width:
            raise ValueError(f"{self.width} poles but weights of shape {self.weights.shape}; rows must match the poles")
        refuse_unstable(self.poles)

    @property
    def width(self) -> int:
        """The number of states."""
        return len(self.poles)

    @property
    def inputs(self) -> int:
        """The width of the layer below: 1 for the first."""
        return self.weights.shape[1]


def complex_array(numbers: object, name: str, *, axes: int) -> Complex[np.ndarray, "*shape"]:
    """A read-only complex array of the given number of axes; what is empty, ragged or not finite is refused.

    >>> complex_array([1, 2j], "poles", axes=1)
    array([1.+0.j, 0.+2.j])
    """
    try:
        array = np.array(numbers, dtype=np.complex128)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers, all rows of one length") from None
    if array.ndim != axes:
        raise ValueError(f"{name} must have {axes} {'axis' if axes == 1 else 'axes'}, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty; a system needs at least one mode")
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        raise ValueError(f"{name} holds a number that is not finite (number {wrong[0] + 1}: {array.flat[wrong[0]]})")
    array.flags.writeable = False
    return array


def refuse_unstable(poles: Complex[np.ndarray, " modes"]) -> None:
    """Refuse poles on or outside the unit circle: the response would not decay."""
    radius = np.abs(poles)
    worst = int(radius.argmax())
    if radius[worst] >= 1:
        raise ValueError(
            f"unstable: pole {worst + 1} is {poles[worst]:.6g} with modulus {radius[worst]:.6g}; "
            "every pole must lie inside the unit circle"
        )
