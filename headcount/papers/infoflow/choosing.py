"""Tokens that choose: one head before the last layer may serve several look-ups of pairs.

Every token's question is a function of the token. Where different look-ups are won by different tokens, a token may ask
for the one that it is likely to win, and leave the others to other tokens: then fewer heads than look-ups are enough.
Whether that is so depends on where the tokens lie; it is measured on the task's own samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from headcount.nets.architecture import Architecture
from headcount.tasks import PairMax

ENOUGH = 1e-2  # an NMSE below this counts as shared; the battery has another standard, five times its reference
MOST = 8  # look-ups; sharings of more are not tried, and the prediction says so
LONGEST = 4096  # tokens; a longer task is asked at this length, and the prediction says so
NUMBERS, SAMPLES = 1 << 22, 400  # of a matrix of scores over all samples, and sequences
FEWEST, WORK = 32, 1 << 25  # sequences at least, and scores at most where that leaves 8

Sides = tuple[Tensor, Tensor]  # of a token that is the left, and of one that is the right of a pair


@dataclass(frozen=True)
class Sharing:
    """So many heads shared by all look-ups, which of them each serves, and what is missed on the samples.

    `nmse` is the share of the variance, `worst` the most by which a sample falls short.
    """

    heads: int
    groups: tuple[tuple[int, ...], ...]
    nmse: float
    worst: float = 0.0

    def serves(self, eps: float | None = None) -> bool:
        """Whether it misses little: of the variance, and where an error is asked for, on every sample."""
        return self.nmse <= ENOUGH and (eps is None or self.worst <= eps)


@lru_cache(maxsize=64)
def shared_heads(task: PairMax, eps: float | None = None) -> int:
    """The fewest heads of the first layer by which tokens that choose find every pair of a `PairMax`.

    Up to 1e-2 of the variance; where an error `eps` is asked for, also up to eps on every sample.

    Source: derived here. Departs: Yu et al. 2026 (InfoFlow) count one head for each.

    >>> from headcount.tasks import PairMax, UnitSphere
    >>> shared_heads(PairMax.random(2, 4, length=64, tokens=UnitSphere()))
    1
    >>> shared_heads(PairMax.random(2, 4, length=64))  # N(0, I): large tokens win both
    2
    """
    return min((c.heads for c in sharings(task) if c.serves(eps)), default=len(task.intrinsic().matrices))


@lru_cache(maxsize=64)
def sharings(task: PairMax) -> tuple[Sharing, ...]:
    """The best sharing found for each number of heads, from one less than the look-ups down; the last misses too much.

    Two groups of look-ups are joined at a time, those that cost least; a token asks for the one of its group that it
    serves best, |A^T x| / |A| as the left of a pair or |A x| / |A| as the right, whichever side is better for all.
    """
    shared, task = [], task.intrinsic()
    if not 1 < len(task.matrices) <= MOST:
        return ()
    task = replace(task, length=min(task.length, LONGEST))
    scores = _Scores.of(task)
    groups: tuple[tuple[int, ...], ...] = tuple((k,) for k in range(len(task.matrices)))
    while len(groups) > 1 and (not shared or shared[-1].nmse <= ENOUGH):
        groups = min(_joined(groups), key=scores.missed)
        shared.append(Sharing(len(groups), groups, scores.missed(groups), scores.worst(groups)))
    return tuple(shared)


def _joined(groups: tuple[tuple[int, ...], ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    for a, b in itertools.combinations(groups, 2):
        yield (*(g for g in groups if g not in (a, b)), a + b)


class _Scores:
    """What each token of each sample would find: `best[k][side]` and `worth[k][side]`, (samples, length) each."""

    def __init__(self, best: list[Sides], worth: list[Sides]) -> None:
        self.best, self.worth = best, worth
        self.full = torch.stack([pair[0].amax(dim=1) for pair in best], dim=1)
        self.least, self.variance = self.full.amin(dim=0), self.full.sum(dim=1).var().item()
        self.known: dict[tuple[int, ...], tuple[float, Tensor]] = {}

    @classmethod
    def of(cls, task: PairMax) -> _Scores:
        at_once = max(1, NUMBERS // task.length**2)
        least = max(8, min(FEWEST, WORK // task.length**2))
        shape = max(least, min(SAMPLES, at_once)), task.length, task.token_dim
        x = task.tokens(shape, torch.Generator().manual_seed(0), torch.float64)
        best, worth = [], []
        for matrix in torch.tensor(task.matrices, dtype=torch.float64):
            best.append(_ends(x, matrix, at_once))
            size = torch.linalg.matrix_norm(matrix, 2)
            worth.append(((x @ matrix).norm(dim=-1) / size, (x @ matrix.mT).norm(dim=-1) / size))
        return cls(best, worth)

    def missed(self, groups: tuple[tuple[int, ...], ...]) -> float:
        """The share of the target's variance that is not found."""
        return sum(self._of_group(group)[0] for group in groups if len(group) > 1)

    def worst(self, groups: tuple[tuple[int, ...], ...]) -> float:
        """The most by which a sample falls short."""
        lost = [self._of_group(group)[1] for group in groups if len(group) > 1]
        return float(torch.stack(lost).sum(dim=0).max()) if lost else 0.0

    def _of_group(self, group: tuple[int, ...]) -> tuple[float, Tensor]:
        if group not in self.known:
            sides = itertools.product((0, 1), repeat=len(group))
            tried = (self._gap(tuple(zip(group, side, strict=True))) for side in sides)
            self.known[group] = min(tried, key=lambda gap: gap[0])
        return self.known[group]

    def _gap(self, assignment: tuple[tuple[int, int], ...]) -> tuple[float, Tensor]:
        """The share of the variance that one way of asking misses, and what it misses of every sample."""
        chosen = torch.stack([self.worth[k][side] for k, side in assignment], dim=-1).argmax(dim=-1)
        lost = torch.zeros(len(self.full), dtype=self.full.dtype)
        for number, (k, side) in enumerate(assignment):
            reached = self.best[k][side].masked_fill(chosen != number, -torch.inf).amax(dim=1)
            lost = lost + self.full[:, k] - reached.maximum(self.least[k])
        return (float(lost.var()) / self.variance if self.variance else 1.0), lost


