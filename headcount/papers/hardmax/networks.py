"""Exact interpolation: a narrow network that takes every given sequence to its given output, or set of outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount.certificates.attempts import Random
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.domains import Drawn
from headcount.papers.hardmax.hat_layers import Draft, move
from headcount.papers.hardmax.leaders import Collapse, collapse_on_leaders, mean_error
from headcount.papers.hardmax.narrow import TOLERANCE, NarrowNet, NarrowShape
from headcount.papers.hardmax.separation import separate
from headcount.papers.hardmax.sequence_pairs import EverySequence, SequencePairs, as_pairs
from headcount.papers.hardmax.token_measures import TokenData, token_data
from headcount.sources import Checked, Source, implements

SOURCE = Source("alcalde2025exact", "exact interpolation")
TRIES = 8


@dataclass(frozen=True)
class Interpolation(Built):
    """A network that interpolates, with its sizes: layers, the smallest gap of its keys, the margin of its ties."""

    smallest_gap: float = 0.0
    tie_margin: float | None = None
    separating_layers: int = 0

    @property
    def narrow(self) -> NarrowNet:
        """The network, as what it is."""
        assert isinstance(self.net, NarrowNet)
        return self.net

    @property
    def shape(self) -> NarrowShape:
        return self.narrow.shape

    @property
    def layers(self) -> int:
        return self.shape.layers

    @property
    def blocks(self) -> int:
        return self.shape.blocks

    @property
    def parameters(self) -> int:
        """All numbers of dense layers, zeros included."""
        return self.shape.parameters


@implements(
    SOURCE,
    test="tests/test_hardmax_networks.py::test_random_data_sets_with_overlaps_and_adversarial_pairs_are_exact",
    status="proved here",
    hypotheses=(
        Checked("token_dim at least 2"),
        Checked("sequences with other targets have other normalised multisets of tokens"),
        Checked("every sequence has at least as many distinct tokens as outputs"),
        Checked("keys and ties clear of float64 rounding"),
    ),
)
def interpolate(sequences: Any, outputs: Any, seed: int = 0) -> Interpolation:
    """A narrow network of hardmax attention that takes each sequence to its set of outputs, exactly.

    One output each: split equal means, average, move the means to the outputs; at most 3N + 1 layers, and the same
    weights do it under softmax. Sets: leaders among the tokens, all others collapsed onto them; at most
    N + 3 sum m + 3 layers.
    Source: Alcalde et al. 2025 (hardmax), for O(sum m) blocks and O(d sum m) parameters.
    Departs: the stages are ours; hats have four neurons and a flat top, so that no rounding is multiplied.

    >>> built = interpolate([[[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0]]], [[1.0, 1.0], [-1.0, 0.0]])
    >>> built.layers, built.check().gap < 1e-12
    (6, True)
    """
    pairs = as_pairs(sequences, outputs)
    data = token_data([np.array(s) for s in pairs.sequences], [np.array(y) for y in pairs.outputs])
    several = len(data.outputs) > data.count
    problem: ValueError | None = None
    for attempt in range(TRIES if several else 2):
        try:
            return _drafted(pairs, data, np.random.default_rng((seed, attempt)), several)
        except _Unlucky as again:
            problem = again
    assert problem is not None
    raise ValueError(str(problem))


class _Unlucky(ValueError):
    """A draw that another one may mend."""


def _drafted(pairs: SequencePairs, data: TokenData, rng: np.random.Generator, several: bool) -> Interpolation:
    draft = Draft(data.tokens, data.blur.copy())
    try:
        separating = separate(draft, data, rng)
        if several:
            collapse = collapse_on_leaders(draft, data, rng)
            draft.points, draft.error = draft.points[list(collapse.leaders)], draft.error[list(collapse.leaders)]
        else:
            collapse = None
            # Attention with B = 0, V = I and no skip: every token becomes its sequence's mean, however it is summed.
            draft.attend(data.means(draft.points), mean_error(draft, data), 0.0, 1.0, 0.0)
        move(draft, data.outputs, rng)
    except ValueError as problem:
        raise _Unlucky(str(problem)) from None
    net = NarrowNet(NarrowShape(pairs.token_dim, tuple(s for s, _ in draft.stages)), [m for _, m in draft.stages])
    margin = None if collapse is None else collapse.margin
    certificate = _certificate(draft, data, collapse)
    attempts = (EverySequence(), Random(64))
    return Interpolation(net, pairs, certificate, Drawn(pairs), attempts, draft.gap, margin, separating)


def _certificate(draft: Draft, data: TokenData, collapse: Collapse | None) -> Certificate:
    left = np.linalg.norm(draft.points - data.outputs, axis=1)
    terms = [
        Term("values", float((left + draft.error).max()) * (1 + 1e-6), "rounding of every sum, layer by layer"),
        Term(
            "keys",
            0.0,
            f"rounding of keys is {draft.key_room:.1e} of the flat top, a quarter of the gap {draft.gap:.2g}",
        ),
    ]
    if collapse is not None:
        terms.append(Term("ties", 0.0, f"smallest margin {collapse.margin:.1e}, tolerance {TOLERANCE:.0e}"))
    if data.merged:
        terms.append(Term("targets", data.merged, "targets closer than 1e-9 of the largest are one"))
    hypotheses = (
        "the given sequences, tokens in any order",
        "distinct measures",
        "token_dim >= 2",
        "float64 arithmetic",
    )
    return Certificate(tuple(terms), SOURCE, hypotheses)
