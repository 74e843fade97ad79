"""The induction head: look one back, then look up what followed last time. Two layers of one head."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.arithmetic import smallest, up
from headcount.certificates.attack import Trial
from headcount.certificates.attempts import on_samples
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.deep_rounding import rounding_through
from headcount.certificates.domains import Drawn
from headcount.certificates.network import ClassTokenNet
from headcount.certificates.replanning import with_rounding
from headcount.certificates.wiring import Hidden, Layout, integer_square, wire
from headcount.papers.head_count.networks.assembling import assembled
from headcount.sources import Source, implements
from headcount.tasks.places import Induction

SOURCE = Source("yu2026infoflow", "recovered results (induction heads by two layers)")


@implements(
    SOURCE,
    test="tests/test_infoflow_positions.py::test_the_induction_head_keeps_and_nears_its_certificate",
    status="proved here",
    hypotheses=("letters as one-hot tokens, the last one seen before",),
)
def induction_head(task: Induction, eps: float = 1e-2) -> Built:
    """Two layers of one head return the letter after the latest earlier copy of the last one, within eps.

    Layer 1, at the token t: score 2 s (t - 1) - s^2, largest at s = t - 1 by at least 1; it carries the letter before.
    The class token asks for s = T and so knows the last letter. Layer 2, class token: score
    <letter before s, last letter> + s/(2T) - 2 [s = 1], largest at the token after the latest copy by 1/(2T); it
    carries the number of the letter there.
    Source: Yu et al. 2026 (InfoFlow) recovers that induction heads need two layers (Sanford et al. 2024).
    """
    if not (math.isfinite(eps) and 0 < eps < 1):
        raise ValueError(f"eps must lie in (0, 1), got {eps}")
    T = task.length
    # Layer 1 puts at most 2 exp(-beta)/(1 - exp(-beta)) off its place (squared distances are at least the distance);
    # a soft match is off by at most 4 times that, which is kept below a hundredth of 1/(2T).
    beta1 = math.log(1 + 800.0 * T * 2)
    noise = 4 * 2 / math.expm1(beta1)
    apart = 1 / (2 * T) - noise

    def terms_at(beta2: float) -> tuple[float, float]:
        return 1 / math.expm1(min(700.0, beta2 * apart)), T * math.exp(-beta2 * (0.5 - noise))

    def planned(budget: float) -> tuple[ClassTokenNet, Certificate]:
        beta2 = smallest(lambda beta: beta > 1e-9 and sum(terms_at(beta)) <= budget, start=1 / apart)
        net = _assemble(task, beta1, beta2)
        matched, unmatched = terms_at(beta2)
        rounding = rounding_through(net, 1.0, T, sizes=_sizes(task))
        terms = (
            Term("earlier copies", up(matched), f"each 1/(2T) further back: 1/(exp({beta2:.4g} gap) - 1)"),
            Term("other letters", up(unmatched), "no match: at least 1/2 below, T exp(-beta/2)"),
            Term("rounding", rounding, "forward error analysis of float64"),
        )
        return net, Certificate(terms, SOURCE, ("one-hot letters whose last one occurred before", f"length {T}"))

    net, certificate = with_rounding(eps, planned, first=0.02)
    return Built(net, task, certificate, Drawn(task), on_samples(Runs()))


def _layout(task: Induction) -> Layout:
    return Layout(letter=task.vocab, s=1, square=1, ask=1, one=1, first=1, before=task.vocab, number=1, found=1)


def _sizes(task: Induction) -> tuple[np.ndarray, np.ndarray]:
    V, T = task.vocab, float(task.length)
    start = [1.0] * V + [T, T * T, 2 * T, 1.0, 1.0]
    return np.array(start + [0.0] * V + [1.0, 0.0]), np.array(start + [1.0] * V + [1.0, 0.0])


def _assemble(task: Induction, beta1: float, beta2: float) -> ClassTokenNet:
    V, T, at = task.vocab, task.length, _layout(task)
    encoder, between, read_out = _encoder(task, at), Hidden(at.size, at.size), Hidden(at.size, 1)
    between.constant({at["found"][0]: 0.0})
    between.unit({at["one"][0]: 1.0}, 0.0, {at["found"][0]: 0.0})
    read_out.unit({at["found"][0]: 1.0}, 0.0, {0: 1.0})
    (s,), (square,), (ask,), (one,), (first,) = (at[k] for k in ("s", "square", "ask", "one", "first"))
    layers, asks = ((1, max(2, V)), (1, V + 2)), {one: 1.0, ask: 2.0 * T}
    net = assembled(encoder, layers, (beta1, beta2), read_out, between, asks=asks)
    letters, before = [{i: 1.0} for i in at["letter"]], [{i: 1.0} for i in at["before"]]
    wire(net.attention[0], 0, query=[{ask: 1.0}, {one: -1.0}], key=[{s: 1.0}, {square: 1.0}], value=letters, out=before)
    wire(
        net.attention[1],
        0,
        query=[*before, {one: 1 / (2 * T)}, {one: -2.0}],
        key=[*before, {s: 1.0}, {first: 1.0}],
        value=[{at["number"][0]: 1.0}],
        out=[{at["found"][0]: 1.0}],
    )
    return net


def _encoder(task: Induction, at: Layout) -> Hidden:
    V, T = task.vocab, task.length
    encoder = Hidden(V + 1, at.size)
    for j, place in enumerate(at["letter"]):
        encoder.unit({j: 1.0}, 0.0, {place: 1.0, at["number"][0]: j / (V - 1)})
    encoder.unit({V: 1.0}, 0.0, {at["s"][0]: 1.0})
    encoder.unit({V: 1.0}, -1.0, {at["ask"][0]: 2.0})
    encoder.unit({V: -1.0}, 2.0, {at["first"][0]: 1.0})
    encoder.hinges({V: 1.0}, integer_square(0, T), {at["square"][0]: 1.0})
    encoder.constant({at["one"][0]: 1.0})
    return encoder


@dataclass(frozen=True)
class Runs:
    """Runs a...a b a: every copy but the latest answers a, the latest b. And the same with a late start."""

    count: int = 64
    name: str = "runs of one letter"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        V, T = trial.domain.token_dim, trial.domain.length
        letters = torch.zeros(self.count, T, dtype=torch.int64)
        letters[1::2] = V - 1
        other = (V - 1) * (letters[:, 0] == 0).long()
        letters[:, -2] = other
        start = torch.randint(0, T - 2, (self.count,), generator=generator)
        early = torch.arange(T)[None, :] < start[:, None] // 2
        letters = torch.where(early & (torch.arange(self.count) % 4 > 1)[:, None], other[:, None], letters)
        return torch.nn.functional.one_hot(letters, V).double()
