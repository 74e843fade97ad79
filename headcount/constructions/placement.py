"""The lower bound's stage: favourites first, a token for every other retrieval, dummies, ordered free positions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from headcount.constructions.minima import Minima
from headcount.constructions.sight import Sight, sight_of

__all__ = ["Placement", "place"]

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
    """Follow the proof of Theorem 2(2) for this attention: Lemmas 5 to 7 for the segments, then the greedy placing.

    With fewer heads than retrievals some retrieval holds no head's favourite: its minimum is what two sequences
    will differ in. With enough heads none is left, and the last is taken all the same.
    """
    if minima.count < 2:
        raise ValueError("a collision needs at least 2 retrievals: with one there is no fewer heads than that")
    if free < 1 or levels < 2:
        raise ValueError(f"free must be at least 1 and levels at least 2, got {free} and {levels}")
    length = minima.length
    points = torch.stack([_segment(minima, i, torch.linspace(0, 1, ON_SEGMENT)) for i in range(minima.count)])
    lowest = torch.tensor(minima.lowest, dtype=torch.float64)
    known = torch.cat([lowest[:, None], points], dim=1)  # K_i: the minimiser and its segment
    sight = sight_of(net, known.flatten(0, 1), length)
    chosen = _favourites(sight, minima)
    held = {token // known.shape[1] for token, _ in chosen}
    open_ = [i for i in range(minima.count) if i not in held] or [minima.count - 1]
    mine = open_[0]
    other = next(i for i in reversed(range(minima.count)) if i != mine)
    fixed = lowest[other].expand(length, -1).clone()
    taken = {t for _, t in chosen}
    for token, t in chosen:
        if token // known.shape[1] != mine:  # with enough heads it may be: there it would decide the minimum
            fixed[t] = known.flatten(0, 1)[token]
    for i in range(minima.count):
        if i != mine:
            t = next((t for t in minima.windows[i] if t not in taken), None)
            if t is None:
                raise ValueError(f"no position of window {i} is left for its own minimiser; use a longer sequence")
            taken.add(t)
            fixed[t] = lowest[i]
    places = [t for t in minima.windows[mine] if t not in taken]
    if len(places) < free:
        raise ValueError(
            f"only {len(places)} positions of window {mine} are free at length {length}, not {free}; "
            f"use a longer sequence or fewer free positions"
        )
    u = (torch.arange(free)[:, None] + (torch.arange(levels) + 0.5) / levels) / free
    tokens = _segment(minima, mine, u.flatten()).reshape(free, levels, -1)
    return Placement(mine, fixed, tuple(places[:free]), tokens, lowest[other], tuple(t for _, t in chosen))


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


def _segment(minima: Minima, i: int, u: Tensor) -> Tensor:
    """G_i: from a quarter to a half of the radius r away from the minimiser, u in [0,1] along it; f_i rises with u.

    r is half the distance to the nearest other minimiser (Lemma 7), less where another minimiser would be lower.
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
