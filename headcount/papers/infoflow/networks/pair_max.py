"""D pair retrievals by D heads in both of two layers: the intrinsic-dimension task as a network."""

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
from headcount.certificates.domains import Box, radius_for
from headcount.certificates.excess import gibbs_excess
from headcount.certificates.network import ClassTokenNet, refuse_too_large
from headcount.certificates.relu import interpolant, pieces_for
from headcount.certificates.replanning import with_rounding
from headcount.certificates.wiring import Hidden, Layout, wire
from headcount.papers.head_count.networks.assembling import assembled
from headcount.papers.infoflow.networks.pair_rounding import sum_rounding
from headcount.refusals import positive
from headcount.sources import Source, implements
from headcount.tasks.pairs import Gaussian, PairMax, UnitSphere

SOURCE = Source("yu2026infoflow", "the intrinsic-dimension prediction (D heads in both layers)")
NEEDED = Source("yu2026infoflow", "the intrinsic-dimension prediction, that fewer do not suffice")


@implements(
    NEEDED,
    test="tests/test_infoflow_predict.py::test_a_costly_prediction_says_what_would_do",
    status="conjectured",
    hypotheses=("a class token that attends in the last layer only", "no semidefinite or rank-one form among them"),
)
@implements(
    SOURCE,
    test="tests/test_infoflow_pair.py::test_pair_max_keeps_its_certificate_and_comes_near_it",
    status="proved here",
    hypotheses=("tokens in the box of the certificate",),
)
def pair_max(task: PairMax, eps: float = 0.1, *, radius: float | None = None) -> Built:
    """D heads in each of two layers find sum_i max_{s,t} x_s^T A_i x_t within eps, eps^(-1/2) parameters.

    Layer 1, at every token t: head i scores x_s^T A_i x_t and carries the mean of x_s, in which the score is linear.
    The feed-forward forms g_i(t) = mean_i^T A_i x_t by quarter squares along the singular vectors of A_i. Layer 2, at
    the class token: head i takes the largest g_i. On the box [-radius, radius]^d (None: where the task's samples lie).
    Source: Yu et al. 2026 (InfoFlow): h_1 >= D and h_2 >= D are predicted to be needed; here they are shown to suffice.
    """
    within = _radius(task) if radius is None else radius
    positive(eps=eps, radius=within)
    box = Box(task.length, task.token_dim, -within, within)

    def planned(budget: float) -> tuple[tuple[ClassTokenNet, float], Certificate]:
        plan = _plan(task, budget, within)
        refuse_too_large(_parameters(task, plan), f"eps {eps:g}", eps=eps, rate=0.5)
        net = _assemble(task, plan)
        rounding = sum_rounding(net, within, task.length, sizes=_sizes(task, plan))
        return (net, plan.beta), Certificate(_terms(task, plan, rounding), SOURCE, (str(box), f"length {task.length}"))

    (net, beta), certificate = with_rounding(eps, planned, first=0.03)
    return Built(net, task, certificate, box, in_box(OneAhead(beta)))


def _radius(task: PairMax) -> float:
    """The box that holds the task's samples, but for fewer than 1 in 5000 sequences."""
    if isinstance(task.tokens, UnitSphere):
        return 1.0
    if isinstance(task.tokens, Gaussian):
        return radius_for(task.length * task.token_dim, math.sqrt(task.tokens.variance))
    raise ValueError(f"where tokens drawn by {type(task.tokens).__name__} lie is not stated: give radius=...")


@dataclass(frozen=True)
class _Plan:
    radius: float
    pieces: int
    beta: float
    product: float  # what the quarter squares of all retrievals add
    reach: float  # a singular direction of a token, at most


def _plan(task: PairMax, budget: float, radius: float) -> _Plan:
    """A third of the budget for the products, two thirds for the two layers' softmax."""
    D, d = len(task.matrices), task.token_dim
    strengths = torch.linalg.svdvals(torch.tensor(task.matrices, dtype=torch.float64)).sum().item()
    reach = radius * math.sqrt(d)
    # u v = ((u+v)^2 - (u-v)^2)/4: both quarter squares lie above by at most c, so their difference is off by at most c.
    pieces = pieces_for(budget / 3 / max(strengths, 1e-300), 0.5, -2 * reach, 2 * reach)
    product = strengths * 0.5 * (4 * reach / pieces) ** 2 / 8
    beta = 2 * D * gibbs_excess(max(1, task.length - 1), 1.0).value / (budget - product)
    return _Plan(radius, pieces, beta, product, reach)


