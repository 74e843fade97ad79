"""A feed-forward with bounded weights cannot be steep and small."""

from __future__ import annotations

import math

from headcount.refusals import at_least_one, not_negative, positive
from headcount.results import Bound
from headcount.sources import Checked, Source, implements

__all__ = ["steepness_width"]

STEEPNESS = Source("yu2025heads", "Lemma 4")


@implements(
    STEEPNESS,
    test="tests/test_head_count_steepness.py::test_a_network_that_attains_the_width_exists",
    status="proved in the paper",
    hypotheses=(
        Checked("distances positive and finite"),
        "two layers",
        "a 1-Lipschitz activation",
        "all weights at most 1 in magnitude",
    ),
)
def steepness_width(output_gap: float, input_distance: float, embed_dim: int) -> Bound:
    """A two-layer feed-forward with weights at most 1, outputs B apart on inputs A apart, has width B/(A sqrt E).

    |V s(Ux + b) - V s(Uy + b)| <= sum_p |<U_p, x - y>| <= width * |x - y|_1 <= width * sqrt(E) * |x - y|_2 for
    any 1-Lipschitz s. Equality: every U_p the signs of x - y, every V_p = 1, s the identity.
    Source: Yu et al. 2025 (heads), Lemma 4.

    >>> steepness_width(1.0, 1e-3, 4).value
    500.0
    """
    at_least_one(embed_dim=embed_dim)
    not_negative(output_gap=output_gap)
    positive(input_distance=input_distance)
    value = output_gap / (input_distance * math.sqrt(embed_dim))
    hypotheses = ("two layers", "a 1-Lipschitz activation", "all weights at most 1 in magnitude")
    meaning = f"no such feed-forward with fewer than {math.ceil(value)} hidden units tells the two inputs apart"
    sizes = {"output_gap": output_gap, "input_distance": input_distance, "embed_dim": embed_dim}
    return Bound("width", value, "lower", STEEPNESS, hypotheses, value <= 1, meaning, sizes)
