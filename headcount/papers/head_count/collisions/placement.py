"""The lower bound's stage: favourites first, a token for every other retrieval, dummies, ordered free positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from headcount.numerals import counted
from headcount.papers.head_count.collisions.sight import Sight, sight_of
from headcount.papers.head_count.networks.minima import Minima
from headcount.sources import Checked, Source, implements

SEGMENTS = Source("yu2025heads", "Lemmas 5 and 7")
ON_SEGMENT = 9  # points of a segment among which a head's favourite is sought


@dataclass(frozen=True)
class Placement:
    """A sequence with free positions: position free[p] may hold any of tokens[p, level], the rest is fixed.

    Levels rise with p: any token of an earlier free position has a lower feature than any of a later one, so the
    first position where two fillings differ decides the minimum.
    """

    retrieval: int
    fixed: Tensor  # length token_dim
    free: tuple[int, ...]
    tokens: Tensor  # free levels token_dim
    dummy: Tensor  # token_dim
    favourites: tuple[int, ...]  # positions

    @property
    def levels(self) -> int:
        return self.tokens.shape[1]

    def filled(self, choice: np.ndarray | list[int]) -> Tensor:
        """The whole sequence with level choice[p] at free position p; -1 leaves the dummy there."""
        x = self.fixed.clone()
        for p, level in enumerate(choice):
            x[self.free[p]] = self.dummy if level < 0 else self.tokens[p, level]
        return x


def place(minima: Minima, net: nn.Module, *, free: int, levels: int) -> Placement:
    """Follow the proof of Theorem 2(2) for this attention: segments, favourites, reserved tokens, ordered grids.

    With fewer heads than retrievals some retrieval holds no head's favourite: its minimum is what two sequences
    will differ in. With enough heads none is left, and the last is taken all the same.
    """
    if minima.count < 2:
        raise ValueError("a collision needs at least 2 retrievals: with one there is no fewer heads than that")
    if free < 1 or levels < 2:
        raise ValueError(f"free must be at least 1 and levels at least 2, got {free} and {levels}")
    known = _known(minima)
    chosen = _favourites(sight_of(net, known.flatten(0, 1), minima.length), minima)
    covered = {token // known.shape[1] for token, _ in chosen}
    uncovered = next((i for i in range(minima.count) if i not in covered), minima.count - 1)
    dummy = known[next(i for i in reversed(range(minima.count)) if i != uncovered), 0]
    fixed = dummy.expand(minima.length, -1).clone()
    for token, t in chosen:
        if token // known.shape[1] != uncovered:  # with enough heads it may be: there it would decide the minimum
            fixed[t] = known.flatten(0, 1)[token]
    reserved = _reserved(minima, uncovered, {t for _, t in chosen})
    for i, t in reserved.items():
        fixed[t] = known[i, 0]
    places = _free_places(minima, uncovered, {t for _, t in chosen} | set(reserved.values()), free)
    u = (torch.arange(free)[:, None] + (torch.arange(levels) + 0.5) / levels) / free
    tokens = segment(minima, uncovered, u.flatten()).reshape(free, levels, -1)
    return Placement(uncovered, fixed, places, tokens, dummy, tuple(t for _, t in chosen))


def _known(minima: Minima) -> Tensor:
    """K_i for every retrieval: its minimiser, then points of its segment."""
    lowest = torch.tensor(minima.lowest, dtype=torch.float64)
    points = [segment(minima, i, torch.linspace(0, 1, ON_SEGMENT)) for i in range(minima.count)]
    return torch.cat([lowest[:, None], torch.stack(points)], dim=1)


def _reserved(minima: Minima, uncovered: int, taken: set[int]) -> dict[int, int]:
    """A position of its own window for the minimiser of every other retrieval."""
    places: dict[int, int] = {}
    for i in range(minima.count):
        if i != uncovered:
            t = next((t for t in minima.windows[i] if t not in taken and t not in places.values()), None)
            if t is None:
                raise ValueError(f"no position of window {i} is left for its own minimiser; use a longer sequence")
            places[i] = t
    return places


def _free_places(minima: Minima, uncovered: int, taken: set[int], free: int) -> tuple[int, ...]:
    places = [t for t in minima.windows[uncovered] if t not in taken]
    if len(places) < free:
        raise ValueError(
            f"window {uncovered} has {counted(len(places), 'position')} free at length {minima.length:,}, not {free}; "
            f"use a longer sequence or fewer free positions"
        )
    return tuple(places[:free])


def _favourites(sight: Sight, minima: Minima) -> list[tuple[int, int]]:
    """(token, position) of largest weight for each head in turn, each at a position of its own."""
    chosen: list[tuple[int, int]] = []
    for head in range(sight.heads):
        window = [t for t in minima.windows[head % minima.count] if t not in {p for _, p in chosen}]
        if not window:
            raise ValueError(f"no position is left for the favourite of head {head}; use a longer sequence")
        weights = sight.log_weights[:, window, head]
        token, at = np.unravel_index(int(weights.argmax()), weights.shape)
        chosen.append((int(token), window[int(at)]))
    return chosen


@implements(
    SEGMENTS,
    test="tests/test_head_count_collide.py::test_every_free_token_is_ordered_below_all_fixed_ones",
    status="proved in the paper",
    hypotheses=(Checked("distinct minimisers on the box"),),
)
def segment(minima: Minima, i: int, u: Tensor) -> Tensor:
    """Near each minimiser lies a segment on which its own feature rises and stays below that at all other minimisers.

    G_i: from a quarter to a half of the radius r away from the minimiser, u in [0,1] along it; f_i rises with u.

    r is half the distance to the nearest other minimiser (Lemma 7), less where another minimiser would be lower.
    Source: Yu et al. 2025 (heads), Lemmas 5 and 7.
    """
    low, high = (torch.tensor(p[i], dtype=torch.float64) for p in (minima.lowest, minima.highest))
    away = high - low
    others = [torch.tensor(p, dtype=torch.float64) for j, p in enumerate(minima.lowest) if j != i]
    nearest = min(float((low - p).norm()) for p in others)
    if nearest == 0:
        raise ValueError(f"retrieval {i} shares its minimiser with another on this box; the proof needs them distinct")
    r = min(nearest / 2, float(away.norm()))
    ceiling = min(float(minima.features(p)[i]) for p in others)
    while float(minima.features(low + r / 2 * away / away.norm())[i]) >= 0.9 * ceiling:
        r /= 2
    return low + (r / 4) * (1 + u.double())[:, None] * away / away.norm()
