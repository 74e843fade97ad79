"""Divide a budget of heads times head_dim over lags: the closed form, and the integer optimum. No torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from headcount.files import write_json
from headcount.notebook import AnswerInNotebook
from headcount.numerals import counted
from headcount.papers.allocation.bounds import check_sizes, extraction_error, starved_lags, synthesis
from headcount.results import Bound, Claim
from headcount.sources import Checked, Source, implements

LARGEST_TABLE = 1 << 22  # budgets up to here may have a table of what every spending brings
MOST_SUMS = 400_000_000  # of the dynamic programme, a second or two; beyond, head_dim = token_dim and the gap is stated


@dataclass(frozen=True)
class Relaxed:
    """The closed form with fractional heads: H_m = N sqrt(w_m) / sum_j sqrt(w_j), head_dim = token_dim."""

    heads: tuple[float, ...]
    error: float


@dataclass(frozen=True)
class Allocation(AnswerInNotebook):
    """How many heads of which dimension read each lag; a lag with 0 heads is dropped.

    `error` is the bound at these integers, `relaxed` the closed form it is rounded from, which no integers beat.
    `exact` says whether nothing better exists; where it is not known, `gap` says by how much at most.
    """

    heads: tuple[int, ...]
    head_dims: tuple[int, ...]
    bound: Bound
    relaxed: Relaxed
    token_dim: int
    budget: int
    weights: tuple[float, ...] = field(repr=False, default=())
    exact: bool = True

    @property
    def error(self) -> float:
        """Equation 3 at these integers; a promise only where no lag is starved (`bound.vacuous`)."""
        return self.bound.value

    @property
    def gap(self) -> float:
        """The most by which another allocation of the same budget can be better: 0 where this one is exact."""
        return 0.0 if self.exact else max(0.0, self.error - self.relaxed.error)

    @property
    def lags(self) -> int:
        """The number M of lags that are kept."""
        return sum(h > 0 for h in self.heads)

    @property
    def starved(self) -> tuple[int, ...]:
        """Lags whose heads are too few for the bound to be true: fewer than lag + 1."""
        return starved_lags(self.heads)

    @property
    def spent(self) -> int:
        """Heads times head_dim, summed over lags."""
        return sum(h * n for h, n in zip(self.heads, self.head_dims, strict=True))

    @property
    def cautions(self) -> list[str]:
        """A line for each lag whose heads are too few for the bound."""
        return [
            f"careful: lag {m} has {counted(self.heads[m - 1], 'head')}; "
            f"below {m + 1} no weights reach what the bound promises"
            for m in self.starved
        ]

    @property
    def sentence(self) -> str:
        """The claim in words."""
        return str(self.claim())

    def claim(self) -> Claim:
        """The bound at these shares."""
        sizes = ", ".join(f"{h:,} x {n:,}" for h, n in zip(self.heads, self.head_dims, strict=True))
        return self.bound.claim(f"the {self.bound.quantity} with heads x head_dim of {sizes}")

    def files(self, out: Path) -> list[Path]:
        """All of it in `allocation.json`."""
        return [write_json(out / "allocation.json", self.to_json())]

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        return {
            "heads": self.heads,
            "head_dims": self.head_dims,
            "error": self.error,
            "lags": self.lags,
            "terms": self.bound.as_row(),
            "claim": self.bound.claim().to_json(),
            "closed_form_error": self.relaxed.error,
            "rows": self.rows,
        }

    @property
    def rows(self) -> list[dict[str, object]]:
        """One row a lag."""
        return [
            {"lag": m, "weight": w, "heads": h, "head_dim": n, "closed form": r, "heads it needs": h == 0 or h > m}
            for m, (w, h, n, r) in enumerate(
                zip(self.weights, self.heads, self.head_dims, self.relaxed.heads, strict=True), start=1
            )
        ]


@implements(
    Source("headcount", "closed form of the allocation problem"),
    test="tests/test_allocation_bound.py::test_the_closed_form_is_a_stationary_point_no_search_improves",
    status="proved here",
    hypotheses=(Checked("weights not negative"),),
)
def relaxed(weights: Sequence[float], token_dim: int, budget: float) -> Relaxed:
    """The minimum of Equation 5 over fractional heads: every kept lag at full token dimension.

    error(M) = (sum_{m<=M} sqrt(a_m))^2 / N + sum_{m>M} w_m,  a_m = 1.3 e^(0.02 m) w_m,  N = budget / token_dim,
    scanned over the kept lags, taken in the order of w_m / sqrt(a_m).

    >>> r = relaxed([1, 1, 1, 1], token_dim=8, budget=256)
    >>> [round(h, 2) for h in r.heads], round(r.error, 4)
    ([7.88, 7.96, 8.04, 8.12], 0.6834)
    """
    # For one lag with its own budget D_m put u = 1/H: the error sqrt(1 - (D_m/d) u) + c u is concave on
    # 0 < u <= d / D_m, so its minimum is at an end: head_dim = d, or no heads at all. With head_dim = d the sum
    # of a_m / H_m under sum H_m = N is least, by Cauchy-Schwarz, at H_m ~ sqrt(a_m), and equals (sum sqrt a)^2 / N.
    # Keeping a set K costs s^2/N - sum_K w with s = sum_K sqrt(a). Where lags may be kept in part this is convex in
    # the parts, and lag m is kept exactly when w_m / sqrt(a_m) > 2 s / N: so the kept ones are first in that order.
    check_sizes(weights, token_dim)
    total = budget / token_dim
    root = [math.sqrt(w * synthesis(m, 1)) for m, w in enumerate(weights, start=1)]
    order = sorted((m for m in range(len(weights)) if weights[m] > 0), key=lambda m: -weights[m] / root[m])
    best, kept_count = float(sum(weights)), 0
    for count in range(1, len(order) + 1):
        error = sum(root[m] for m in order[:count]) ** 2 / total + sum(weights[m] for m in order[count:])
        if error < best:
            best, kept_count = error, count
    scale = sum(root[m] for m in order[:kept_count])
    keep = set(order[:kept_count])
    return Relaxed(tuple(total * root[m] / scale if m in keep else 0.0 for m in range(len(weights))), best)


@implements(
    Source("yu2025allocation", "Equation 5"),
    test="tests/test_allocation_bound.py::test_the_four_gram_gets_eight_heads_of_eight_for_each_lag",
    status="proved here",
    hypotheses=("eps_delta = 0",),
)
def allocate(weights: Sequence[float], token_dim: int, budget: int) -> Allocation:
    """The heads and head dimensions, integers with sum of heads * head_dim <= budget, of least Equation 3 error.

    Source: Yu et al. 2025 (allocation), Equation 5 (eps_delta dropped). Solved exactly by dynamic programming over
    the budget and the spendings of a lag that a smaller one does not equal. Where that takes too many sums (budgets of
    some 100,000 and more), heads of full dimension are given one by one to the lag they help most, and `gap` says how
    far the closed form lies below, which bounds every allocation.

    >>> a = allocate([1, 1, 1, 1], token_dim=8, budget=256)
    >>> a.lags, a.heads, a.head_dims, round(a.error, 4), a.gap
    (4, (8, 8, 8, 8), (8, 8, 8, 8), 0.6835, 0.0)
    """
    check_sizes(weights, token_dim)
    if int(budget) != budget or budget < 1:
        raise ValueError(f"budget must be a whole number of at least 1 (heads times head_dim), got {budget}")
    exact = _by_programming([float(w) for w in weights], token_dim, int(budget))
    heads, head_dims = exact or _by_heads([float(w) for w in weights], token_dim, int(budget))
    return Allocation(
        heads=heads,
        head_dims=head_dims,
        bound=extraction_error(weights, heads, head_dims, token_dim),
        relaxed=relaxed(weights, token_dim, budget),
        token_dim=token_dim,
        budget=int(budget),
        weights=tuple(float(w) for w in weights),
        exact=exact is not None,
    )


def _by_programming(
    weights: list[float], token_dim: int, budget: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Exact: best(m, b) = min over what lag m spends, then walk back; None where that takes too many sums."""
    if budget > LARGEST_TABLE:
        return None
    tables = [_one_lag(lag, w, token_dim, budget) for lag, w in enumerate(weights, start=1)]
    useful = [_useful(error) for error, _, _ in tables]
    if sum(map(len, useful)) * budget > MOST_SUMS:
        return None
    best = np.zeros(budget + 1)
    choices = []
    for (error, _, _), costs in zip(tables, useful, strict=True):
        spent = np.zeros(budget + 1, dtype=int)
        new = np.full(budget + 1, np.inf)
        for cost in costs:  # one lag spends `cost`, the earlier ones the rest
            trial = best[: budget + 1 - cost] + error[cost]
            better = trial < new[cost:] - 1e-15
            new[cost:][better] = trial[better]
            spent[cost:][better] = cost
        best = new
        choices.append(spent)
    left, picks = budget, []
    for spent, (_, heads, dims) in zip(reversed(choices), reversed(tables), strict=True):
        cost = int(spent[left])
        picks.append((int(heads[cost]), int(dims[cost])))
        left -= cost
    picks.reverse()
    return tuple(h for h, _ in picks), tuple(n for _, n in picks)


