"""The pair task by two layers of one head: the depth separation's upper bound as a network with its certificate."""

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
from headcount.certificates.domains import Box
from headcount.certificates.excess import gibbs_excess
from headcount.certificates.network import ClassTokenNet, refuse_too_large
from headcount.certificates.relu import Hinges, interpolant
from headcount.certificates.replanning import with_rounding
from headcount.certificates.wiring import Hidden, Layout, wire
from headcount.papers.head_count.networks.assembling import assembled
from headcount.papers.infoflow.networks.pair_rounding import pair_rounding
from headcount.sources import Source, implements
from headcount.tasks.opposite import OppositePair

SOURCE = Source("yu2026infoflow", "depth separation (two layers of one head)")
LARGEST = 2 * 10**7  # parameters: a state of 8 numbers makes them few a unit, and every unit is looked at for rounding


def root(high: float, step: float) -> Hinges:
    """The square root on [0, high], linear between the squares of multiples of `step`: off by at most step/4.

    Between a^2 and b^2 the chord is off by at most (b - a)^2 / (4 (a + b)), which is step/4 on the first piece.

    >>> root(4.0, 1.0)(torch.tensor([0.25, 1.0, 4.0], dtype=torch.float64))
    tensor([0.2500, 1.0000, 2.0000], dtype=torch.float64)
    """
    pieces = math.ceil(math.sqrt(high) / step)
    a = step * torch.arange(pieces + 1, dtype=torch.float64)
    slopes = 1 / (a[1:] + a[:-1])
    return Hinges(a[:-1].square(), torch.cat([slopes[:1], slopes.diff()]), 0.0)


@implements(
    SOURCE,
    test="tests/test_infoflow_pair.py::test_opposite_pair_keeps_its_certificate_and_comes_near_it",
    status="proved here",
    hypotheses=("tokens in [-1,1]^d",),
)
def opposite_pair(task: OppositePair, eps: float = 0.05) -> Built:
    """Two layers of one head find min |x_s + x_t| within eps with eps^-1 feed-forward parameters.

    Layer 1, at every token t: score -(2 <x_t, x_s> + phi(x_s)), so that the head carries the mean of x_s and phi(x_s),
    in which the score is linear. The feed-forward adds phi(x_t) and forms the product by quarter squares:
    g(t) = |x_t + x_s*|^2. Layer 2, class token: score -g, value g. The read-out takes the root.
    Source: Yu et al. 2026 (InfoFlow), the abstract: at most eps^-1.
    Departs: carrying x_s alone and squaring it afterwards never gets below 0.27, since at ties softmax averages tokens
    on opposite sides; carrying what the score is linear in makes the mean harmless.
    In float64 the certificate reaches eps = 3e-4; at 1e-4 rounding of the squares (45,000 pieces) takes too much.
    """
    if not (math.isfinite(eps) and 0 < eps <= 1):
        raise ValueError(f"eps must lie in (0, 1], got {eps}")
    start, after, reads = _sizes(task.token_dim)

    def planned(budget: float) -> tuple[tuple[ClassTokenNet, float], Certificate]:
        plan = _plan(task, budget)
        refuse_too_large(_parameters(task, plan), f"eps {eps:g}", eps=eps, at_most=LARGEST)
        net = _assemble(task, plan)
        terms = _terms(plan, *pair_rounding(net, task.length, sizes=(start, after), reads=reads))
        return (net, plan.beta), Certificate(terms, SOURCE, ("tokens in [-1,1]^d", f"length {task.length}"))

    (net, beta), certificate = with_rounding(eps, planned, first=0.125)
    return Built(net, task, certificate, Box(task.length, task.token_dim, -1.0, 1.0), in_box(NearlyOpposite(beta)))


@dataclass(frozen=True)
class _Plan:
    pieces: int
    beta: float
    step: float
    squares: float
    softmax: float


def _plan(task: OppositePair, budget: float) -> _Plan:
    """Six sevenths of the budget for the root of the squared distance's error, one for the root itself."""
    allowed = (6 / 7 * budget) ** 2
    d, competitors = task.token_dim, max(1, task.length - 1)
    # With pieces of length h on [-1, 1] a square is off by h^2/8 after centring: d of them in each of two tokens. The
    # product's squares run over [-2, 2] in pieces of 2h: 2 x_j y_j is off by at most (2h)^2/8.
    pieces = math.ceil(2 * math.sqrt(0.75 * d / (0.5 * allowed)))
    h = 2 / pieces
    squares = 0.75 * d * h * h
    beta = 2 * gibbs_excess(competitors, 1.0).value / (allowed - squares)
    return _Plan(pieces, beta, 4 / 7 * budget, squares, 2 * gibbs_excess(competitors, beta).value)


def _parameters(task: OppositePair, plan: _Plan) -> int:
    """All feed-forwards' weights and biases, before any is made."""
    d, state = task.token_dim, 2 * task.token_dim + 4
    encoder, between = d * (plan.pieces + 1), 2 * d * plan.pieces + 4
    roots = math.ceil(math.sqrt(4.0 * d + 1.0) / plan.step)
    return encoder * (d + 2 + state) + between * (2 * state + 1) + roots * (state + 2) + 2 * state + 1


