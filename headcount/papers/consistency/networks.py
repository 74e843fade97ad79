"""Attention as a kernel smoother: one softmax head whose weights are a Gaussian kernel, the same for every length."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.certificates.attempts import Random
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.domains import SampledDomain
from headcount.papers.consistency.ball import Ball
from headcount.papers.consistency.smooth import Smooth
from headcount.refusals import positive
from headcount.sources import Checked, Source, implements
from headcount.tasks.task import uniform

Tokens = Float[Tensor, "batch length token_dim"]
SOURCE = Source("headcount", "attention as a kernel smoother, for Ghosh et al. 2025")


@dataclass(frozen=True)
class SmootherShape:
    """The sizes of a smoother; the length is not among them."""

    dimension: int
    beta: float


class SmootherNet(nn.Module):
    """One softmax head of dimension d + 1 on tokens (x, |x|^2, y).

    Keys (x_i, |x_i|^2), the query (2 beta q, -beta): the scores 2 beta <q, x_i> - beta |x_i|^2 differ from
    -beta |q - x_i|^2 by a number that all share, so softmax of them is the Gaussian kernel, normalised.
    """

    key: Tensor
    query: Tensor

    def __init__(self, shape: SmootherShape) -> None:
        super().__init__()
        positive(beta=shape.beta)
        self.shape = shape
        self.register_buffer("key", torch.eye(shape.dimension + 1, dtype=torch.float64))
        scale = torch.full((shape.dimension + 1,), 2 * shape.beta, dtype=torch.float64)
        scale[-1] = -shape.beta
        self.register_buffer("query", torch.diag(scale))

    @property
    def feedforward_parameters(self) -> int:
        """There is no feed-forward after attention."""
        return 0

    def scores(self, x: Tokens) -> Float[Tensor, "batch examples"]:
        """The scores of the examples at the query."""
        points = x[..., :-1].to(self.key.dtype)
        lifted = torch.cat([points, points.square().sum(-1, keepdim=True)], dim=-1)
        query_rows = torch.cat([points[:, -1:], torch.ones_like(points[:, -1:, :1])], dim=-1) @ self.query
        return (query_rows @ (lifted[:, :-1] @ self.key).mT)[:, 0]

    def forward(self, x: Tokens) -> Float[Tensor, " batch"]:
        weights = torch.softmax(self.scores(x), dim=-1)
        return (weights * x[:, :-1, -1].to(weights.dtype)).sum(-1)


def kernel_estimate(x: Tokens, beta: float) -> Float[Tensor, " batch"]:
    """The Nadaraya-Watson estimate with kernel exp(-beta |q - x_i|^2), directly: the second road."""
    squares = (x[:, :-1, :-1] - x[:, -1:, :-1]).square().sum(-1)
    weights = torch.exp(-beta * (squares - squares.amin(-1, keepdim=True)))
    return (weights * x[:, :-1, -1]).sum(-1) / weights.sum(-1)


def ball_smoother(x: Tokens, beta: float, ball: Ball) -> Float[Tensor, " batch"]:
    """The smoother with score -beta dist(q, x_i)^2 / 4 between points exp0(x) of the ball.

    The square of the distance is no inner product of finitely many features, so the score is a function of its own.
    """
    points = ball.exp0(x[..., :-1])
    weights = torch.softmax(-beta * ball.distance(points[:, -1:], points[:, :-1]).square() / 4, dim=-1)
    return (weights * x[:, :-1, -1]).sum(-1)


def context_bound(x: Tokens, beta: float, lipschitz: float) -> Float[Tensor, " batch"]:
    """The certificate of each context without noise: |estimate - f(q)| <= L sum_i weight_i |x_i - q|."""
    apart = (x[:, :-1, :-1] - x[:, -1:, :-1]).norm(dim=-1)
    return lipschitz * (torch.softmax(-beta * apart.square(), dim=-1) * apart).sum(-1)


@dataclass(frozen=True)
class Covered(SampledDomain):
    """Contexts with a labelled point in every cell of a grid of the cube, so none is farther than `radius` from one."""

    task: Smooth

    @property
    def cells(self) -> int:
        """Cells along one edge of the cube."""
        return math.floor(self.task.examples ** (1 / self.task.dimension) + 1e-9)

    @property
    def radius(self) -> float:
        """The diameter of a cell."""
        return math.sqrt(self.task.dimension) / self.cells

    def sample(self, batch: int, *, generator: torch.Generator) -> Tokens:
        d, m = self.task.dimension, self.cells
        points = uniform((batch, self.length, d), generator=generator, dtype=torch.float64)
        corners = torch.cartesian_prod(*[torch.arange(m, dtype=torch.float64)] * d).view(m**d, d)
        points[:, : m**d] = (corners + points[:, : m**d]) / m
        return self.task.labelled(points)

    def covers(self, x: Tokens) -> Bool[Tensor, " batch"]:
        """Which contexts have a labelled point in every cell."""
        d, m = self.task.dimension, self.cells
        points = x[:, : self.task.examples, :d]
        place = (points * m).long().clamp(0, m - 1)
        number = (place * m ** torch.arange(d)).sum(dim=-1)
        occupied = torch.zeros(len(x), m**d, dtype=torch.bool).scatter_(
            1, number, torch.ones_like(number, dtype=torch.bool)
        )
        return occupied.all(dim=1) & ((points >= 0) & (points <= 1)).flatten(1).all(dim=1)

    def __str__(self) -> str:
        return f"a labelled point within {self.radius:.3g} of every point of [0, 1]^{self.task.dimension}"


@implements(
    SOURCE,
    test="tests/test_consistency_smoother.py::test_the_certificate_holds_and_a_corner_meets_that_of_its_context",
    status="proved here",
    hypotheses=(Checked("labels without noise"), "f Lipschitz", "labelled points cover the cube"),
)
def smoother(task: Smooth, beta: float | None = None) -> Built:
    """One softmax head that estimates f(q) from labelled tokens: |gap| <= L (s + sqrt(d) t e^(-beta (s^2 - r^2))).

    Some point lies within r of the query; points beyond s > r have weights at most e^(-beta (s^2 - r^2)) of its own,
    and lie within sqrt(d). The best s is taken. Without a beta it is t^(2/d), the spacing of the points.

    >>> built = smoother(Smooth("slope", examples=64, dimension=1))
    >>> built.net.shape.beta, built.check().holds
    (4096.0, True)
    """
    if task.noise:
        raise ValueError(f"the certificate of a smoother needs labels without noise, got {task.noise:g}")
    beta = float(task.examples ** (2 / task.dimension)) if beta is None else float(beta)
    positive(beta=beta)
    domain, wide = Covered(task), math.sqrt(task.dimension)
    tries = [domain.radius + wide * i / 2000 for i in range(2001)]
    reach = min(tries, key=lambda s: s + wide * task.examples * math.exp(-beta * (s * s - domain.radius**2)))
    far = wide * task.examples * math.exp(-beta * (reach**2 - domain.radius**2))
    # Scores are sums of d + 1 products of size at most 3 beta d; their rounding moves each weight by that part.
    rounding = 16 * (task.dimension + 2) * (3 * beta * task.dimension + task.examples) * 2.0**-53
    terms: tuple[Term, ...] = (
        Term("near", task.lipschitz * reach, f"points within {reach:.4g} of the query, times the Lipschitz constant"),
        Term("far", task.lipschitz * far, "points beyond it, by their weights in softmax"),
        Term("rounding", task.lipschitz * wide * rounding, "float64 scores and sums"),
    )
    if terms[0].value + terms[1].value >= task.span:
        why = "a mean of labels cannot leave their range: the points are too few to say more"
        terms = (Term("range", task.span, why), terms[2])
    certificate = Certificate(terms, SOURCE, ("no noise", str(domain)))
    return Built(SmootherNet(SmootherShape(task.dimension, beta)), task, certificate, domain, (Random(),))