def _useful(error: np.ndarray) -> list[int]:
    """The spendings that bring less error than every smaller one: no optimum needs another."""
    before = np.minimum.accumulate(error)
    return [0, *(np.flatnonzero(error[1:] < before[:-1]) + 1).tolist()]


def _one_lag(lag: int, weight: float, token_dim: int, budget: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least error of one lag for every exact spending, with the heads and head_dim that reach it."""
    error = np.full(budget + 1, np.inf)
    heads, dims = np.zeros(budget + 1, dtype=int), np.zeros(budget + 1, dtype=int)
    error[0] = weight  # dropped
    for n in range(1, min(token_dim, budget) + 1):
        h = np.arange(1, budget // n + 1)
        value = weight * (math.sqrt(1 - n / token_dim) + synthesis(lag, 1) / h)
        cost = h * n
        better = value < error[cost]
        error[cost[better]], heads[cost[better]], dims[cost[better]] = value[better], h[better], n
    return error, heads, dims


def _by_heads(weights: list[float], token_dim: int, budget: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Exact among full-dimension heads: round the closed form down, then give each head left to the best gain."""
    start = relaxed(weights, token_dim, budget)
    heads = [int(h) for h in start.heads]
    for _ in range(budget // token_dim - sum(heads)):
        gains = [_gain(lag, w, h) for lag, (w, h) in enumerate(zip(weights, heads, strict=True), start=1)]
        best = max(range(len(heads)), key=lambda m: gains[m])
        if gains[best] <= 0:
            break
        heads[best] += 1
    return tuple(heads), tuple(token_dim if h else 0 for h in heads)


def _gain(lag: int, weight: float, heads: int) -> float:
    before = weight * synthesis(lag, heads) if heads else weight
    return before - weight * synthesis(lag, heads + 1)