def _parameters(task: PairMax, plan: _Plan) -> int:
    """The feed-forward's weights and biases, before any is made; encoder and read-out are small."""
    D, d = len(task.matrices), task.token_dim
    state = d + 1 + D * d + 2 * D
    return 2 * D * d * plan.pieces * (2 * state + 1)


def _terms(task: PairMax, plan: _Plan, rounding: float) -> tuple[Term, ...]:
    excess = up(len(task.matrices) * gibbs_excess(max(1, task.length - 1), plan.beta).value)
    return (
        Term("partners", excess, f"softmax of layer 1: W((T-1)/e)/beta a retrieval, beta = {plan.beta:.6g}"),
        Term("products", up(plan.product), f"quarter squares on {plan.pieces} pieces: |A|_1 h^2/16"),
        Term("best pair", excess, "softmax of layer 2: W((T-1)/e)/beta a retrieval"),
        Term("rounding", rounding, "forward error analysis of float64"),
    )


def _layout(task: PairMax) -> Layout:
    D, d = len(task.matrices), task.token_dim
    return Layout(x=d, one=1, **{f"mean {i}": d for i in range(D)}, g=D, best=D)


def _sizes(task: PairMax, plan: _Plan) -> tuple[np.ndarray, np.ndarray]:
    D, d = len(task.matrices), task.token_dim
    largest = [
        float(torch.tensor(a, dtype=torch.float64).abs().sum()) * plan.radius**2 + plan.product for a in task.matrices
    ]
    start = [plan.radius] * d + [1.0]
    return (
        np.array(start + [0.0] * (D * d + 2 * D)),
        np.array(start + [plan.radius] * (D * d) + largest + [0.0] * D),
    )


def _assemble(task: PairMax, plan: _Plan) -> ClassTokenNet:
    D, d, at = len(task.matrices), task.token_dim, _layout(task)
    encoder, between, read_out = Hidden(d + 1, at.size), _between(task, plan, at), Hidden(at.size, 1)
    for j, place in enumerate(at["x"]):
        encoder.unit({j: 1.0}, plan.radius, {place: 1.0})
        encoder.constant({place: -plan.radius})
    encoder.constant({at["one"][0]: 1.0})
    read_out.linear(dict.fromkeys(at["best"], 1.0), {0: 1.0})
    asks = {at["one"][0]: 1.0}
    net = assembled(encoder, ((D, d), (D, 1)), (plan.beta, plan.beta), read_out, between, asks=asks)
    _wire(net, task, at)
    return net


def _wire(net: ClassTokenNet, task: PairMax, at: Layout) -> None:
    plain = [{i: 1.0} for i in at["x"]]
    for i, a in enumerate(task.matrices):
        queries = [{k: float(a[j][n]) for n, k in enumerate(at["x"])} for j in range(task.token_dim)]
        wire(net.attention[0], i, query=queries, key=plain, value=plain, out=[{k: 1.0} for k in at[f"mean {i}"]])
        g, best = at["g"][i], at["best"][i]
        wire(net.attention[1], i, query=[{at["one"][0]: 1.0}], key=[{g: 1.0}], value=[{g: 1.0}], out=[{best: 1.0}])


def _between(task: PairMax, plan: _Plan, at: Layout) -> Hidden:
    hidden = Hidden(at.size, at.size)
    quarter = interpolant(lambda s: s.square() / 4, -2 * plan.reach, 2 * plan.reach, plan.pieces)
    for i, a in enumerate(task.matrices):
        left, strength, right = torch.linalg.svd(torch.tensor(a, dtype=torch.float64))
        for u, s, v in zip(left.T.tolist(), strength.tolist(), right.tolist(), strict=True):
            mean = dict(zip(at[f"mean {i}"], u, strict=True))
            own = dict(zip(at["x"], v, strict=True))
            hidden.hinges({**mean, **own}, quarter, {at["g"][i]: s})
            hidden.hinges({**mean, **{k: -w for k, w in own.items()}}, quarter, {at["g"][i]: -s})
    return hidden


@dataclass(frozen=True)
class OneAhead:
    """One token ahead of all others, which are equal, by distances around 1/beta: both layers at their softest."""

    beta: float
    count: int = 256
    name: str = "one token ahead"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x = trial.domain.sample(self.count, generator=generator)
        corner = torch.where(torch.rand(x[:, :1].shape, generator=generator) < 0.5, x[:, :1], 100 * x[:, :1].sign())
        step = 10.0 ** torch.linspace(-1.0, 2.0, self.count, dtype=x.dtype)[:, None, None] / self.beta
        others = trial.domain.project(corner) - step * corner.sign() * torch.rand(corner.shape, generator=generator)
        x = others.expand_as(x).clone()
        x[:, :1] = trial.domain.project(corner)
        return trial.domain.project(x)
