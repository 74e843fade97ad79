"""What is attacked: every construction, several sizes and errors each, with its own long-double target."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from headcount.papers.head_count import enough_heads, memorise, weight_bounded
from headcount.papers.infoflow import (
    carried_retrievals,
    gated_second_largest,
    induction_head,
    kth_largest,
    opposite_pair,
    pair_max,
    position_sum,
    retrievals_by_position,
)
from headcount.tasks import (
    Exponential,
    Induction,
    KthLargest,
    LinearMax,
    OppositePair,
    PairMax,
    PositionSum,
    Ridges,
    Sine,
    UnitSphere,
    Wells,
)
from tests.attack import long_targets
from tests.attack.bad_inputs import ascended, box_inputs, letter_inputs, spaced_inputs

__all__ = ["CASES", "Outcome", "attack"]

LONG = np.longdouble
CURVED = Ridges([[1.0, 1.0], [1.0, -0.5]], (Exponential(rate=0.7), Sine(scale=0.5, frequency=3.0, phase=0.3)))
CURVED_LONG = [
    ([1.0, 1.0], lambda s: np.exp(LONG(0.7) * s)),
    ([1.0, -0.5], lambda s: LONG(0.5) * np.sin(LONG(3.0) * s + LONG(0.3))),
]


@dataclass(frozen=True)
class Outcome:
    """One build: how many inputs were tried, how many broke the promise, the worst gap over the promised error."""

    name: str
    inputs: int
    broken: int
    ratio: float


def _wells(D, d, T, eps, windows=False, by=enough_heads):
    task = Wells.random(D, d, T, seed=D + T, windows=windows)
    return by(task, eps), long_targets.wells(task.centres, task.windows)


def _curved(eps, by=enough_heads):
    task = Wells(centres=[[0.2, 0.9], [0.7, 0.1]], length=8, combine=CURVED)
    return by(task, eps), long_targets.wells(task.centres, None, CURVED_LONG)


def _linear(D, d, T, eps, by=enough_heads, **more):
    task = LinearMax.random(D, d, T, seed=D + T)
    return by(task, eps, **more), long_targets.linear_max(task.directions)


def _pairs(D, d, T, eps, **more):
    task = PairMax.random(D, d, T, seed=D + T, **more)
    return pair_max(task, eps), long_targets.pair_max(task.matrices)


def _opposite(d, T, eps):
    return opposite_pair(OppositePair(T, d), eps), long_targets.opposite_pair()


def _kth(k, T, eps, by=kth_largest):
    return by(KthLargest(k, T), eps), long_targets.kth_largest(k)


def _places(positions, T, eps, **more):
    return position_sum(PositionSum(positions, T), eps, **more), long_targets.position_sum(positions)


def _induction(V, T, eps):
    return induction_head(Induction(V, T), eps), long_targets.induction(V)


def _bounded(built_and_target):
    built, target = built_and_target
    return weight_bounded(built), target


CASES: dict[str, Callable[[], tuple[Any, Callable[[Any], Any]]]] = {
    "wells 1x1x1": lambda: _wells(1, 1, 1, 1e-3),
    "wells 3x2x16 windows 1e-1": lambda: _wells(3, 2, 16, 1e-1, True),
    "wells 3x2x16 windows 1e-5": lambda: _wells(3, 2, 16, 1e-5, True),
    "wells 4x4x64": lambda: _wells(4, 4, 64, 1e-3, True),
    "wells curved 1e-2": lambda: _curved(1e-2),
    "wells curved 1e-4": lambda: _curved(1e-4),
    "linear 1x1x1": lambda: _linear(1, 1, 1, 1e-3),
    "linear 2x2x2": lambda: _linear(2, 2, 2, 1e-2),
    "linear 4x4x32 1e-1": lambda: _linear(4, 4, 32, 1e-1),
    "linear 4x4x32 1e-7": lambda: _linear(4, 4, 32, 1e-7),
    "linear 2x2x256": lambda: _linear(2, 2, 256, 1e-3),
    "linear radius 1": lambda: _linear(3, 2, 8, 1e-2, radius=1.0),
    "memory wells 0.2": lambda: _wells(2, 1, 6, 0.2, by=memorise),
    "memory wells windows": lambda: _wells(2, 2, 6, 0.1, True, by=memorise),
    "memory curved": lambda: _curved(0.2, by=memorise),
    "memory linear": lambda: _linear(2, 2, 4, 0.3, by=memorise),
    "bounded wells": lambda: _bounded(_wells(3, 2, 16, 1e-2, True)),
    "bounded linear": lambda: _bounded(_linear(2, 3, 16, 1e-3)),
    "pairs 1x1x1": lambda: _pairs(1, 1, 1, 0.1),
    "pairs 1x2x6": lambda: _pairs(1, 2, 6, 1e-2),
    "pairs 3x3x8 0.3": lambda: _pairs(3, 3, 8, 0.3),
    "pairs 2x4x64": lambda: _pairs(2, 4, 64, 0.1),
    "pairs sphere": lambda: _pairs(2, 3, 12, 0.05, tokens=UnitSphere()),
    "opposite 2x1": lambda: _opposite(2, 1, 0.1),
    "opposite 1x4 0.5": lambda: _opposite(1, 4, 0.5),
    "opposite 2x8 0.05": lambda: _opposite(2, 8, 0.05),
    "opposite 3x16 1e-2": lambda: _opposite(3, 16, 1e-2),
    "opposite 2x8 1e-3": lambda: _opposite(2, 8, 1e-3),
    "largest of 8": lambda: _kth(1, 8, 0.05),
    "second of 2": lambda: _kth(2, 2, 0.05),
    "second of 8": lambda: _kth(2, 8, 0.05),
    "second of 24 1e-6": lambda: _kth(2, 24, 1e-6),
    "third of 10": lambda: _kth(3, 10, 0.05),
    "fourth of 8": lambda: _kth(4, 8, 0.5),
    "sixth of 16": lambda: _kth(6, 16, 0.9),
    "gated second of 2": lambda: _kth(2, 2, 0.05, by=gated_second_largest),
    "gated second of 13": lambda: _kth(2, 13, 0.05, by=gated_second_largest),
    "gated second of 32 1e-2": lambda: _kth(2, 32, 1e-2, by=gated_second_largest),
    "places 1 of 1": lambda: _places((0,), 1, 1e-3),
    "places 3 of 10": lambda: _places((0, 1, 2), 10, 1e-3),
    "places 2 of 9 radius 1": lambda: _places((3, 8), 9, 1e-8, radius=1.0),
    "induction 2x6": lambda: _induction(2, 6, 0.02),
    "induction 5x5 0.9": lambda: _induction(5, 5, 0.9),
    "induction 5x16 1e-4": lambda: _induction(5, 16, 1e-4),
    "carried 3 by 1": lambda: _linear(3, 3, 8, 0.1, by=carried_retrievals),
    "carried 6 by 2": lambda: _linear(6, 3, 6, 1e-2, by=carried_retrievals, heads=2),
    "carried length 1": lambda: _linear(2, 2, 1, 0.1, by=carried_retrievals),
    "routed 2": lambda: _linear(2, 3, 8, 0.1, by=retrievals_by_position),
    "routed 5": lambda: _linear(5, 3, 12, 1e-2, by=retrievals_by_position),
    "routed length 1": lambda: _linear(1, 2, 1, 0.1, by=retrievals_by_position),
}


def attack(name: str, count: int, *, seed: int = 0, steps: int = 20) -> Outcome:
    """`count` bad inputs on one build, and ascents from the worst of them; the verdict is in long double."""
    torch.set_grad_enabled(True)
    built, target = CASES[name]()
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    x = _inputs(built, rng, count)
    assert bool(built.certificate.domain.covers(torch.from_numpy(x)).all())
    gaps = _gaps(built, target, x)
    if not name.startswith("induction") and not _spaced(built):
        low, high = (built.domain.low, built.domain.high) if hasattr(built.domain, "low") else (0.0, 1.0)
        worst = x[np.argsort(-gaps)[: max(2, count // (4 * steps))]]
        more = ascended(built.net, built.task, worst, low, high, steps)
        gaps = np.append(gaps, _gaps(built, target, more))
    error = LONG(built.certificate.error)
    return Outcome(name, len(gaps), int((gaps > error).sum()), float(gaps.max() / error))


def _spaced(built):
    return getattr(built.domain, "steps", 0) > 0


def _inputs(built, rng, count):
    domain, betas = built.domain, built.net.shape.betas
    if isinstance(built.task, Induction):
        return letter_inputs(rng, count, built.task.length, built.task.vocab)
    if _spaced(built):
        return spaced_inputs(rng, count, domain.length, domain.rank, domain.lead, betas)
    low, high = (domain.low, domain.high) if hasattr(domain, "low") else (0.0, 1.0)
    return box_inputs(rng, count, domain.length, domain.token_dim, low, high, betas)


@torch.no_grad()
def _gaps(built, target, x):
    """|net - target| for every sequence: the network in float64, as promised, all else in long double."""
    parts = np.array_split(x, max(1, x.size // 200_000))
    found = [
        np.abs(built.net(torch.from_numpy(p)).numpy().astype(LONG) - target(p.astype(LONG))) for p in parts if len(p)
    ]
    gaps = np.concatenate(found)
    return np.where(np.isfinite(gaps), gaps, LONG(np.inf))
