"""The error of reading lagged tokens with few heads of small dimension: Equation 3, term by term. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from headcount.numerals import listed
from headcount.refusals import at_least, at_least_one, not_negative
from headcount.results import Bound, Hypothesis
from headcount.sources import Checked, Source, implements

# One lag is synthesised from H heads of exponential decay. The l1 distance of an H-term exponential sum from the
# indicator of lag m is at most C(n) e^{0.01 (n+1) m} / H^n; the paper takes n = 1 with C(1) = 1.3.
SYNTHESIS_SCALE = 1.3
SYNTHESIS_RATE = 0.02
BOUNDED_TOKENS = Hypothesis("tokens bounded, targets a sum of lagged tokens", short="bounded tokens")
MEAN = Hypothesis(
    "the heads of a lag share one subspace, and tokens are as long in every direction",
    short="one subspace per lag, tokens alike in all directions",
)


def compression(head_dim: int, token_dim: int) -> float:
    """What is lost of a unit token in a random head_dim-dimensional subspace: sqrt(1 - head_dim / token_dim).

    A random projection P of that rank leaves E |(I - P) x|^2 = (1 - head_dim / token_dim) |x|^2.

    >>> compression(3, 4)
    0.5
    >>> compression(9, 4)
    0.0
    """
    at_least_one(head_dim=head_dim, token_dim=token_dim)
    return math.sqrt(1 - head_dim / token_dim) if head_dim <= token_dim else 0.0


def synthesis(lag: int, heads: int) -> float:
    """What is lost by attending to one lag with `heads` exponentially decaying heads: 1.3 e^(0.02 lag) / heads.

    >>> round(synthesis(1, 8), 4)
    0.1658
    """
    at_least_one(lag=lag, heads=heads)
    return SYNTHESIS_SCALE * math.exp(SYNTHESIS_RATE * lag) / heads


def starved_lags(heads: Sequence[int]) -> tuple[int, ...]:
    """The lags m that keep some heads but fewer than m + 1, where `synthesis` promises what no weights reach.

    With H <= m real decays the best exponential sum stays at l1 distance 1 from the indicator of lag m, however
    small the promise; from H = m + 1 on it is far below the promise (`exponential_sum_error` finds both).

    >>> starved_lags([2, 2, 8])
    (2,)
    """
    return tuple(m for m, h in enumerate(heads, start=1) if 0 < h < m + 1)


@implements(
    Source("yu2025allocation", "Equation 3"),
    test="tests/test_allocation_bound.py::test_equation_three_gives_the_published_values",
    status="derived",
    hypotheses=(
        Checked("lag m has m + 1 heads or more"),
        "tokens bounded, targets a sum of lagged tokens",
        "where head_dim < token_dim: heads of a lag that share one subspace, tokens as long in every direction",
    ),
)
def extraction_error(
    weights: Sequence[float],
    heads: Sequence[int],
    head_dims: Sequence[int],
    token_dim: int,
    *,
    eps_delta: float = 0.0,
) -> Bound:
    """Error of one layer that reads lag m with heads[m-1] heads of dimension head_dims[m-1].

    sum_m w_m ((1 + eps_delta) sqrt(1 - n_m / d) [n_m <= d] + 1.3 e^(0.02 m) / H_m) + sum over dropped lags of w_m,
    where w_m = |rho_m| B is the weight of lag m times the bound on a token, and a lag without heads is dropped.
    Source: Yu et al. 2025 (allocation), Equation 3. Where n_m < d it is no worst case: a token that the subspace of a
    lag does not hold is lost whole. sqrt(1 - n/d) is the root mean square over tokens alike in every direction (or over
    a random subspace), when the heads of a lag share their subspace; otherwise their large coefficients of opposite
    sign do not cancel on what one of them misses.
    Departs: any lag may be dropped, not only the last ones; lags with fewer than m + 1 heads are named as a
    violated hypothesis and the bound says nothing, since there the published synthesis term is below what any weights
    reach.

    >>> print(extraction_error([1, 1, 1, 1], heads=[8] * 4, head_dims=[8] * 4, token_dim=8))
    worst-case extraction error <= 0.683498, by Equation 3 of ... (allocation), if tokens bounded, targets a sum of ...
    """
    if not len(weights) == len(heads) == len(head_dims):
        raise ValueError(
            f"weights, heads and head_dims need one entry per lag, got {len(weights)}, {len(heads)}, {len(head_dims)}"
        )
    check_sizes(weights, token_dim)
    at_least(0, **{f"heads of lag {m}": h for m, h in enumerate(heads, start=1)})
    at_least(0, **{f"head_dim of lag {m}": n for m, n in enumerate(head_dims, start=1)})
    not_negative(eps_delta=eps_delta)
    lost = read = dropped = 0.0
    for lag, (w, h, n) in enumerate(zip(weights, heads, head_dims, strict=True), start=1):
        if h > 0 and n > 0:
            lost += w * (1 + eps_delta) * compression(n, token_dim)
            read += w * synthesis(lag, h)
        else:
            dropped += w
    starved = starved_lags(heads)
    fails = tuple(f"violated: lag {m} has {heads[m - 1]} heads and needs {m + 1}" for m in starved)
    mean = () if lost == 0 else (MEAN,)
    kind = "root mean square" if mean else "worst-case"
    return Bound(
        f"{kind} extraction error",
        lost + read + dropped,
        "upper",
        Source("yu2025allocation", "Equation 3"),
        hypotheses=(BOUNDED_TOKENS, *mean, *fails),
        vacuous=bool(starved),
        meaning=_meaning(kind, starved),
        sizes={"compression": lost, "synthesis": read, "memory": dropped, "starved_lags": list(starved)},
    )


def _meaning(kind: str, starved: tuple[int, ...]) -> str:
    if not starved:
        return f"{kind} error of one attention layer that reads lagged tokens"
    one = len(starved) == 1
    return f"lag{'' if one else 's'} {listed(starved)} {'has' if one else 'have'} too few heads for the bound"


def trade_off(budget: int, token_dim: int, heads: Sequence[int], *, weight: float = 1.0, lag: int = 1) -> list[float]:
    """The error of one lag when `budget` dimensions are divided over ever more heads, dimension budget / heads.

    Source: Yu et al. 2025 (allocation), the curve E_128 of Figure 2 (budget 128, token_dim 16).

    >>> [round(e, 3) for e in trade_off(128, 16, [1, 2, 4, 8, 9, 10])]
    [1.326, 0.663, 0.332, 0.166, 0.481, 0.58]
    """
    check_sizes([weight], token_dim)
    at_least_one(budget=budget, lag=lag)
    for h in heads:
        at_least_one(**{"every number of heads": h})
    lost = (math.sqrt(max(0.0, 1 - budget / h / token_dim)) for h in heads)
    return [weight * (gone + synthesis(lag, h)) for gone, h in zip(lost, heads, strict=True)]


def exponential_sum_error(lag: int, decays: Sequence[float], length: int = 60) -> float:
    """The least l1 distance of a combination of exp(-decay t), t = 0, 1, ..., from the indicator of `lag`.

    A linear program over the coefficients: min sum_t r_t with -r <= A c - e_lag <= r. `length` terms are summed.

    >>> round(exponential_sum_error(1, [0.5]), 3)
    1.0
    """
    from scipy.optimize import linprog

    at_least(0, lag=lag)
    at_least_one(length=length)
    t = np.arange(length)
    atoms = np.exp(-np.outer(t, np.asarray(decays, dtype=float)))
    wanted = (t == lag).astype(float)
    count = atoms.shape[1]
    cost = np.concatenate([np.zeros(count), np.ones(length)])
    sides = np.block([[atoms, -np.eye(length)], [-atoms, -np.eye(length)]])
    bounds = [(None, None)] * count + [(0, None)] * length
    solution = linprog(cost, A_ub=sides, b_ub=np.concatenate([wanted, -wanted]), bounds=bounds, method="highs")
    if solution.status != 0:
        raise ValueError(f"the linear program for lag {lag} and decays {list(decays)} failed: {solution.message}")
    return float(solution.fun)


def check_sizes(weights: Sequence[float], token_dim: int) -> None:
    at_least_one(token_dim=token_dim)
    if not len(weights):
        raise ValueError("weights is empty: give the size |rho_m| of at least one lag")
    bad = [w for w in weights if not (isinstance(w, Real) and math.isfinite(w) and w >= 0)]
    if bad:
        raise ValueError(f"weights must be finite and not negative, got {bad[0]}")
