"""The order of the poles in a chain: every order is exact, few keep their digits.

A chain sums a_k T_k, where the tail T_k is the product of the modes from layer k on. Where the tails are high on the
unit circle and their sum is not, digits cancel: `cancellation` says by how much. Falling modulus is the order of the
proof of the entry bound, and its tails grow exponentially with the depth; `by_low_tails` keeps them low.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Complex, Float, Int

from headcount.papers.ssm.coefficients import coefficients
from headcount.sources import Source, implements

POINTS = 512  # of the unit circle, where a tail's height is looked for
CALM = 1e3  # sizes that cancel up to here cost three digits of sixteen: the order of the proof is kept


def _heights(poles: Complex[np.ndarray, " modes"]) -> Float[np.ndarray, "modes points"]:
    """log |1/(1 - lambda w)| on the circle, for every mode."""
    return -np.log(np.abs(1 - np.multiply.outer(poles, _circle())))


@implements(
    Source("headcount", "Low tails"),
    test="tests/test_ssm_stability.py::test_256_modes_at_depth_128_keep_their_response",
    status="measured",
)
def by_low_tails(poles: Complex[np.ndarray, " modes"]) -> Int[np.ndarray, " modes"]:
    """The order that fills a chain from its last layer backwards, each time by the pole that keeps the tail lowest.

    The height of a tail is its largest modulus on |w| = 1.

    >>> by_low_tails(np.array([0.9, -0.9, 0.1]) + 0j).tolist()
    [0, 1, 2]
    """
    heights = _heights(poles)
    tail, free, taken = np.zeros(POINTS), list(range(len(poles))), []
    while free:
        best = int((tail + heights[free]).max(-1).argmin())
        tail = tail + heights[free[best]]
        taken.append(free.pop(best))
    return np.array(taken[::-1], dtype=int)


def cancellation(poles: Complex[np.ndarray, " modes"], a: Complex[np.ndarray, " modes"]) -> float:
    """The sum of what cancels in a chain: sum_k |a_k| max_w |T_k(w)|; infinity where that leaves float64.

    >>> cancellation(np.array([0.5 + 0j]), np.array([3.0 + 0j]))
    6.0
    """
    tails = np.cumsum(_heights(poles)[::-1], axis=0)[::-1].max(-1)
    with np.errstate(over="ignore", divide="ignore"):
        return float(np.exp(np.log(np.abs(a)) + tails).sum())


def settled(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], chain: Int[np.ndarray, " places"]
) -> Int[np.ndarray, " places"]:
    """The chain by falling modulus while that is calm, else with low tails where that keeps the bound on coefficients.

    The bound |a| <= 2^(l-1) max|R| is proved for falling modulus. In the other order it held for the worst residues of
    20,000 sets of poles, which is no proof: so it is looked at here, and asked for.
    """
    if len(chain) < 3:
        return chain
    falling, _ = _sizes(poles[chain], residues[chain])
    if falling <= CALM:
        return chain
    other = chain[by_low_tails(poles[chain])]
    low, peak = _sizes(poles[other], residues[other])
    promise = 2.0 ** (len(chain) - 1) * np.abs(residues[chain]).max()
    return other if low < falling and peak <= promise else chain


def _sizes(poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"]) -> tuple[float, float]:
    """What cancels against the chain's largest gain, and the largest coefficient."""
    a = coefficients(poles[:, None], residues[:, None])[:, 0]
    gain = np.abs(residues @ (1 / (1 - np.multiply.outer(poles, _circle())))).max()
    return cancellation(poles, a) / max(float(gain), 1e-300), float(np.abs(a).max())


def _circle() -> Complex[np.ndarray, " points"]:
    return np.exp(2j * np.pi * np.arange(POINTS) / POINTS)
