"""How much weight a window's gate leaves outside it."""

from __future__ import annotations

import math

from headcount.refusals import at_least, at_least_one, positive
from headcount.results import Bound
from headcount.sources import Checked, Source, implements

OUTSIDE = Source("headcount", "repaired gate (Theorem 2(1) of Yu et al. 2025)")
PRINTED = Source("yu2025heads", "Theorem 2(1), the printed gate of 1")


@implements(
    PRINTED,
    test="tests/test_head_count_gate.py::test_the_printed_gate_breaks_its_promise_at_every_beta",
    status="refuted here",
    hypotheses=(Checked("a gate above the spread, which 1 is not"),),
)
@implements(
    OUTSIDE,
    test="tests/test_head_count_gate.py::test_the_repaired_gate_keeps_its_promise",
    status="proved here",
    hypotheses=(
        Checked("beta > 0 and spread > 0"),
        Checked("a window that is not empty"),
        "a feature whose range is at most the spread",
    ),
)
def mass_outside(inside: int, outside: int, *, beta: float, gate: float, spread: float = 1.0) -> Bound:
    """Tokens outside a window get at most r/(1 + r) of the weight, r = (outside/inside) exp(-beta (gate - spread)).

    `spread` is the range of the feature. The worst input has the whole window at the top of the range and all else
    at the bottom: it attains the bound.
    Departs: the paper's gate of 1 equals the spread, so r never falls below outside/inside, whatever beta (its
    proof overlooks this input); a gate of 2 repairs it.

    >>> mass_outside(16, 48, beta=1e6, gate=1.0).value, mass_outside(16, 48, beta=100.0, gate=2.0).value < 1e-42
    (0.75, True)
    """
    at_least_one(inside=inside)
    at_least(0, outside=outside)
    positive(beta=beta, spread=spread, gate=gate)
    # sum over the window >= inside e^{-beta spread}, sum over the rest <= outside e^{-beta gate}
    ratio = outside / inside * math.exp(min(700.0, -beta * (gate - spread)))
    weak = outside > 0 and gate <= spread
    meaning = "a gate no stronger than the spread of the feature keeps nothing out at any beta" if weak else ""
    sizes = {"inside": inside, "outside": outside, "beta": beta, "gate": gate, "spread": spread}
    return Bound("weight outside the window", ratio / (1 + ratio), "exact", OUTSIDE, (), weak, meaning, sizes)
