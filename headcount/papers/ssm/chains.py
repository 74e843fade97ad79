"""Chains of modes: who stands with whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Complex

from headcount.papers.ssm.orders import settled
from headcount.refusals import nearest


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

    Down every chain the modes stand as `orders.settled` says. Places without a mode hold pole 0 and residue 0.
    """

    poles: Complex[np.ndarray, "layers chains"]
    residues: Complex[np.ndarray, "layers chains"]
    last_pole: complex
    last_residue: complex


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
    there = total != 0
    distinct, total = distinct[there], total[there]
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


def deal_named(name: str) -> Deal:
    """The way to divide modes that has this short name.

    >>> deal_named("angle") is by_angle
    True
    """
    deals = {"modulus": by_modulus, "angle": by_angle}
    if name not in deals:
        raise ValueError(f"unknown deal {name!r}; {nearest(name, deals)}")
    return deals[name]


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
        dealt = deal(poles[:last], chains) if chains else []
        parts = last, [settled(poles, residues, chain) for chain in dealt]
    last, dealt = parts
    laid = np.zeros((2, depth, chains), dtype=np.complex128)
    for j, chain in enumerate(dealt):
        laid[0, : len(chain), j], laid[1, : len(chain), j] = poles[chain], residues[chain]
    if last is None:
        return Chains(laid[0], laid[1], 0j, 0j)
    return Chains(laid[0], laid[1], complex(poles[last]), complex(residues[last]))


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
    half = [settled(poles, residues, upper[c]) for c in deal(poles[upper], pairs)]
    rest = min(chains - 2 * pairs, len(real))
    alone = [settled(poles, residues, real[c]) for c in deal(poles[real], rest)] if rest else []
    return last, [c for chain in half for c in (chain, partner[chain])] + alone


def conjugates(poles: Complex[np.ndarray, " modes"], residues: Complex[np.ndarray, " modes"]) -> np.ndarray | None:
    """Where each distinct mode's conjugate stands, or None when some mode has none: then the kernel is not real."""
    where = {(p, r): i for i, (p, r) in enumerate(zip(poles.tolist(), residues.tolist(), strict=True))}
    partners = [where.get((p.conjugate(), r.conjugate())) for p, r in where]
    return None if None in partners else np.array(partners)
