"""The Newton coefficients that nest a sum of modes into a chain."""

from __future__ import annotations

import numpy as np
from jaxtyping import Complex

from headcount.sources import Source, implements


@implements(
    Source("headcount", "Newton form of a sum of modes"),
    test="tests/test_ssm_deepen.py::test_coefficient_bound_is_attained_by_a_family",
    status="proved here",
    hypotheses=("poles in falling modulus",),
)
def coefficients(
    poles: Complex[np.ndarray, "layers chains"], residues: Complex[np.ndarray, "layers chains"]
) -> Complex[np.ndarray, "layers chains"]:
    """The a_k with sum_k R_k F_k = sum_k a_k prod_{k' >= k} F_k', where F_a(w) = 1/(1 - a w).

    One identity, F_a = (1 - b/a) F_a F_b + (b/a) F_b, folds the last mode into those before it, again and again.
    It never divides by the gap of two poles, so poles may be as close as they like.
    With falling modulus |b/a| <= 1, |1 - b/a| <= 2, and so |a_{l-p}| <= (l-p) 2^p max|R| <= 2^(l-1) max|R|;
    with poles on one ray 0 <= 1 - b/a <= 1, and so |a_k| <= l max|R|.

    >>> close = np.array([[0.9], [0.9 - 1e-6]], dtype=complex)     # 1/((1 - .9w)(1 - (.9 - 1e-6)w)) has residues ~ 1e6
    >>> a = coefficients(close, np.array([[0.9e6], [1 - 0.9e6]], dtype=complex))
    >>> bool(np.abs(a - [[1.0], [0.0]]).max() < 1e-9)
    True
    """
    r = residues.copy()
    a = np.empty_like(r)
    for q in reversed(range(len(poles))):
        before = poles[:q]
        # F_0 = 1 makes the identity true for any ratio where only zero poles follow a zero one: take 0.
        ratio = np.divide(poles[q], before, out=np.zeros_like(before), where=before != 0)
        # a - b is exact for close poles, so (a - b)/a keeps all its digits where 1 - b/a would lose them.
        rest = np.divide(before - poles[q], before, out=np.ones_like(before), where=before != 0)
        a[q] = r[q] + (r[:q] * ratio).sum(axis=0)
        r[:q] *= rest
    return a
