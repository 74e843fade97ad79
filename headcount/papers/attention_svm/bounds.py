"""When every choice of tokens can be separated: a dimension that suffices. No torch."""

from __future__ import annotations

from headcount.refusals import at_least_one
from headcount.results import Bound
from headcount.sources import Source, implements


@implements(
    Source("tarzanagh2023svm", "over-parameterisation gives feasibility"),
    test="tests/test_attention_svm_margins.py::test_the_sufficient_dimension_suffices_and_is_far_from_needed",
    status="proved here",
    hypotheses=("tokens and queries in general position",),
)
def selection_feasible_from(sequences: int, length: int) -> Bound:
    """A token dimension from which any choice of one token per sequence can be separated, for generic data.

    d = max(T - 1, n): T - 1 independent differences allow a q_i with all margins 1, and n independent queries allow
    one W with W z_i = q_i for all i. Sufficient only: far smaller d do in practice (`feasible_share`).

    >>> selection_feasible_from(sequences=6, length=8).value
    7
    """
    at_least_one(sequences=sequences, length=length)
    return Bound(
        "token dimension from which the max-margin problem is feasible",
        max(length - 1, sequences),
        "upper",
        Source("tarzanagh2023svm", "over-parameterisation gives feasibility"),
        hypotheses=("tokens and queries in general position",),
        sizes={"sequences": sequences, "length": length},
    )
