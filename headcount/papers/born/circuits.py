"""Retrieval by softmax: a head that looks one place back, then one that compares letters, leaning to early or late."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.certificates import Built, Certificate, Term
from headcount.certificates.attack import Trial
from headcount.certificates.attempts import on_samples
from headcount.certificates.domains import Drawn
from headcount.sources import Source, implements
from headcount.tasks.neighbours import Neighbour

SOURCE = Source("jobanputra2025born", "induction and anti-induction circuits")


@dataclass(frozen=True)
class CircuitShape:
    """A retrieval, the weight of a match (B) and what a place further costs (c)."""

    side: str
    which: str
    letters: int
    content: float
    slope: float


class NeighbourCircuit(nn.Module):
    """Softmax over places of B [key = query] -+ c place; both sides share the head that looks one place back.

    Right (induction): the key is the letter before, the value the letter itself. Left (anti-induction): the key is the
    letter itself, the value the letter before. The query's own place is masked: to the left its key is the query.
    """

    def __init__(self, shape: CircuitShape) -> None:
        super().__init__()
        self.shape = shape

    @property
    def feedforward_parameters(self) -> int:
        """None: attention does all of it."""
        return 0

    def shares(self, x: Float[Tensor, "batch length letters"]) -> Float[Tensor, "batch letters"]:
        """The attention that each letter collects."""
        before = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)
        key, value = (before, x) if self.shape.side == "right" else (x, before)
        lean = {"first": -1.0, "last": 1.0, "only": 0.0}[self.shape.which] * self.shape.slope
        places = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
        logits = self.shape.content * (key @ x[:, -1, :, None])[..., 0] + lean * places
        logits[:, -1] = -torch.inf
        return (torch.softmax(logits, dim=1)[:, None] @ value)[:, 0]

    def forward(self, x: Float[Tensor, "batch length letters"]) -> Float[Tensor, " batch"]:
        number = torch.arange(self.shape.letters, device=x.device, dtype=x.dtype) / (self.shape.letters - 1)
        return self.shares(x) @ number


def content_weight(task: Neighbour, eps: float) -> tuple[float, float]:
    """(B, c) that leave at most eps of the attention on wrong places.

    First and last: c = log(1/eps) and B = c x length. Against the right place every other loses a distinct whole
    multiple of c, so the wrong weights are at most e^-c + e^-2c + .. = 1/(e^c - 1) of the right one. Only: no lean
    is needed, and B = log(length/eps).

    >>> B, c = content_weight(Neighbour("right", "last", length=100), math.exp(-3.0))
    >>> round(B), round(c)
    (300, 3)
    """
    if not (math.isfinite(eps) and 0 < eps < 0.5):
        raise ValueError(f"eps must lie in (0, 1/2), got {eps}: with more the right letter need not win")
    if task.which == "only":
        return math.log(task.length / eps), 0.0
    return math.log(1 / eps) * task.length, math.log(1 / eps)


@implements(SOURCE, test="tests/test_born_circuits.py::test_a_circuit_keeps_and_nears_its_certificate",
            status="proved here")  # fmt: skip
def neighbour(task: Neighbour, eps: float = 1e-2) -> Built:
    """Two layers of attention return the neighbour of the only, first or last copy of the last letter, within eps.

    Source: Jobanputra et al. 2025 (Born a Transformer) for the circuits; the weights and the bound are derived here.
    Departs: at a bounded length the last copy is as easy as the first; both need B to grow with the length.

    >>> built = neighbour(Neighbour("left", "last", letters=4, length=12), eps=0.01)
    >>> built.check().holds
    True
    """
    content_weight(task, eps)  # refuses what eps may not be
    target = 0.999 * eps
    B, c = content_weight(task, target)
    rounding = 8 * task.length * (B + c * task.length + 8) * 2.0**-53
    why = "others lose whole multiples of c: at most e^-c of the attention" if c else "length e^-B of the attention"
    terms = (
        Term("wrong places", target, why),
        Term("rounding", rounding, "of logits up to B + c length, their softmax and a mean, in float64"),
    )
    certificate = Certificate(terms, SOURCE, (task.domain, f"length {task.length}"))
    if certificate.error > eps:
        raise ValueError(f"eps {eps:g} is below what float64 can certify here: {rounding:.2g} is rounding")
    net = NeighbourCircuit(CircuitShape(task.side, task.which, task.letters, B, c))
    return Built(net, task, certificate, Drawn(task), on_samples(FarEnd(task)))


def planted(task: Neighbour, count: int = 16) -> Float[Tensor, "count length token_dim"]:
    """Contexts that random samples do not show: every copy of the query at the far end, last for First, first for Last.

    The letters in between are one letter, so that they agree against the right one.
    """
    letters = torch.empty(count, task.length, dtype=torch.int64)
    for row in range(count):
        query, other = row % task.letters, (row + 1) % task.letters
        answer = (row + 2) % task.letters
        if task.letters == 2:  # the query may stand once only
            answer = other if task.which == "only" else query
        letters[row] = torch.tensor(_far_line(task, query, other, answer))
    return torch.nn.functional.one_hot(letters, task.letters).double()


def _far_line(task: Neighbour, query: int, other: int, answer: int) -> list[int]:
    n = task.length - 1
    beside = [query, answer] if task.side == "right" else [answer, query]
    if task.which == "only":
        return [*[other] * (n - 2), *beside, query]
    if task.which == "first":
        more = [other, query] if task.side == "right" else [query]
        tail = [*beside, *more]
        return [*[other] * (n - len(tail)), *tail, query]
    head = [query, *beside]
    return [*head, *[other] * (n - len(head)), query]


@dataclass(frozen=True)
class FarEnd:
    """The planted contexts of `planted`."""

    task: Neighbour
    name: str = "all copies at the far end"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        return planted(self.task)
