"""The inputs that a gated softmax likes least: competitors at the worst distance, better tokens outside the window."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.attack import Trial
from headcount.certificates.domains import Box
from headcount.certificates.excess import worst_distance
from headcount.tasks.task import Matrix


@dataclass(frozen=True)
class WorstTies:
    """Competitors at the distance (1 + W(m/e))/beta where the Gibbs excess is attained.

    For all retrievals at once where a direction raises every feature alike (at most token_dim of them), and for
    each retrieval in its own share of the positions, near its own minimiser.
    """

    slopes: Matrix
    curve: float
    lowest: Matrix
    windows: tuple[tuple[int, ...], ...]
    beta: float
    count: int = 16
    name: str = "near-ties at the worst distance"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        box = trial.domain
        assert isinstance(box, Box)
        bases = box.sample(self.count, generator=generator)[:, 0]
        bases = box.low + (box.high - box.low) * (0.25 + 0.5 * (bases - box.low) / (box.high - box.low))
        together = [self._together(base, box) for base in bases]
        return torch.stack([*together, *(self._apart(box, s) for s in (0.5, 1.0, 2.0))])

    def _together(self, base: Tensor, box: Box) -> Tensor:
        """One base token in every window; all others move so that each feature rises by its worst distance."""
        gradients = 2 * self.curve * base + torch.tensor(self.slopes, dtype=base.dtype)
        rise = torch.tensor([worst_distance(len(w) - 1, self.beta) for w in self.windows], dtype=base.dtype)
        inverse = torch.linalg.pinv(gradients)
        move = inverse @ rise
        for _ in range(20):  # |move|^2 is the only curved part of the rise; a move across the box is of no use
            move = (inverse @ (rise - self.curve * move.square().sum())).clamp(box.low - box.high, box.high - box.low)
        x = (base + move).expand(box.length, -1).clone()
        x[sorted(_hitting(self.windows))] = base
        return x.clamp(box.low, box.high)

    def _apart(self, box: Box, scale: float) -> Tensor:
        """A share of the positions for each retrieval: its minimiser once, the rest the worst distance above it."""
        middle = (box.low + box.high) / 2
        x = torch.full((box.length, box.token_dim), middle, dtype=torch.float64)
        for i, positions in enumerate(_assigned(self.windows)):
            if not positions:
                continue
            low = torch.tensor(self.lowest[i], dtype=torch.float64)
            inward = torch.sign(middle - low) + (low == middle)
            x[positions] = low + self._step(i, inward, scale * worst_distance(len(positions) - 1, self.beta)) * inward
            x[positions[0]] = low
        return x.clamp(box.low, box.high)

    def _step(self, i: int, inward: Tensor, rise: float) -> float:
        """How far from the minimiser the feature has risen so much: curve |v|^2 s^2 + <gradient, v> s = rise."""
        low = torch.tensor(self.lowest[i], dtype=torch.float64)
        slope = float((2 * self.curve * low + torch.tensor(self.slopes[i], dtype=torch.float64)) @ inward)
        square = self.curve * float(inward.square().sum())
        if square == 0:
            return rise / slope
        return (-slope + math.sqrt(slope * slope + 4 * square * rise)) / (2 * square)


@dataclass(frozen=True)
class BetterOutside:
    """The highest feature all over a window and the lowest outside it: what a gate that is too weak lets through."""

    lowest: Matrix
    highest: Matrix
    windows: tuple[tuple[int, ...], ...]
    name: str = "better tokens outside the window"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        length, inputs = trial.domain.length, []
        for low, high, window in zip(self.lowest, self.highest, self.windows, strict=True):
            x = torch.tensor(low, dtype=torch.float64).expand(length, -1).clone()
            x[list(window)] = torch.tensor(high, dtype=torch.float64)
            inputs.append(x)
        return torch.stack(inputs)


def _hitting(windows: tuple[tuple[int, ...], ...]) -> set[int]:
    """Few positions that meet every window: the one that meets most of those left, again and again."""
    left, chosen = [set(w) for w in windows], set()
    while left:
        best = max(set().union(*left), key=lambda t: (sum(t in w for w in left), -t))
        chosen.add(best)
        left = [w for w in left if best not in w]
    return chosen


def _assigned(windows: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    """Each position to the retrieval with the smallest share so far whose window holds it."""
    assigned: list[list[int]] = [[] for _ in windows]
    inside = [set(w) for w in windows]
    for t in range(max(max(w) for w in windows) + 1):
        able = [i for i, w in enumerate(inside) if t in w]
        if able:
            min((assigned[i] for i in able), key=len).append(t)
    return assigned