def _terms(plan: _Plan, squared: float, computed: float) -> tuple[Term, ...]:
    """`squared` and `computed`: rounding inside the root and of the root (see `pair_rounding`)."""
    inside = plan.squares + plan.softmax
    return (
        Term(
            "squared distance",
            up(math.sqrt(inside)),
            f"|sqrt a - sqrt b| <= sqrt|a - b|; squares on {plan.pieces} pieces {plan.squares:.2e}, "
            f"softmax of two layers {plan.softmax:.2e}",
        ),
        Term("root", plan.step / 4, "chords between squares of multiples of the step: step/4"),
        Term(
            "rounding",
            (math.sqrt(inside + squared) - math.sqrt(inside)) * (1 + 1e-9) + computed,
            f"forward error analysis of float64: {squared:.1e} inside the root, {computed:.1e} of the root",
        ),
    )


def _assemble(task: OppositePair, plan: _Plan) -> ClassTokenNet:
    d = task.token_dim
    at = Layout(x=d, phi=1, one=1, mean=d, mean_phi=1, g=1)
    encoder, between, read_out = _encoder(task, plan, at), _between(plan, at), _read_out(task, plan, at)
    (g,), (one,) = at["g"], at["one"]
    net = assembled(encoder, ((1, d + 1), (1, 1)), (plan.beta,) * 2, read_out, between, asks={one: 1.0})
    carried = [*at["x"], *at["phi"]]
    queries = [*({i: -2.0} for i in at["x"]), {one: -1.0}]
    rows = [{i: 1.0} for i in carried]
    means = [{i: 1.0} for i in (*at["mean"], *at["mean_phi"])]
    wire(net.attention[0], 0, query=queries, key=rows, value=rows, out=means)
    wire(net.attention[1], 0, query=[{one: -1.0}], key=[{g: 1.0}], value=[{g: 1.0}], out=[{g: 1.0}])
    return net


def _sizes(d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a token's state holds at most, in the order of the layout: x, phi, 1, mean of x, mean of phi, g; first after
    the encoder, then after layer 1; and what the class token holds at the end."""
    start = np.array([1.0] * d + [d + 1.0, 1.0] + [0.0] * (d + 2))
    after = np.array([1.0] * d + [d + 1.0, 1.0] + [1.0] * d + [d + 1.0, 4.0 * d + 1.0])
    return start, after, after + np.array([0.0] * (2 * d + 3) + [d + 1.0])


def _square(low: float, high: float, pieces: int) -> Hinges:
    """The square between equally spaced knots, lowered by half of its error."""
    part = interpolant(torch.square, low, high, pieces)
    return Hinges(part.knots, part.weights, part.offset - ((high - low) / pieces) ** 2 / 8)


def _encoder(task: OppositePair, plan: _Plan, at: Layout) -> Hidden:
    encoder = Hidden(task.token_dim + 1, at.size)
    for j, place in enumerate(at["x"]):
        encoder.unit({j: 1.0}, 1.0, {place: 1.0})  # x_j + 1 >= 0
        encoder.constant({place: -1.0})
        encoder.hinges({j: 1.0}, _square(-1.0, 1.0, plan.pieces), {at["phi"][0]: 1.0})
    encoder.constant({at["one"][0]: 1.0})
    return encoder


def _between(plan: _Plan, at: Layout) -> Hidden:
    hidden = Hidden(at.size, at.size)
    (g,) = at["g"]
    for place in (*at["phi"], *at["mean_phi"]):
        hidden.linear({place: 1.0}, {g: 1.0})
    wide = interpolant(torch.square, -2.0, 2.0, plan.pieces)
    for x, y in zip(at["x"], at["mean"], strict=True):
        hidden.hinges({x: 1.0, y: 1.0}, wide, {g: 0.5})
        hidden.hinges({x: 1.0, y: -1.0}, wide, {g: -0.5})
    return hidden


def _read_out(task: OppositePair, plan: _Plan, at: Layout) -> Hidden:
    hidden = Hidden(at.size, 1)
    # What the class token's own feed-forward wrote into g is its mean_phi (x = phi = 0 there, and the product of x = 0
    # with anything vanishes exactly): subtract it.
    reads = {at["g"][0]: 1.0, at["mean_phi"][0]: -1.0}
    hidden.hinges(reads, root(4.0 * task.token_dim + 1.0, plan.step), {0: 1.0})
    return hidden


@dataclass(frozen=True)
class NearlyOpposite:
    """Two tokens that cancel up to a little, or a tie of such pairs, the others at random: the root is steepest."""

    beta: float
    count: int = 256
    name: str = "nearly opposite pairs"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        x = trial.domain.sample(self.count, generator=generator)
        scale = 10.0 ** -torch.linspace(0.5, 9, self.count, dtype=x.dtype)[:, None]
        nudge = 2 * torch.rand(x[:, 0].shape, generator=generator, dtype=x.dtype) - 1
        half = x.shape[1] // 2
        x[:, half] = -x[:, 0] + scale * nudge
        tied = torch.arange(self.count) % 2 == 0
        x[tied, 1:half] = x[tied, :1]
        return trial.domain.project(x)
