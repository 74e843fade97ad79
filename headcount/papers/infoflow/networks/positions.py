"""Reading by place: a sum over fixed positions, and D retrievals by two layers of one head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.arithmetic import up
from headcount.certificates.attack import Trial
from headcount.certificates.attempts import in_box
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.deep_rounding import rounding_through
from headcount.certificates.domains import Box, radius_for
from headcount.certificates.excess import gibbs_excess
from headcount.certificates.network import ClassTokenNet
from headcount.certificates.replanning import with_rounding
from headcount.certificates.wiring import Hidden, Layout, wire
from headcount.papers.head_count.networks.assembling import assembled
from headcount.refusals import positive
from headcount.sources import Checked, Source, implements
from headcount.tasks.linear_max import LinearMax
from headcount.tasks.places import PositionSum

FIXED = Source("yu2026infoflow", "specific-position aggregation")
CONJECTURE = Source("yu2025heads", "Conjecture 1 (L h >= D, with positions)")
ROUTED = Source("headcount", "retrievals collected by position")


@implements(
    FIXED,
    test="tests/test_infoflow_positions.py::test_position_sum_attains_its_certificate",
    status="proved here",
    hypotheses=("tokens in the box of the certificate",),
)
def position_sum(task: PositionSum, eps: float = 1e-3, *, radius: float | None = None) -> Built:
    """One layer of one head sums fixed positions within eps: attention 1/|P| on each, whatever stands there.

    Score [t in P], value the sum of the token's coordinates; |P| times the mean is off by |P| times the mass outside
    times the spread of values, which is attained. On the box [-radius, radius]^d (None: where samples lie).
    Source: Yu et al. 2026 (InfoFlow), specific-position aggregation.
    """
    radius = radius_for(task.length * task.token_dim) if radius is None else radius
    positive(eps=eps, radius=radius)
    box = Box(task.length, task.token_dim, -radius, radius)
    inside, outside = len(task.positions), task.length - len(task.positions)
    spread = 2 * radius * task.token_dim

    def planned(budget: float) -> tuple[ClassTokenNet, Certificate]:
        # |P| mu spread with mu = (T - |P|) / ((T - |P|) + |P| e^beta) <= budget.
        beta = math.log(max(2.0, outside / inside * (inside * spread / budget - 1))) if outside else 1.0
        net = _summing(task, beta)
        mass = outside / (outside + inside * math.exp(beta))
        why = f"{outside} positions at exp(-{beta:.4g}), values {spread:g} apart"
        rounding = rounding_through(net, radius, task.length)
        terms = (
            Term("mass outside", up(inside * mass * spread), why),
            Term("rounding", rounding, "forward error analysis of float64"),
        )
        return net, Certificate(terms, FIXED, (str(box), f"length {task.length}"))

    net, certificate = with_rounding(eps, planned, first=0.01)
    return Built(net, task, certificate, box, in_box(Contrast(task.positions)))


def _summing(task: PositionSum, beta: float) -> ClassTokenNet:
    at = Layout(value=1, place=1, one=1, found=1)
    encoder, read_out = Hidden(task.token_dim + 1, at.size), Hidden(at.size, 1)
    for j in range(task.token_dim):
        encoder.linear({j: 1.0}, {at["value"][0]: 1.0})
    for p in task.positions:
        bump(encoder, task.token_dim, p + 1, at["place"][0])
    encoder.constant({at["one"][0]: 1.0})
    read_out.linear({at["found"][0]: 1.0}, {0: float(len(task.positions))})
    net = assembled(encoder, ((1, 1),), (beta,), read_out, asks={at["one"][0]: 1.0})
    queries, keys, values = ([{at[name][0]: 1.0}] for name in ("one", "place", "value"))
    wire(net.attention[0], 0, query=queries, key=keys, value=values, out=[{at["found"][0]: 1.0}])
    return net


@implements(
    CONJECTURE,
    test="tests/test_infoflow_positions.py::test_two_layers_of_one_head_solve_all_retrievals",
    status="refuted here",
    hypotheses=(Checked("position features"),),
)
@implements(
    ROUTED,
    test="tests/test_infoflow_positions.py::test_two_layers_of_one_head_solve_all_retrievals",
    status="proved here",
    hypotheses=(
        Checked("no more retrievals than positions"),
        "tokens in the box of the certificate",
    ),
)
def retrievals_by_position(task: LinearMax, eps: float = 0.05, *, radius: float | None = None) -> Built:
    """With positions, two layers of one head of dimension D solve D retrievals within eps.

    Layer 1: the token at position i <= D asks with e_i among the keys (<a_1, x_s>, ..., <a_D, x_s>) and so carries the
    i-th maximum; the feed-forward keeps coordinate i there and nothing elsewhere. Layer 2: the class token attends to
    positions 1..D alone and reads all D from one mean. On the box [-radius, radius]^d (None: where samples lie).
    Source: Yu et al. 2025 (heads), Conjecture 1, which this evades: L h >= D is not necessary with positions.
    """
    D, T, d = len(task.directions), task.length, task.token_dim
    if D > T:
        raise ValueError(f"each of the {D} retrievals needs a position of its own, and length is {T}")
    radius = radius_for(T * d) if radius is None else radius
    positive(eps=eps, radius=radius)
    box = Box(T, d, -radius, radius)
    strengths = [radius * sum(map(abs, a)) for a in task.directions]
    excess = D * gibbs_excess(max(1, T - 1), 1.0).value
    largest = np.array([*strengths, *([1.0] * D), 1.0, 1.0])
    sizes = (np.append(largest, np.zeros(2 * D)), np.concatenate([largest, strengths, np.zeros(D)]))

    def planned(budget: float) -> tuple[tuple[ClassTokenNet, float], Certificate]:
        beta1 = excess / (0.95 * budget)
        beta2 = math.log(max(2.0, (T - D) * sum(strengths) / (D * 0.05 * budget))) if T > D else 1.0
        net = _routing(task, (beta1, beta2), strengths)
        thin = (T - D) / D * math.exp(-beta2) * sum(strengths)
        terms = (
            Term("softmax", up(excess / beta1), f"W((T-1)/e)/beta a retrieval, beta = {beta1:.6g}"),
            Term("mass outside", up(thin), f"{T - D} other positions hold zeros at exp(-{beta2:.4g})"),
            Term("rounding", rounding_through(net, radius, T, sizes=sizes), "forward error analysis of float64"),
        )
        hypotheses = (str(box), f"length {T}", "two layers of one head, positions")
        return (net, beta1), Certificate(terms, ROUTED, hypotheses)

    (net, beta1), certificate = with_rounding(eps, planned, first=0.05)
    return Built(net, task, certificate, box, in_box(LeadBy(task.directions, beta1)))


def bump(encoder: Hidden, coordinate: int, position: int, place: int) -> None:
    """1 at t = position and 0 at every other whole number."""
    for knot, weight in ((position - 1, 1.0), (position, -2.0), (position + 1, 1.0)):
        encoder.unit({coordinate: 1.0}, -float(knot), {place: weight})


def _routing(task: LinearMax, betas: tuple[float, float], strengths: list[float]) -> ClassTokenNet:
    D, d = len(task.directions), task.token_dim
    at = Layout(f=D, own=D, first=1, one=1, r=D, found=D)
    encoder, between, read_out = Hidden(d + 1, at.size), Hidden(at.size, at.size), Hidden(at.size, 1)
    for i, a in enumerate(task.directions):
        encoder.linear(dict(enumerate(a)), {at["f"][i]: 1.0})
        bump(encoder, d, i + 1, at["own"][i])
        bump(encoder, d, i + 1, at["first"][0])
        # r_i where own_i = 1, else 0: relu(r_i + R (2 own_i - 1)) - R own_i with |r_i| <= R; the residual takes r_i.
        r, own, bound = at["r"][i], at["own"][i], strengths[i]
        between.unit({r: 1.0, own: 2 * bound}, -bound, {r: 1.0})
        between.unit({own: 1.0}, 0.0, {r: -bound})
        between.linear({r: 1.0}, {r: -1.0})
    encoder.constant({at["one"][0]: 1.0})
    read_out.linear(dict.fromkeys(at["found"], float(D)), {0: 1.0})
    net = assembled(encoder, ((1, D), (1, D)), betas, read_out, between, asks={at["one"][0]: 1.0})
    features, retrieved = [{i: 1.0} for i in at["f"]], [{i: 1.0} for i in at["r"]]
    wire(net.attention[0], 0, query=[{i: 1.0} for i in at["own"]], key=features, value=features, out=retrieved)
    out = [{i: 1.0} for i in at["found"]]
    wire(net.attention[1], 0, query=[{at["one"][0]: 1.0}], key=[{at["first"][0]: 1.0}], value=retrieved, out=out)
    return net


@dataclass(frozen=True)
class Contrast:
    """The read positions at one end of the box, all others at the other: the mass outside at its most visible."""

    positions: tuple[int, ...]
    name: str = "read against unread"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x = torch.full((2, trial.domain.length, trial.domain.token_dim), -1e9, dtype=torch.float64)
        x[:, list(self.positions)] = 1e9
        return trial.domain.project(torch.stack([x[0], -x[1]]))


@dataclass(frozen=True)
class LeadBy:
    """For every direction one token ahead of the rest, which are equal, by distances around 1/beta."""

    directions: tuple[tuple[float, ...], ...]
    beta: float
    count: int = 128
    name: str = "one token ahead a direction"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        base = trial.domain.sample(self.count, generator=generator)[:, :1]
        x = (0.5 * base).expand(-1, trial.domain.length, -1).clone()
        step = 10.0 ** torch.linspace(-1.0, 2.0, self.count, dtype=x.dtype) / self.beta
        for i, a in enumerate(self.directions):
            ahead = torch.tensor(a, dtype=x.dtype)
            x[:, -1 - i % trial.domain.length] += step[:, None] * ahead / ahead.square().sum()
        return trial.domain.project(x)
