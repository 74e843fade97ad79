"""A feed-forward with bounded weights cannot be steep and small."""

from __future__ import annotations

import math

from headcount.refusals import at_least_one, not_negative, positive
from headcount.results import Bound, Hypothesis
from headcount.sources import Checked, Source, implements

# The slope of z Phi(z) is Phi(z) + z phi(z), largest at z = sqrt(2).
GELU_SLOPE = 0.5 * (1 + math.erf(1.0)) + math.sqrt(2) * math.exp(-1.0) / math.sqrt(2 * math.pi)

STEEPNESS = Source("yu2025heads", "Lemma 4")


@implements(
    STEEPNESS,
    test="tests/test_head_count_steepness.py::test_a_network_that_attains_the_width_exists",
    status="proved in the paper",
    hypotheses=(
        Checked("distances positive and finite"),
        "two layers",
        "an activation of bounded slope",
        "all weights at most 1 in magnitude",
    ),
)
def steepness_width(output_gap: float, input_distance: float, embed_dim: int, slope: float = 1.0) -> Bound:
    """A two-layer feed-forward with weights at most 1, outputs B apart on inputs A apart, has width B/(A L sqrt E).

    |V s(Ux + b) - V s(Uy + b)| <= L sum_p |<U_p, x - y>| <= L width |x - y|_1 <= L width sqrt(E) |x - y|_2 for an
    activation s of slope at most L. Equality: every U_p the signs of x - y, every V_p = 1, s(z) = L z.
    Source: Yu et al. 2025 (heads), Lemma 4, with L = 1. Departs: any L, for GELU rises by up to 1.13 (`GELU_SLOPE`).

    >>> steepness_width(1.0, 1e-3, 4).value
    500.0
    """
    at_least_one(embed_dim=embed_dim)
    not_negative(output_gap=output_gap)
    positive(input_distance=input_distance)
    positive(slope=slope)
    value = output_gap / (slope * input_distance * math.sqrt(embed_dim))
    hypotheses = (
        Hypothesis("two layers", short="a read-out of two layers"),
        Hypothesis(f"an activation of slope at most {slope:.4g}", short=f"slopes at most {slope:.4g}"),
        Hypothesis("all weights at most 1 in magnitude", short="weights at most 1"),
    )
    meaning = f"no such feed-forward with fewer than {math.ceil(value)} hidden units tells the two inputs apart"
    sizes = {"output_gap": output_gap, "input_distance": input_distance, "embed_dim": embed_dim, "slope": slope}
    return Bound("width", value, "lower", STEEPNESS, hypotheses, value <= 1, meaning, sizes)
