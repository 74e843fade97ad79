"""Three retrievals per head without positions: what a token has found rides along when the class token fetches it."""

from __future__ import annotations

import numpy as np

from headcount.certificates.arithmetic import up
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
from headcount.papers.infoflow.networks.positions import LeadBy
from headcount.refusals import positive
from headcount.sources import Checked, Source, implements
from headcount.tasks.linear_max import LinearMax

SOURCE = Source("headcount", "(2L - 1) h retrievals without positions")
CONJECTURE = Source("yu2025heads", "Conjecture 1 (L h >= D, without positions)")


@implements(
    CONJECTURE,
    test="tests/test_infoflow_carried.py::test_two_layers_of_one_head_solve_three_retrievals_without_positions",
    status="refuted here",
    hypotheses=("a class token that attends in every layer, and a residual",),
)
@implements(
    SOURCE,
    test="tests/test_infoflow_carried.py::test_two_layers_of_one_head_solve_three_retrievals_without_positions",
    status="proved here",
    hypotheses=(
        Checked("at most 3 h retrievals"),
        "a class token that attends in every layer",
        "tokens in the box of the certificate",
    ),
)
def carried_retrievals(
    task: LinearMax, eps: float = 0.05, *, heads: int | None = None, radius: float | None = None
) -> Built:
    """Two layers of h heads solve 3 h retrievals within eps, without positions: more than the L h of Conjecture 1.

    Layer 1, head j, keys (f_j, f_{h+j}): the class token asks for the first and keeps max f_j; every token asks for the
    second and keeps max f_{h+j}, all the same number. Layer 2, head j, key f_{2h+j}: whichever token wins, it brings
    max f_{2h+j} and, riding along, the max f_{h+j} that every token holds. With L layers (2L - 1) h.
    Source: Yu et al. 2025 (heads), Conjecture 1, says that L h >= D is required.
    Departs: a counterexample for L = 2 and L h < D <= 3 h; it uses the class token's own query and the residual.
    """
    D = len(task.directions)
    heads = -(-D // 3) if heads is None else heads
    if not 1 <= D <= 3 * heads:
        raise ValueError(f"two layers of {heads} heads carry 3 x {heads} retrievals, and the task has {D}")
    radius = radius_for(task.length * task.token_dim) if radius is None else radius
    positive(eps=eps, radius=radius)
    box = Box(task.length, task.token_dim, -radius, radius)
    strengths = [radius * sum(map(abs, a)) for a in task.directions]
    excess = D * gibbs_excess(max(1, task.length - 1), 1.0).value

    def planned(budget: float) -> tuple[tuple[ClassTokenNet, float], Certificate]:
        beta = excess / budget
        net = _assemble(task, heads, beta)
        why = f"W((T-1)/e)/beta a retrieval, beta = {beta:.6g}; tokens that found the same average to it"
        rounding = rounding_through(net, radius, task.length, sizes=_sizes(strengths))
        terms = (
            Term("softmax", up(excess / beta), why),
            Term("rounding", rounding, "forward error analysis of float64"),
        )
        return (net, beta), Certificate(terms, SOURCE, (str(box), f"length {task.length}", "no positions"))

    (net, beta), certificate = with_rounding(eps, planned, first=0.02)
    return Built(net, task, certificate, box, in_box(LeadBy(task.directions, beta)))


def _sizes(strengths: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """A token's state at most: the features, the two marks, what it found, and the class token's own places."""
    start = [*strengths, 1.0, 1.0]
    zero = [0.0] * len(strengths)
    return np.array(start + zero + zero), np.array(start + strengths + zero)


def _assemble(task: LinearMax, heads: int, beta: float) -> ClassTokenNet:
    D, d = len(task.directions), task.token_dim
    at = Layout(f=D, token=1, cls=1, found=D, fetched=D)
    encoder, between, read_out = Hidden(d + 1, at.size), Hidden(at.size, at.size), Hidden(at.size, 1)
    for i, a in enumerate(task.directions):
        encoder.linear(dict(enumerate(a)), {at["f"][i]: 1.0})
    encoder.constant({at["token"][0]: 1.0})
    between.unit({at["token"][0]: 0.0}, 0.0, {at["token"][0]: 0.0})  # nothing is left to do between the layers
    own = {at["found"][i]: 1.0 for i in range(min(heads, D))}
    read_out.linear({**own, **{at["fetched"][i]: 1.0 for i in range(heads, D)}}, {0: 1.0})
    net = assembled(encoder, ((heads, 2),) * 2, (beta, beta), read_out, between, asks={at["cls"][0]: 1.0})
    _wire(net, at, heads, D)
    return net


def _wire(net: ClassTokenNet, at: Layout, heads: int, D: int) -> None:
    f, found, fetched, queries = at["f"], at["found"], at["fetched"], ({at["cls"][0]: 1.0}, {at["token"][0]: 1.0})
    for j in range(heads):
        first = [(i, query) for i, query in zip((j, heads + j), queries, strict=True) if i < D]
        keys = [{f[i]: 1.0} for i, _ in first]
        wire(
            net.attention[0],
            j,
            query=[q for _, q in first],
            key=keys,
            value=keys,
            out=[{found[i]: 1.0} for i, _ in first],
        )
        last, ride = 2 * heads + j, heads + j
        value = ([{f[last]: 1.0}] if last < D else []) + ([{found[ride]: 1.0}] if ride < D else [])
        out = [{fetched[i]: 1.0} for i in (last, ride) if i < D]
        key = [{f[last]: 1.0}] if last < D else []
        wire(net.attention[1], j, query=[queries[0]] if key else [], key=key, value=value, out=out)
