"""The second largest in one layer: two gated heads for each bit of the position."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.certificates.arithmetic import smallest, up
from headcount.certificates.attack import Trial
from headcount.certificates.attempts import in_box
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.deep_rounding import rounding_through
from headcount.certificates.domains import Box
from headcount.certificates.excess import gibbs_excess
from headcount.certificates.network import ClassTokenNet
from headcount.certificates.relu import Hinges
from headcount.certificates.replanning import with_rounding
from headcount.certificates.wiring import Hidden, Layout, composed, wire
from headcount.papers.head_count.networks.assembling import assembled
from headcount.sources import Checked, Source, implements
from headcount.tasks.ranks import KthLargest

SOURCE = Source("headcount", "k-th largest in one layer by gated heads")
ANY_LAYER = Source("yu2026infoflow", "Theorem 2 (k-th largest), for any single layer")
GATE = 2.0


@implements(
    ANY_LAYER,
    test="tests/test_infoflow_ranks.py::test_gated_heads_keep_their_certificate_and_come_near_it",
    status="refuted here",
    hypotheses=(Checked("position features"),),
)
@implements(
    SOURCE,
    test="tests/test_infoflow_ranks.py::test_gated_heads_keep_their_certificate_and_come_near_it",
    status="proved here",
    hypotheses=(
        Checked("rank 2"),
        Checked("eps in (0, 1]"),
        "tokens in [0, 1]",
    ),
)
def gated_second_largest(task: KthLargest, eps: float = 0.05) -> Built:
    """One layer of 2 ceil(log2 T) heads finds the second largest within eps; no layer more, no eps in the size.

    Head (b, v) takes the largest token among the positions whose b-th bit is v: score x_t - 2 [bit_b(t) != v]. The
    second largest is max_b min(head (b, 0), head (b, 1)), since two positions differ in some bit, and no two maxima of
    disjoint sets both exceed it. The read-out is that formula, exact in ReLU.
    Departs: "any single layer is costly for the k-th largest" holds only for few heads.
    """
    if task.rank != 2:
        raise ValueError(f"the gated layer finds the second largest; rank is {task.rank}")
    if task.length < 2:
        raise ValueError(f"a second largest needs at least 2 tokens, got length {task.length}")
    if not (math.isfinite(eps) and 0 < eps <= 1):
        raise ValueError(f"eps must lie in (0, 1], got {eps}")
    bits = (task.length - 1).bit_length()

    def planned(budget: float) -> tuple[tuple[ClassTokenNet, float], Certificate]:
        beta = smallest(lambda beta: beta > 1e-9 and sum(_parts(task.length, bits, beta)) <= budget, start=1 / budget)
        net = _assemble(task.length, bits, beta)
        soft, outside = _parts(task.length, bits, beta)
        terms = (
            Term("softmax", up(soft), f"W(m/e)/beta with m < 2^{bits - 1} competitors, beta = {beta:.6g}"),
            Term("mass outside", up(outside), "gate 2 against values in [0, 1]: T exp(-beta)"),
            Term("rounding", rounding_through(net, 1.0, task.length), "forward error analysis of float64"),
        )
        hypotheses = ("tokens in [0, 1]", f"length {task.length}", f"{2 * bits} heads, one layer")
        return (net, beta), Certificate(terms, SOURCE, hypotheses)

    (net, beta), certificate = with_rounding(eps, planned, first=0.01)
    return Built(net, task, certificate, Box(task.length, 1, 0.0, 1.0), in_box(SplitTies(beta)))


def _parts(length: int, bits: int, beta: float) -> tuple[float, float]:
    competitors = 2 ** (bits - 1) - 1
    return gibbs_excess(competitors, beta).value if competitors else 0.0, length * math.exp(-beta * (GATE - 1))


def _assemble(length: int, bits: int, beta: float) -> ClassTokenNet:
    at = Layout(x=1, one=1, bit=bits, found=2 * bits)
    encoder = Hidden(2, at.size)
    encoder.unit({0: 1.0}, 0.0, {at["x"][0]: 1.0})
    encoder.constant({at["one"][0]: 1.0})
    for b, place in enumerate(at["bit"]):
        encoder.hinges({1: 1.0}, _bit(b, length), {place: 1.0})
    (x,), (one,) = at["x"], at["one"]
    net = assembled(encoder, ((2 * bits, 1),), (beta,), _read_out(at, bits), asks={one: 1.0})
    for b, bit in enumerate(at["bit"]):
        for v in (0, 1):
            # Off the wanted bit: -2 bit for v = 0, and -2 (1 - bit) for v = 1.
            key = {x: 1.0, bit: -GATE if v == 0 else GATE, one: 0.0 if v == 0 else -GATE}
            found = at["found"][2 * b + v]
            wire(net.attention[0], 2 * b + v, query=[{one: 1.0}], key=[key], value=[{x: 1.0}], out=[{found: 1.0}])
    return net


def _bit(b: int, length: int) -> Hinges:
    """Bit b of t - 1, linear between whole numbers t = 1..T."""
    values = torch.tensor([(t >> b) & 1 for t in range(length)], dtype=torch.float64)
    slopes = values.diff()
    knots = torch.arange(1, length, dtype=torch.float64)
    return Hinges(knots, torch.cat([slopes[:1], slopes.diff()]), float(values[0]))


def _read_out(at: Layout, bits: int) -> list[tuple[Tensor, Tensor]]:
    """min of each pair, then the largest by halving; all numbers are means of values in [0, 1], so relu passes them."""
    least = Hidden(at.size, bits)
    for b in range(bits):
        low, high = at["found"][2 * b], at["found"][2 * b + 1]
        least.unit({low: 1.0}, 0.0, {b: 1.0})
        least.unit({low: 1.0, high: -1.0}, 0.0, {b: -1.0})
    parts, count = [least], bits
    while count > 1:
        half = Hidden(count, (count + 1) // 2)
        for i in range(count // 2):
            half.unit({2 * i: 1.0}, 0.0, {i: 1.0})
            half.unit({2 * i: -1.0, 2 * i + 1: 1.0}, 0.0, {i: 1.0})
        if count % 2:
            half.unit({count - 1: 1.0}, 0.0, {count // 2: 1.0})
        parts.append(half)
        count = (count + 1) // 2
    return composed(*parts)


@dataclass(frozen=True)
class SplitTies:
    """A leader, a second far from it, and all others tied a little below the second: all heads at their softest."""

    beta: float
    count: int = 128
    name: str = "a second barely ahead"

    def __call__(
        self, trial: Trial, worst: Float[Tensor, "few length token_dim"], generator: torch.Generator
    ) -> Float[Tensor, "batch length token_dim"]:
        T = trial.domain.length
        step = 10.0 ** torch.linspace(-1.0, 2.0, self.count, dtype=torch.float64) / self.beta
        x = torch.full((self.count, T, 1), 0.5, dtype=torch.float64) - step[:, None, None]
        x[:, 0] = 0.9
        second = torch.randint(1, T, (self.count,), generator=generator)
        x[torch.arange(self.count), second] = 0.5
        return trial.domain.project(x)
