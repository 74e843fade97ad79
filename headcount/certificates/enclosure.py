"""The independent checker, first half: network and target in ball arithmetic, so that rounding is part of the proof.

Needs the `certify` extra (python-flint). A ball is a number with a rigorous radius; weights and inputs are taken as
the exact numbers that their float64 is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce, singledispatch
from typing import Any

import torch
from flint import arb, arb_mat, ctx
from torch import Tensor

from headcount.certificates.built import Built
from headcount.certificates.network import ClassTokenNet, ReluNet
from headcount.nets.transformer import Attention
from headcount.tasks import Affine, Exponential, LinearMax, Ridges, Sine, Square, Wells

PRECISION = 160  # bits; softmax at beta = 10^7 spends 24 of them


@dataclass(frozen=True)
class Enclosed:
    """What is proved about one input: the exact network's gap, and how far float64 strays from the exact network."""

    gap: float
    rounding: float
    error: float
    promised_rounding: float

    @property
    def holds(self) -> bool:
        """Whether the promise and its rounding term are proved on this input."""
        return self.gap <= self.error and self.rounding <= self.promised_rounding


def enclose(built: Built, x: Tensor) -> list[Enclosed]:
    """For every sequence of `x`, rigorous upper bounds of |network - target| and of the rounding of the network.

    >>> from headcount.papers.head_count import enough_heads
    >>> built = enough_heads(Wells(centres=[[0.0], [1.0]], length=4), eps=1e-2)
    >>> [e.holds for e in enclose(built, torch.rand(2, 4, 1, dtype=torch.float64))]
    [True, True]
    """
    net = built.net
    if not (isinstance(net, ClassTokenNet) and len(net.shape.layers) == 1):
        raise ValueError("ball arithmetic is written for one-layer ClassTokenNets")
    computed = net(x).tolist()
    claimed = built.certificate["rounding"].value
    with ctx.workprec(PRECISION):
        enclosures = []
        for sequence, y in zip(x.double(), computed, strict=True):
            exact = net_ball(net, sequence)
            gap = abs(arb(y) - target_ball(built.task, sequence.tolist()))
            enclosures.append(Enclosed(_above(gap), _above(abs(arb(y) - exact)), built.certificate.error, claimed))
    return enclosures


def net_ball(net: ClassTokenNet, x: Tensor) -> Any:
    """The output of a one-layer network on one sequence, in exact arithmetic on its float64 weights."""
    rows = [[*token, float(t)] for t, token in enumerate(x.tolist(), start=1)]
    tokens = _through(net.encoder, arb_mat(rows))
    cls = arb_mat([[v] for v in net.cls.tolist()])
    (attention,) = net.attention
    assert isinstance(attention, Attention)
    state = cls
    for head in range(attention.query.shape[0]):
        state = state + _head(attention, head, cls, tokens, net.shape.betas[0])
    return _through(net.read_out, state.transpose())[0, 0]


def _head(attention: Attention, head: int, cls: Any, tokens: Any, beta: float) -> Any:
    query, key, value, out = (
        arb_mat(p[head].tolist()) for p in (attention.query, attention.key, attention.value, attention.output)
    )
    scores = tokens * key.transpose() * (query * cls)
    values = tokens * value.transpose()
    T = values.nrows()
    best = max(float(scores[t, 0].mid()) for t in range(T))
    weights = [(arb(beta) * (scores[t, 0] - arb(best))).exp() for t in range(T)]
    average = (arb_mat([weights]) * values) / sum(weights, arb(0))
    return out * average.transpose()


def _through(net: ReluNet, rows: Any) -> Any:
    last = len(net.weights) - 1
    for k, (weight, bias) in enumerate(net.weights):
        rows = rows * arb_mat(weight.tolist()).transpose()
        offsets = [arb(b) for b in bias.tolist()]
        table = [[v + b for v, b in zip(row, offsets, strict=True)] for row in rows.tolist()]
        rows = arb_mat([[v.nonnegative_part() for v in row] for row in table] if k < last else table)
    return rows


@singledispatch
def target_ball(task: Any, x: list[list[float]]) -> Any:
    """The task's target on one sequence, from its definition."""
    raise ValueError(f"the target of {type(task).__name__} is not written in ball arithmetic")


@target_ball.register
def _(task: Wells, x: list[list[float]]) -> Any:
    assert task.windows is not None
    assert task.combine is not None
    d = task.token_dim
    depths = []
    for centre, window in zip(task.centres, task.windows, strict=True):
        squares = [sum(((arb(v) - arb(c)) ** 2 for v, c in zip(x[t], centre, strict=True)), arb(0)) for t in window]
        depths.append(reduce(arb.min, squares) / d)
    return ridges_ball(task.combine, depths)


@target_ball.register
def _(task: LinearMax, x: list[list[float]]) -> Any:
    total = arb(0)
    for a in task.directions:
        total += reduce(arb.max, [sum((arb(v) * arb(w) for v, w in zip(token, a, strict=True)), arb(0)) for token in x])
    return total


@dataclass(frozen=True)
class BallProfile:
    """A ridge's profile in ball arithmetic, with the largest |g'| and |g''| on an interval."""

    g: Any

    def __call__(self, s: Any) -> Any:
        match self.g:
            case Affine(scale=k):
                return arb(k) * s
            case Square(scale=k):
                return arb(k) * s * s
            case Sine(scale=k, frequency=w, phase=p):
                return arb(k) * (arb(w) * s + arb(p)).sin()
            case Exponential(scale=k, rate=r):
                return arb(k) * (arb(r) * s).exp()
        raise ValueError(f"profile {type(self.g).__name__} is not written in ball arithmetic")

    def steepest(self, low: Any, high: Any) -> Any:
        match self.g:
            case Affine(scale=k):
                return abs(arb(k))
            case Square(scale=k):
                return 2 * abs(arb(k)) * abs(low).max(abs(high))
            case Sine(scale=k, frequency=w):
                return abs(arb(k) * arb(w))
            case Exponential(rate=r):
                return abs(arb(r)) * abs(self(low)).max(abs(self(high)))
        raise ValueError(f"profile {type(self.g).__name__} is not written in ball arithmetic")

    def curvature(self, low: Any, high: Any) -> Any:
        match self.g:
            case Affine():
                return arb(0)
            case Square(scale=k):
                return 2 * abs(arb(k))
            case Sine(scale=k, frequency=w):
                return abs(arb(k)) * arb(w) ** 2
            case Exponential(rate=r):
                return abs(arb(r)) * self.steepest(low, high)
        raise ValueError(f"profile {type(self.g).__name__} is not written in ball arithmetic")


def ridges_ball(outer: Ridges, z: list[Any]) -> Any:
    """F_0(z) = sum_j g_j(<u_j, z>)."""
    along = [sum((arb(a) * v for a, v in zip(u, z, strict=True)), arb(0)) for u in outer.directions]
    return sum((BallProfile(g)(s) for g, s in zip(outer.profiles, along, strict=True)), arb(0))


def _above(ball: Any) -> float:
    """A float64 that is at least the ball."""
    value = float(ball.upper())
    return value if arb(value) >= ball.upper() else torch.nextafter(torch.tensor(value), torch.tensor(torch.inf)).item()
