"""Theorem 2(1) as a program: one head of dimension 2 for each retrieval, and a certificate of the error."""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.certificates.arithmetic import up
from headcount.certificates.attempts import in_box
from headcount.certificates.built import Built
from headcount.certificates.certificate import Certificate, Term
from headcount.certificates.network import ClassTokenNet
from headcount.certificates.replanning import with_rounding
from headcount.certificates.rounding import rounding_error
from headcount.nets.transformer import Attention
from headcount.numerals import counted
from headcount.papers.head_count.networks.assembling import assembled
from headcount.papers.head_count.networks.choices import GATE, Choices, plan_for
from headcount.papers.head_count.networks.gates import gate_places, gate_steps
from headcount.papers.head_count.networks.minima import minima_of
from headcount.papers.head_count.networks.worst_inputs import BetterOutside, WorstTies
from headcount.refusals import positive
from headcount.sources import Checked, Source, implements
from headcount.tasks import Task

SOURCE = Source("yu2025heads", "Theorem 2(1)")


@implements(
    SOURCE,
    test="tests/test_head_count_enough_heads.py::test_the_worst_gap_is_below_and_near_the_certificate",
    status="proved here",
    hypotheses=(
        Checked("a task of wells or of linear maxima"),
        Checked("a gate above the spread"),
        "tokens in the box of the certificate",
    ),
)
def enough_heads(task: Task, eps: float = 1e-3, *, radius: float | None = None, gate: float = GATE) -> Built:
    """D heads of dimension 2 reach any eps, with eps^(-1/2) feed-forward parameters whatever the length.

    Head i scores a token by -Psi_i(x_t) - gate [t outside S_i] and averages Psi_i; the read-out is F_0 on the D
    averages. Psi_i and F_0 are piecewise linear; beta is the smallest that the sharp Gibbs excess allows.
    Source: Yu et al. 2025 (heads), Theorem 2(1).
    Departs: gate 2 for 1 (the printed proof fails at 1), W(m/e)/beta for m/(e beta), and the error is split as
    |Phi(z~) - F_0(z~)| + |F_0(z~) - F_0(z)|, which needs no Lipschitz bound of Phi.
    """
    positive(eps=eps)
    minima = minima_of(task, radius)

    def planned(budget: float) -> tuple[tuple[Choices, ClassTokenNet], Certificate]:
        plan = plan_for(minima, eps, budget, gate)
        net = assemble(plan)
        return (plan, net), Certificate(_terms(plan, net), SOURCE, _hypotheses(plan))

    (plan, net), certificate = with_rounding(eps, planned)
    ties = WorstTies(minima.slopes, minima.curve, minima.lowest, minima.windows, plan.beta)
    outside = BetterOutside(minima.lowest, minima.highest, minima.windows)
    return Built(net, task, certificate, minima.box, in_box(ties, outside))


def assemble(plan: Choices) -> ClassTokenNet:
    """The network of a plan, with no promise made."""
    D = plan.minima.count
    net = assembled(_encoder(plan), ((D, 2),), (plan.beta,), _read_out(plan))
    _wire(net, D)
    return net


@torch.no_grad()
def _wire(net: ClassTokenNet, D: int) -> None:
    """Head i reads block i = (Psi_i, gate_i) and asks (-1, 1), which it finds in the class token's gate coordinate."""
    (attention,) = net.attention
    assert isinstance(attention, Attention)
    net.cls[1::2] = 1.0
    for i in range(D):
        psi, gate = 2 * i, 2 * i + 1
        attention.query[i, 0, gate], attention.query[i, 1, gate] = -1.0, 1.0
        for p in (attention.key[i], attention.value[i], attention.output[i].T):
            p[0, psi], p[1, gate] = 1.0, 1.0


def _encoder(plan: Choices) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Hidden units: relu(x_j - knot) for every coordinate, then relu(t - p) around every window boundary."""
    minima, box = plan.minima, plan.minima.box
    places = gate_places(minima)
    N, d, D = plan.pieces, box.token_dim, minima.count
    knots, weights, offset = plan.features()
    inner = torch.zeros(d * N + len(places), d + 1, dtype=torch.float64)
    inner[: d * N, :d] = torch.eye(d).repeat_interleave(N, 0)
    inner[d * N :, d] = 1.0
    bias_in = -torch.cat([knots.repeat(d), torch.tensor(places, dtype=torch.float64)])
    outer, bias_out = torch.zeros(2 * D, len(inner), dtype=torch.float64), torch.zeros(2 * D, dtype=torch.float64)
    outer[::2, : d * N] = weights
    bias_out[::2] = offset
    start, steps = gate_steps(minima, places)
    bias_out[1::2], outer[1::2, d * N :] = -plan.gate * start, -plan.gate * steps
    return (inner, bias_in), (outer, bias_out)


def _read_out(plan: Choices) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """F_0 on the averages; the gate coordinates are not read."""
    D = plan.minima.count
    return plan.read_out(torch.eye(2 * D, dtype=torch.float64)[::2], torch.zeros(D, dtype=torch.float64))


def _terms(plan: Choices, net: ClassTokenNet) -> tuple[Term, ...]:
    box = plan.minima.box
    largest = max(abs(box.low), abs(box.high))
    encoded, spread = max(*plan.spreads, plan.gate), max(plan.spreads) + plan.gate
    rounding = rounding_error(net, largest, box.length, encoded=encoded, spread=spread, leak=plan.leak)
    return (
        Term(
            "features",
            up(plan.features_term()),
            f"squares on {plan.pieces} pieces: h^2/8 each" if plan.minima.curve else "linear features are exact",
        ),
        Term("softmax excess", up(plan.softmax_term()), f"W(m/e)/beta each, beta = {plan.beta:.6g}"),
        Term(
            "mass outside the window",
            up(plan.outside_term()),
            f"gate {plan.gate:g}: (T/|S|-1) e^(-beta (gate-1))",
        ),
        Term("outer function", up(plan.outer_term()), f"ridges on {sum(plan.ridge_pieces)} pieces: |g''| h^2/8"),
        Term("rounding", rounding, "float64, forward error analysis"),
    )


def _hypotheses(plan: Choices) -> tuple[str, ...]:
    minima = plan.minima
    return (
        str(minima.box),
        f"length {minima.length}",
        f"{counted(minima.count, 'retrieval')}, {counted(minima.count, 'head')} of dimension 2",
        "float64 arithmetic",
    )
