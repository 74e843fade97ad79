"""Descent in the forward pass: linear attention whose l-th layer holds the residuals of the l-th step, certified."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.certificates.attack import Trial
from headcount.certificates.attempts import Random
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.domains import SampledDomain
from headcount.papers.icl.contexts import InContext, best_linear
from headcount.refusals import at_least_one, positive
from headcount.sources import Checked, Source, implements

UNIT = 2.0**-53
Contexts = Float[Tensor, "batch length token_dim"]


@dataclass(frozen=True)
class DescentShape:
    """The sizes of a descent network: all its layers are equal."""

    dimension: int
    layers: int
    rate: float


class DescentNet(nn.Module):
    """L equal layers of one head without softmax; the residual of every token lies in the channel of the labels.

    A layer adds -(rate/k) sum_i <x_i, x_j> r_i to r_j, the query masked as a key. After l layers r_i = y_i - <w_l, x_i>
    and r_q = -<w_l, x_q>, w_l the l-th step of descent from 0 on (1/2k) sum (y - <w, x>)^2. The answer is -r_q. The
    matrices: `score` reads x for queries and keys, `value` the residual, `write` puts the step into its channel.
    """

    score: Tensor
    value: Tensor
    write: Tensor

    def __init__(self, shape: DescentShape) -> None:
        super().__init__()
        at_least_one(dimension=shape.dimension, layers=shape.layers)
        positive(rate=shape.rate)
        self.shape = shape
        d = shape.dimension
        channel = torch.zeros(d + 2, 1, dtype=torch.float64)
        channel[d] = 1.0
        self.register_buffer("score", torch.eye(d + 2, d, dtype=torch.float64))
        self.register_buffer("value", channel)
        self.register_buffer("write", -shape.rate * channel.mT)

    @property
    def feedforward_parameters(self) -> int:
        """There is no feed-forward."""
        return 0

    def forward(self, x: Contexts) -> Float[Tensor, " batch"]:
        stream = x.to(self.score.dtype)
        for _ in range(self.shape.layers):
            projected = stream @ self.score
            weights = projected @ projected[:, :-1].mT / (x.shape[1] - 1)
            stream = stream + weights @ (stream[:, :-1] @ self.value) @ self.write
        return -stream[:, -1, self.shape.dimension]


def sample_edges(dimension: int, examples: int) -> tuple[float, float]:
    """Between which the eigenvalues of an isotropic sample covariance lie for large sizes: (1 -+ sqrt(d/k))^2.

    >>> sample_edges(16, 64)
    (0.25, 2.25)
    """
    at_least_one(dimension=dimension, examples=examples)
    root = math.sqrt(dimension / examples)
    return (1 - root) ** 2, (1 + root) ** 2


def safe_rate(dimension: int, examples: int) -> float:
    """2 / (low + high) of those edges, which is 1 / (1 + d/k).

    The edges are those of large sizes: at d = 16, k = 64 descent still diverges on 0.8% of 5000 contexts (at 1, the
    best step of the population, on 62%). `context_error` says on which.

    >>> safe_rate(16, 64)
    0.8
    """
    low, high = sample_edges(dimension, examples)
    return 2 / (low + high)


@dataclass(frozen=True)
class Conditioned(SampledDomain):
    """Contexts whose sample covariance has its eigenvalues in [low, high], with query and teacher of bounded norms.

    Drawn from the task, then the eigenvalues are clipped to the edges and norms to theirs: nothing of it is assumed.
    """

    task: InContext
    low: float
    high: float
    query: float = 1.0
    teacher: float = 1.0

    def sample(self, batch: int, *, generator: torch.Generator) -> Contexts:
        x, d = self.task.sample(batch, generator=generator, dtype=torch.float64)[0], self.task.dimension
        u, s, v = torch.linalg.svd(x[:, :-1, :d], full_matrices=False)
        s = (s.square() / self.task.examples).clamp(self.low, self.high).mul(self.task.examples).sqrt()
        inputs = u * s[:, None] @ v
        w = best_linear(x[:, :-1, :d], x[:, :-1, d], 0.0)
        return _context(inputs, _inside(w, self.teacher), _inside(x[:, -1, :d], self.query))

    def covers(self, x: Contexts) -> Bool[Tensor, " batch"]:
        """Which contexts have such eigenvalues, norms and a teacher that explains every label, up to rounding."""
        d, tiny = self.task.dimension, 1e-9
        inputs, labels, query = x[:, :-1, :d], x[:, :-1, d], x[:, -1, :d]
        values = torch.linalg.svdvals(inputs).square() / self.task.examples
        w = best_linear(inputs, labels, 0.0)
        explained = (torch.einsum("bkd,bd->bk", inputs, w) - labels).abs().amax(dim=1) <= 1e-7
        inside = (values >= self.low * (1 - tiny)).all(dim=1) & (values <= self.high * (1 + tiny)).all(dim=1)
        small = (query.norm(dim=1) <= self.query + tiny) & (w.norm(dim=1) <= self.teacher + tiny)
        return inside & explained & small

    def __str__(self) -> str:
        norms = f"|x_q| <= {self.query:g} and |w| <= {self.teacher:g}"
        return f"contexts with eigenvalues in [{self.low:g}, {self.high:g}], {norms}"


@dataclass(frozen=True)
class Planted:
    """Teacher and query of the largest norms along the eigenvector that descent shrinks least, at either edge."""

    rate: float
    count: int = 16
    name: str = "planted queries"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Contexts:
        domain = trial.domain
        assert isinstance(domain, Conditioned)
        x, d, k = domain.sample(self.count, generator=generator), domain.task.dimension, domain.task.examples
        u, s, v = torch.linalg.svd(x[:, :-1, :d], full_matrices=False)
        slow = abs(1 - self.rate * domain.low) >= abs(1 - self.rate * domain.high)
        s[:, -1] = math.sqrt(k * (domain.low if slow else domain.high))
        return _context(u * s[:, None] @ v, domain.teacher * v[:, -1], domain.query * v[:, -1])


@implements(
    Source("headcount", "descent in the forward pass, for Mehta and Gupta 2025"),
    test="tests/test_icl_descent.py::test_a_planted_query_meets_the_certificate",
    status="proved here",
    hypotheses=(
        Checked("linear teacher without noise"),
        Checked("rate < 2 / high"),
        "eigenvalues of the context within the edges",
    ),
)
def descent(
    task: InContext,
    layers: int,
    rate: float | None = None,
    edges: tuple[float, float] | None = None,
    norms: tuple[float, float] = (1.0, 1.0),
) -> Built:
    """Linear attention whose forward pass is gradient descent on its context: |answer - <w, x_q>| <= f^L |w| |x_q|.

    With S = X^T X / k the L-th step leaves w - w_L = (I - rate S)^L w, so f = max |1 - rate s| over the eigenvalues s
    in `edges`; without edges those of an isotropic sample, (1 -+ sqrt(d/k))^2, and without a rate 2 / (low + high).
    `norms` are the largest |x_q| and |w|: at norms 1 few of a task's own samples are meant, as |x_q| is about sqrt(d).
    Departs: no softmax, which would need tokens of small norm or a kernel. All layers are equal.

    >>> built = descent(InContext(64, 16), layers=8)
    >>> built.net.shape.rate, round(built.certificate.error, 6)
    (0.8, 0.167772)
    >>> own = descent(InContext(64, 16), layers=32, edges=(0.1, 3.4), norms=(6.5, 1.7))
    >>> x = own.task.sample(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[0]
    >>> bool(own.domain.covers(x).double().mean() > 0.98), round(own.certificate.error, 3)
    (True, 1.681)
    """
    if task.levels or task.noise:
        raise ValueError(
            f"descent is certified for the linear teacher without noise, got {task.levels=}, {task.noise=}"
        )
    low, high = edges or sample_edges(task.dimension, task.examples)
    if not 0 < low <= high:
        raise ValueError(f"the eigenvalues of a context need edges 0 < low <= high, got {low:g} and {high:g}")
    positive(largest_query=norms[0], largest_teacher=norms[1])
    rate = 2 / (low + high) if rate is None else rate
    if not 0 < rate < 2 / high:
        raise ValueError(f"descent needs a rate between 0 and 2/{high:g} = {2 / high:g}, got {rate:g}")
    factor = max(abs(1 - rate * low), abs(1 - rate * high))
    # A layer and the least-squares target each sum k + d products of numbers of size at most high / low; the steps are
    # contractions, so their roundings add.
    size = norms[0] * norms[1]
    rounding = 8 * (layers + 1) * (task.examples + task.dimension) * UNIT * max(1.0, high) / low * size
    terms = (
        Term("descent", factor**layers * size, f"{factor:.4g}^{layers} |x_q| |w|: |1 - rate s|, once a layer"),
        Term("rounding", rounding, "sums of k + d products in float64, once a layer"),
    )
    source = Source("headcount", "descent in the forward pass, for Mehta and Gupta 2025")
    norm_words = "|x_q|, |w| <= 1" if norms == (1.0, 1.0) else f"|x_q| <= {norms[0]:g}, |w| <= {norms[1]:g}"
    certificate = Certificate(terms, source, (f"eigenvalues of X^T X / k in [{low:g}, {high:g}], {norm_words}",))
    net = DescentNet(DescentShape(task.dimension, layers, float(rate)))
    return Built(
        net, task, certificate, Conditioned(task, low, high, *map(float, norms)), (Random(), Planted(float(rate)))
    )


def context_error(x: Contexts, layers: int, rate: float) -> tuple[Float[Tensor, " batch"], Bool[Tensor, " batch"]]:
    """The certificate of each context, |x_q| |(I - rate S)^L w|, and whether descent diverges on it (rate >= 2/s).

    w is the least-squares solution, the teacher where labels bear no noise.
    """
    d = x.shape[-1] - 2
    inputs, w = x[:, :-1, :d], best_linear(x[:, :-1, :d], x[:, :-1, d], 0.0)
    values, vectors = torch.linalg.eigh(inputs.mT @ inputs / inputs.shape[1])
    rest = ((1 - rate * values) ** layers * (w[:, None] @ vectors)[:, 0]).norm(dim=-1)
    return x[:, -1, :d].norm(dim=-1) * rest, rate * values[:, -1] >= 2


def _context(inputs: Tensor, w: Tensor, query: Tensor) -> Contexts:
    """Tokens of noiseless examples and one query."""
    labels = inputs @ w[..., None]
    examples = torch.cat([inputs, labels, torch.zeros_like(labels)], dim=-1)
    last = torch.cat([query, torch.zeros_like(query[:, :1]), torch.ones_like(query[:, :1])], dim=-1)
    return torch.cat([examples, last[:, None]], dim=1)


def _inside(v: Tensor, most: float) -> Tensor:
    return v / (v.norm(dim=-1, keepdim=True) / most).clamp(min=1.0)
