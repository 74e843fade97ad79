"""Two rates side by side: the claimed one of attention, and the best that any estimator has with noise. No torch."""

from __future__ import annotations

from headcount.refusals import at_least_one
from headcount.results import Bound
from headcount.sources import Source, implements


@implements(
    Source("ghosh2025consistent", "the rate of consistency"),
    test="tests/test_consistency_rates.py::test_the_claim_is_impossible_at_one_dimension_sharp_at_two_and_loose_beyond",
    status="conjectured",
    hypotheses=(
        "claimed, without a proof here",
        "error: root mean square over new points, Lipschitz f, noise: our reading, the theorem could not be seen",
    ),
)
def consistency_rate(token_dim: int) -> Bound:
    """The claimed decay of the error in the number of labelled tokens, at least t^(-1/(2d)).

    Source: Ghosh et al. 2025 (consistency), abstract.
    Departs: at d = 1 with noise no estimator has it uniformly over Lipschitz functions; see `lipschitz_rate`.

    >>> [round(consistency_rate(d).value, 3) for d in (1, 2, 3, 4)]
    [0.5, 0.25, 0.167, 0.125]
    """
    at_least_one(token_dim=token_dim)
    source = Source("ghosh2025consistent", "the rate of consistency")
    return Bound(
        "decay exponent",
        1 / (2 * token_dim),
        "lower",
        source,
        ("claimed, without a proof here",),
        sizes={"token_dim": token_dim},
    )


@implements(
    Source("headcount", "the minimax rate of Lipschitz regression, for Ghosh et al. 2025"),
    test="tests/test_consistency_rates.py::test_the_claim_is_impossible_at_one_dimension_sharp_at_two_and_loose_beyond",
    status="derived",
    hypotheses=("labels with noise", "uniformly over Lipschitz functions, never for one function"),
)
def lipschitz_rate(token_dim: int) -> Bound:
    """The fastest decay with noisy labels uniformly over Lipschitz functions, t^(-1/(d+2)) in root mean square.

    >>> [round(lipschitz_rate(d).value, 3) for d in (1, 2, 3, 4)]
    [0.333, 0.25, 0.2, 0.167]
    """
    at_least_one(token_dim=token_dim)
    source = Source("headcount", "the minimax rate of Lipschitz regression, for Ghosh et al. 2025")
    assumptions = ("labels with noise", "uniformly over Lipschitz functions")
    return Bound("decay exponent", 1 / (token_dim + 2), "upper", source, assumptions, sizes={"token_dim": token_dim})


def spacing_rate(token_dim: int) -> float:
    """The decay without noise, that of the distance to the nearest of t points: t^(-1/d).

    >>> spacing_rate(4)
    0.25
    """
    at_least_one(token_dim=token_dim)
    return 1 / token_dim
