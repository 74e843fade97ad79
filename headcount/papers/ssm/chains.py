"""Chains of modes: who stands with whom, and the Newton coefficients that nest a sum of modes into a chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex

from headcount.sources import Source, implements

__all__ = ["Chains", "Deal", "arrange", "by_angle", "by_modulus", "coefficients", "conjugates", "least_chains", "merge"]


@dataclass(frozen=True)
class Deal:
    """A way to divide modes over chains of near equal length: `split` gives an index array each.

    Modes come by falling modulus. The place at the end of the last layer takes the smallest mode always, or, with
    `end_last`, only when the chains are full.
    """

    name: str
    split: Callable[[Complex[np.ndarray, " modes"], int], list[np.ndarray]]
    end_last: bool = False

    def __call__(self, poles: Complex[np.ndarray, " modes"], chains: int) -> list[np.ndarray]:
        return self.split(poles, chains)

    def uses_end(self, modes: int, places: int) -> bool:
        """Whether the place at the end takes one of so many modes, when the chains have so many places."""
        return modes > places if self.end_last else modes > 0


@dataclass(frozen=True, eq=False)
class Chains:
    """Modes laid out for a deep system: chain j holds the mode (k, j) in layer k; one more mode ends the last layer.

    Down every chain the modulus falls. Places without a mode hold pole 0 and residue 0.
    """

    poles: Complex[np.ndarray, "layers chains"]
    residues: Complex[np.ndarray, "layers chains"]
    last_pole: complex
    last_residue: complex


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
        # A zero pole has only zero poles after it, and F_0 = 1 makes the identity true for any ratio: take 0.
        ratio = np.divide(poles[q], before, out=np.zeros_like(before), where=before != 0)
        # a - b is exact for close poles, so (a - b)/a keeps all its digits where 1 - b/a would lose them.
        rest = np.divide(before - poles[q], before, out=np.ones_like(before), where=before != 0)
        a[q] = r[q] + (r[:q] * ratio).sum(axis=0)
        r[:q] *= rest
    return a


def merge(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"]
) -> tuple[Complex[np.ndarray, " distinct"], Complex[np.ndarray, " distinct"]]:
    """Distinct poles by falling modulus, residues of equal poles added, and modes without a residue left out.

    >>> merge(np.array([0.1, 0.5, 0.1]) + 0j, np.array([1, 2, 3]) + 0j)
    (array([0.5+0.j, 0.1+0.j]), array([2.+0.j, 4.+0.j]))
    """
    distinct, place = np.unique(poles, return_inverse=True)
    total = np.zeros(len(distinct), dtype=np.complex128)
    np.add.at(total, place, residues)
    kept = total != 0
    distinct, total = distinct[kept], total[kept]
    # Conjugates share their modulus to the last bit, and stay neighbours.
    order = np.lexsort((np.imag(distinct), np.real(distinct), -np.abs(distinct)))
    return distinct[order], total[order]


def deal_by_modulus(poles: Complex[np.ndarray, " modes"], chains: int) -> list[np.ndarray]:
    """Deal like cards: the largest moduli head the chains, the next follow, so a layer holds one band of moduli.

    >>> [c.tolist() for c in deal_by_modulus(np.array([0.9, 0.8, 0.7, 0.6, 0.5]) + 0j, 2)]
    [[0, 2, 4], [1, 3]]
    """
    return [np.arange(len(poles))[j::chains] for j in range(chains)]


def deal_by_angle(poles: Complex[np.ndarray, " modes"], chains: int) -> list[np.ndarray]:
    """Put neighbours in angle into one chain: there the coefficients of close poles cancel, and stay small.

    >>> [c.tolist() for c in deal_by_angle(np.array([0.9, -0.8, 0.7, -0.6]) + 0j, 2)]
    [[0, 2], [1, 3]]
    """
    turn = np.argsort(np.angle(poles) % (2 * np.pi), kind="stable")
    return [np.sort(part) for part in np.array_split(turn, chains)]


by_modulus = Deal("by_modulus", deal_by_modulus)
by_angle = Deal("by_angle", deal_by_angle, end_last=True)


def arrange(
    poles: Complex[np.ndarray, " modes"],
    residues: Complex[np.ndarray, " modes"],
    depth: int,
    chains: int,
    deal: Deal = by_modulus,
) -> Chains:
    """Lay merged modes out in `chains` chains of `depth` places and the one place at the end of the last layer.

    A real kernel keeps conjugate modes in conjugate chains when the width allows it, so that it stays real
    whatever rounding its weights suffer; the place at the end then goes to a real mode.
    """
    parts = _conjugate_parts(poles, residues, depth, chains, deal)
    if parts is None:
        last = len(poles) - 1 if deal.uses_end(len(poles), depth * chains) else None
        parts = last, deal(poles[:last], chains) if chains else []
    last, dealt = parts
    laid = np.zeros((2, depth, chains), dtype=np.complex128)
    for j, chain in enumerate(_settle(poles, residues, chain) for chain in dealt):
        laid[0, : len(chain), j], laid[1, : len(chain), j] = poles[chain], residues[chain]
    if last is None:
        return Chains(laid[0], laid[1], 0j, 0j)
    return Chains(laid[0], laid[1], complex(poles[last]), complex(residues[last]))


def _settle(
    poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], chain: np.ndarray
) -> np.ndarray:
    """The order of a chain: falling modulus, or crowds of close poles first where that keeps the coefficients small.

    Every order is exact. A pole before a crowd of r others of nearly its modulus is written with r-fold products
    that cancel: poles (.9, -.9, ..., -.9) in this order cost six digits at depth 8; behind the crowd it costs none.
    The bound is proved for falling modulus, so the other order must keep it, and stay within twice the coefficient.
    """
    p = poles[chain]
    crowd = (np.abs(p[:, None] - p) < 1e-2 * np.abs(p)).sum(axis=0)
    if len(chain) < 3 or crowd.max() == 1:
        return chain
    other = chain[np.lexsort((-np.abs(p), -crowd))]
    peak, new_peak = (np.abs(coefficients(poles[c, None], residues[c, None])).max() for c in (chain, other))
    promise = 2.0 ** (len(chain) - 1) * np.abs(residues[chain]).max()
    return other if new_peak <= min(promise, 2 * peak) else chain


def least_chains(poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"], depth: int) -> int:
    """The fewest chains that hold merged modes beside the place at the end; conjugates apart when the kernel is real.

    >>> least_chains(np.array([0.5j, -0.5j, 0.3j, -0.3j]), np.ones(4) + 0j, depth=3)
    2
    """
    pairs, real = int((np.imag(poles) > 0).sum()), int((np.imag(poles) == 0).sum())
    if pairs and conjugates(poles, residues) is not None:
        return 2 * -(-pairs // depth) + -(-max(real - 1, 0) // depth)
    return -(-max(len(poles) - 1, 0) // depth)


def _conjugate_parts(
    poles: Complex[np.ndarray, " modes"],
    residues: Complex[np.ndarray, " modes"],
    depth: int,
    chains: int,
    deal: Deal,
) -> tuple[int | None, list[np.ndarray]] | None:
    """The place at the end and the chains of a real kernel; None when it is not real or does not fit so."""
    partner = conjugates(poles, residues)
    upper, real = np.flatnonzero(np.imag(poles) > 0), np.flatnonzero(np.imag(poles) == 0)
    if partner is None or len(upper) == 0:
        return None
    spare = (chains - 2 * -(-len(upper) // depth)) * depth
    last = int(real[-1]) if len(real) and deal.uses_end(len(real), spare) else None
    real = real[:-1] if last is not None else real
    least = -(-len(real) // depth)
    pairs = min((chains - least) // 2, len(upper))
    if pairs < -(-len(upper) // depth):
        return None
    half = [upper[c] for c in deal(poles[upper], pairs)]
    rest = min(chains - 2 * pairs, len(real))
    alone = [real[c] for c in deal(poles[real], rest)] if rest else []
    return last, [c for chain in half for c in (chain, partner[chain])] + alone


def conjugates(poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"]) -> np.ndarray | None:
    """Where each distinct mode's conjugate stands, or None when some mode has none: then the kernel is not real."""
    where = {(p, r): i for i, (p, r) in enumerate(zip(poles.tolist(), residues.tolist(), strict=True))}
    found = [where.get((p.conjugate(), r.conjugate())) for p, r in where]
    return None if None in found else np.array(found)