def _ends(x: Tensor, matrix: Tensor, at_once: int) -> Sides:
    """The best that each token finds as the left of a pair, and as the right, some sequences at a time."""
    left, right = [], []
    for part in x.split(at_once):
        scores = part @ matrix @ part.mT
        left.append(scores.amax(dim=2))
        right.append(scores.amax(dim=1))
    return torch.cat(left), torch.cat(right)


def with_shared_heads(task: object, arch: Architecture, eps: float | None = None) -> Architecture:
    """The shape as the calculus may count it: a head of the first layer for each look-up that tokens share them for.

    The class token has nothing to collect there yet, so that what is added serves tokens alone. Only for targets that
    are sums of pairs. With `eps`, only where sharing misses no sample by more.
    """
    if not isinstance(task, PairMax) or arch.depth < 2:
        return arch
    (heads, head_dim), pairs = arch.layers[0], _pairs(task)
    if heads >= pairs or heads < shared_heads(task, eps):
        return arch
    return replace(arch, layers=((pairs, head_dim), *arch.layers[1:]))


@lru_cache(maxsize=64)
def _pairs(task: PairMax) -> int:
    """How many look-ups of pairs there are where there is nothing else, else 0."""
    retrievals = task.structure.retrievals
    pure = all((r.order, r.rank) == (2, 1) and not r.after and not r.offset for r in retrievals)
    return sum(r.count for r in retrievals) if pure and len(task.intrinsic().matrices) > 1 else 0
