"""The k-th largest: k layers of one head by masking the winner, or one layer of gated heads."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.certificates.arithmetic import up
from headcount.certificates.attack import Attempt, Trial
from headcount.certificates.attempts import AllEqual, Ascent, NearTies, Random, Ties
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.excess import gibbs_excess
from headcount.certificates.network import ClassTokenNet
from headcount.certificates.replanning import with_rounding
from headcount.certificates.wiring import Hidden, Layout, composed, integer_square, wire
from headcount.numerals import counted
from headcount.papers.head_count.networks.assembling import assembled
from headcount.papers.infoflow.networks.mask_rounding import mask_rounding
from headcount.sources import Source, implements
from headcount.tasks.ranks import KthLargest

SOURCE = Source("headcount", "k-th largest by masking")
MIRROR = 2.0**-51  # two numbers of at most 2, each rounded to half a unit in the last place, and twice that to spare
MISSES = (2e-4, 0.01, 0.1, 0.5, 0.9)  # shares of uniform samples that may lie outside; the least that float64 allows


@implements(
    SOURCE,
    test="tests/test_infoflow_ranks.py::test_masking_keeps_its_certificate_and_comes_near_it",
    status="proved here",
    hypotheses=("for rank 3 and more the leading values are spaced as the certificate says",),
)
def kth_largest(task: KthLargest, eps: float = 0.05) -> Built:
    """k layers of one head find the k-th largest within eps; the parameters do not depend on eps.

    Layers 1..k-1, at every token: score c (at first the token's value), value (t, t^2). With their means m_1, m_2 a
    token knows q = m_2 - 2 t m_1 + t^2, the mean squared distance from its place to the winner's, and steps back by
    2 clip(2 - 4 q, 0, 1): fully when q <= 1/4, and only if more than half of all attention is its own. Layer k, class
    token: score and value c.
    Source: the notes' masking construction for the second largest, two layers of one head.
    Departs: places on a parabola, where the product t m_1 is exact. The least and the second least are the largest and
    the second largest of 1 - x, in one and two layers. For k >= 3 the top values must be spaced: a tie for
    the first place masks nobody, which is harmless only in the last masking layer. How far apart is up to beta, which
    is made large enough to leave out fewer than 1 in 1000 uniform samples; the error is then smaller than asked.
    """
    if not (math.isfinite(eps) and 0 < eps <= 1):
        raise ValueError(f"eps must lie in (0, 1], got {eps}")
    if task.length < 2:
        raise ValueError(f"masking needs at least 2 tokens, got length {task.length}")
    from_below = task.length - task.rank + 1
    if from_below < task.rank and from_below <= 2:
        return _mirrored(task, kth_largest(KthLargest(from_below, task.length), eps), eps)
    (net, plan), certificate = _widest(task, eps)
    domain = Spaced(task.length, plan.lead if task.rank > 2 else 0.0, task.rank)
    return Built(net, task, certificate, domain, _attempts(task, plan))


def _mirrored(task: KthLargest, largest: Built, eps: float) -> Built:
    """The network for the largest or second largest, reading 1 - x and answering 1 - y: the same rank from below."""
    net = largest.net
    assert isinstance(net, ClassTokenNet)
    (weight, bias), *rest = net.encoder.weights
    flipped = torch.cat([-weight[:, :1], weight[:, 1:]], dim=1)
    net.encoder.fill((flipped, bias + weight[:, 0]), *rest)
    *first, (weight, bias) = net.read_out.weights
    net.read_out.fill(*first, (-weight, 1 - bias))
    # 1 - x and 1 - y are rounded once each, numbers of at most 2: the ranked number moves by no more.
    term = Term("from below", MIRROR, "1 - x and 1 - y, rounded once each")
    certificate = replace(largest.certificate, terms=(*largest.certificate.terms, term))
    if certificate.error > eps:
        raise ValueError(f"eps {eps:g} is below what float64 can certify here: rounding alone may add {MIRROR:.2g}")
    attempts = tuple(replace(a, below=True) if isinstance(a, Leader) else a for a in largest.attempts)
    return Built(net, task, certificate, largest.domain, attempts)


def _widest(task: KthLargest, eps: float) -> tuple[tuple[ClassTokenNet, _Plan], Certificate]:
    """The plan that leaves out the fewest samples among those that float64 can certify."""
    *wide, narrow = MISSES if task.rank > 2 else MISSES[:1]
    for miss in wide:
        with suppress(ValueError):
            return with_rounding(eps, partial(_planned, task, miss))
    return with_rounding(eps, partial(_planned, task, narrow))


def _planned(task: KthLargest, miss: float, budget: float) -> tuple[tuple[ClassTokenNet, _Plan], Certificate]:
    plan = _plan(task, budget, miss)
    net = _assemble(task, plan)
    rounding = mask_rounding(net, task.length, rank=task.rank)
    return (net, plan), Certificate(_terms(task, plan, rounding), SOURCE, _hypotheses(task, plan))


@dataclass(frozen=True)
class Spaced:
    """Tokens in [0, 1], the rank - 1 largest each at least `lead` above the next; lead 0: all of [0, 1]."""

    length: int
    lead: float = 0.0
    rank: int = 1
    token_dim: int = 1

    def __post_init__(self) -> None:
        if not 0 <= max(0, self.rank - 2) * self.lead < 1:
            raise ValueError(
                f"no sequence in [0, 1] has {self.rank - 1} leaders {self.lead:.3g} apart: {self.rank - 2} such steps "
                f"do not fit"
            )

    @property
    def steps(self) -> int:
        """How many gaps must be at least `lead` wide."""
        return max(0, self.rank - 2) if self.lead else 0

    def covers(self, x: Float[Tensor, "batch length token_dim"]) -> Bool[Tensor, " batch"]:
        if x.shape[1:] != (self.length, 1):
            return torch.zeros(len(x), dtype=torch.bool)
        inside = ((x >= 0) & (x <= 1)).flatten(1).all(dim=1)
        return inside & self._spaced(x) if self.steps else inside

    def _spaced(self, x: Tensor) -> Tensor:
        return (-x[:, :, 0].topk(self.steps + 1, dim=1).values.diff(dim=1) >= self.lead).all(dim=1)

    def sample(self, batch: int, *, generator: torch.Generator) -> Float[Tensor, "batch length token_dim"]:
        return self.project(torch.rand(batch, self.length, 1, generator=generator, dtype=torch.float64))

    def project(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, "batch length token_dim"]:
        """A member near x, in the same order: everything is shrunk and the leaders are lifted apart where needed."""
        x = x.clamp(0.0, 1.0)
        if not self.steps:
            return x
        lead = self.lead * (1 + 1e-9) + 1e-15  # so that rounding leaves the gaps wide enough
        place = x[:, :, 0].argsort(dim=1, descending=True).argsort(dim=1)
        lift = (self.steps - place).clamp(min=0).to(x.dtype)[:, :, None] * lead
        moved = (x * (1 - self.steps * lead) + lift).clamp(0.0, 1.0)
        return torch.where(self._spaced(x)[:, None, None], x, moved)

    def __str__(self) -> str:
        return "tokens in [0, 1]" + (f", leaders {self.lead:.3g} apart" if self.lead else "")


@dataclass(frozen=True)
class _Plan:
    beta: float
    lead: float  # a winner that is ahead by so much is masked fully
    soft: float  # what the last softmax lacks


def _spread(length: int) -> float:
    """The largest sum of squared distances from one place to all others: from an end."""
    return (length - 1) * length * (2 * length - 1) / 6


def _plan(task: KthLargest, budget: float, miss: float) -> _Plan:
    # Not fully masked means q > 1/4, and q <= exp(-beta lead) sum_s (s - t)^2: the lead is below log(4 V)/beta.
    # With three or more layers q <= 1/8 is asked of all leaders but the last, so that rounding cannot reach the clip.
    c = math.log((4 if task.rank == 2 else 8) * _spread(task.length)) if task.rank > 1 else 0.0
    w = gibbs_excess(task.length - 1, 1.0).value
    beta = max(c, w) / budget
    if task.rank > 2:
        # T uniform numbers leave each of n given gaps at least g wide with probability (1 - n g)^T.
        beta = max(beta, c * (task.rank - 2) / -math.expm1(math.log1p(-miss) / task.length))
    return _Plan(beta, c / beta, w / beta)


def _terms(task: KthLargest, plan: _Plan, rounding: float) -> tuple[Term, ...]:
    # The error is one-sided each way: too high by at most the lead, too low by at most the softmax.
    worst = up(max(plan.lead, plan.soft))
    factor = 4 if task.rank == 2 else 8
    masked = f"a winner not fully masked leads by less than log({factor} V)/beta"
    why = masked if plan.lead > plan.soft else "W((T-1)/e)/beta"
    return (
        Term("masking or softmax", worst, f"{why}, beta = {plan.beta:.6g}; the two have opposite signs"),
        Term("rounding", rounding, "forward error analysis of float64"),
    )


def _hypotheses(task: KthLargest, plan: _Plan) -> tuple[str, ...]:
    spaced = (f"the {task.rank - 1} largest at least {plan.lead:.3g} apart",) if task.rank > 2 else ()
    return ("tokens in [0, 1]", f"length {task.length}", f"{counted(task.rank, 'layer')} of one head", *spaced)


def _attempts(task: KthLargest, plan: _Plan) -> tuple[Attempt, ...]:
    leader = Leader(task.rank, plan.beta, plan.lead)
    if task.rank > 2:
        return (Random(), leader, Ascent(step=0.02))
    box_attempts = (Random(), AllEqual(), Ties(), NearTies())
    return (*box_attempts, leader, Ascent())


def _layout() -> Layout:
    return Layout(c=1, one=1, t=1, square=1, m1=1, m2=1, best=1)


def _assemble(task: KthLargest, plan: _Plan) -> ClassTokenNet:
    at, T = _layout(), task.length
    encoder = Hidden(2, at.size)
    encoder.unit({0: 1.0}, 0.0, {at["c"][0]: 1.0})
    encoder.unit({1: 1.0}, 0.0, {at["t"][0]: 1.0})
    encoder.hinges({1: 1.0}, integer_square(0, T), {at["square"][0]: 1.0})
    encoder.constant({at["one"][0]: 1.0})
    mask = composed(_distance(at, T), _step_back(at))
    read_out = Hidden(at.size, 1)
    read_out.linear({at["best"][0]: 1.0}, {0: 1.0})
    masks = task.rank - 1
    layers, betas = ((1, 2),) * masks + ((1, 1),), (plan.beta,) * task.rank
    net = assembled(encoder, layers, betas, read_out, *[mask] * masks, asks={at["one"][0]: 1.0})
    _wire(net, at)
    return net


def _wire(net: ClassTokenNet, at: Layout) -> None:
    (c,), (one,) = at["c"], at["one"]
    queries, keys = [{one: 1.0}], [{c: 1.0}]
    places = [{at["t"][0]: 1.0}, {at["square"][0]: 1.0}]
    means = [{at["m1"][0]: 1.0}, {at["m2"][0]: 1.0}]
    *masking, last = net.attention
    for attention in masking:
        wire(attention, 0, query=queries, key=keys, value=places, out=means)
    wire(last, 0, query=queries, key=keys, value=keys, out=[{at["best"][0]: 1.0}])


def _distance(at: Layout, length: int) -> Hidden:
    """(q, m_1, m_2): 2 t m_1 = S(t + m_1) - S(t) - S(m_1) exactly, S the square linear between whole numbers, since
    t is whole and the fraction of t + m_1 is that of m_1."""
    hidden = Hidden(at.size, 3)
    (t,), (square,), (m1,), (m2,) = at["t"], at["square"], at["m1"], at["m2"]
    hidden.unit({m2: 1.0}, 0.0, {0: 1.0, 2: 1.0})
    hidden.unit({square: 1.0}, 0.0, {0: 2.0})
    hidden.hinges({t: 1.0, m1: 1.0}, integer_square(0, 2 * length), {0: -1.0})
    hidden.hinges({m1: 1.0}, integer_square(0, length), {0: 1.0})
    hidden.unit({m1: 1.0}, 0.0, {1: 1.0})
    return hidden


def _step_back(at: Layout) -> Hidden:
    """c - 2 clip(2 - 4 q, 0, 1), and both means forgotten."""
    hidden = Hidden(3, at.size)
    hidden.unit({0: -4.0}, 2.0, {at["c"][0]: -2.0})
    hidden.unit({0: -4.0}, 1.0, {at["c"][0]: 2.0})
    hidden.unit({1: 1.0}, 0.0, {at["m1"][0]: -1.0})
    hidden.unit({2: 1.0}, 0.0, {at["m2"][0]: -1.0})
    return hidden


@dataclass(frozen=True)
class Leader:
    """Leaders at the ends, spaced by about what masking needs, and all others tied a little below: soft masks."""

    rank: int
    beta: float
    lead: float
    count: int = 256
    name: str = "leaders barely ahead"
    below: bool = False  # the same seen from below, for the least

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        T = trial.domain.length
        gap = torch.linspace(0.0, 3.0, self.count, dtype=torch.float64) * max(self.lead, 1 / self.beta)
        x = torch.full((self.count, T, 1), 0.4, dtype=torch.float64)
        for place in range(self.rank - 1):
            high = 0.4 + gap + 1.01 * self.lead * (self.rank - 2 - place)
            x[:, 0 if place == self.rank - 2 else T - 1 - place, 0] = high
        lifted = torch.arange(self.count) % 2 == 0
        x[lifted, T // 2, 0] += torch.rand(int(lifted.sum()), generator=generator, dtype=torch.float64) * 3 / self.beta
        return trial.domain.project(1 - x if self.below else x)
