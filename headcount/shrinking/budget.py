"""Divide one budget over many products, each with its own error curve: greedy, with a proof of how near it is."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.sources import Checked, Source, implements


@dataclass(frozen=True)
class Curve:
    """What one product costs and loses at every rank: `errors[r]` at rank r, `cost` parameters a rank.

    `least` is the smallest rank a plan may give it.
    """

    name: str
    cost: int
    errors: tuple[float, ...]
    least: int = 0

    def __post_init__(self) -> None:
        if self.cost < 1 or not self.errors or not 0 <= self.least < len(self.errors):
            raise ValueError(
                f"curve {self.name!r}: cost {self.cost}, {len(self.errors)} errors and least rank {self.least} clash"
            )


@dataclass(frozen=True)
class Spending:
    """The chosen ranks, their cost and error, and `floor`, below which no choice of ranks at this budget can get."""

    ranks: tuple[int, ...]
    cost: int
    error: float
    floor: float


def hull(errors: Sequence[float], least: int = 0) -> list[int]:
    """The ranks at which the lower convex hull of a curve has its corners, up to its minimum.

    >>> hull([9.0, 8.0, 2.0, 1.0, 0.0])
    [0, 2, 3, 4]
    """
    corners: list[int] = []
    for r in range(least, len(errors)):
        while len(corners) > 1 and _slope(errors, corners[-1], r) < _slope(errors, corners[-2], corners[-1]):
            corners.pop()
        corners.append(r)
    while len(corners) > 1 and errors[corners[-1]] >= errors[corners[-2]]:
        corners.pop()
    return corners


@implements(
    Source("headcount", "greedy division of a budget over convex curves"),
    test="tests/test_shrinking_spend.py::test_greedy_is_optimal_when_every_rank_costs_the_same",
    status="proved here",
    hypotheses=(Checked("convex curves with one cost; otherwise the distance to the optimum is bounded"),),
)
def spend(curves: Sequence[Curve], budget: int) -> Spending:
    """The ranks of least total error under sum of cost * rank <= budget, walking the convex hulls steepest first.

    Optimal whenever the walk ends on a corner with the budget used up or nothing left to gain: so always for
    convex curves with one cost. Otherwise the error exceeds the optimum by at most `error - floor`.

    >>> spend([Curve("a", 1, (4.0, 1.0, 0.0)), Curve("b", 1, (2.0, 0.5, 0.0))], budget=2).ranks
    (1, 1)
    """
    # Weak duality: for every price x >= 0, min over ranks of sum (error + x cost rank) - x budget is below every
    # feasible error. At the price of the first step that did not fit, the walk's corners attain that minimum.
    ranks = [c.least for c in curves]
    left = budget - sum(c.cost * c.least for c in curves)
    if left < 0:
        raise ValueError(f"the budget of {budget} parameters cannot be met: the least ranks alone cost {budget - left}")
    corners = [hull(c.errors, c.least) for c in curves]
    queue = [step for i, c in enumerate(curves) if (step := _step(c, i, corners[i], 0)) is not None]
    heapq.heapify(queue)
    price = 0.0
    while queue:
        slope, i, at = heapq.heappop(queue)
        fits = (corners[i][at + 1] - corners[i][at]) * curves[i].cost
        if fits > left:
            price = price or -slope
            continue  # a cheaper, flatter step may still fit
        left -= fits
        ranks[i] = corners[i][at + 1]
        if (step := _step(curves[i], i, corners[i], at + 1)) is not None:
            heapq.heappush(queue, step)
    left = _fill(curves, ranks, left)
    error = sum(c.errors[r] for c, r in zip(curves, ranks, strict=True))
    return Spending(tuple(ranks), budget - left, error, min(error, _dual(curves, budget, price)))


def least_share(
    lost_at: Callable[[float], float], most: float, fewest: float, trials: int, say: Callable[[str], None], of: str = ""
) -> float:
    """The smallest share that loses at most `most` (of what `of` names), by halving from `fewest` on.

    >>> least_share(lambda keep: 1 - keep, 0.25, 0.0, 2, print)
    keeping 0.500 loses 50.00%, trial 1 of 2
    keeping 0.750 loses 25.00%, trial 2 of 2
    0.75
    """
    low, high = fewest, 1.0
    for trial in range(1, trials + 1):
        keep = (low + high) / 2
        lost = lost_at(keep)
        say(f"keeping {keep:.3f} loses {lost:.2%}{of}, trial {trial} of {trials}")
        low, high = (low, keep) if lost <= most else (keep, high)
    return high


def _slope(errors: Sequence[float], a: int, b: int) -> float:
    return (errors[b] - errors[a]) / (b - a)


def _step(curve: Curve, i: int, corners: list[int], at: int) -> tuple[float, int, int] | None:
    if at + 1 >= len(corners):
        return None
    return _slope(curve.errors, corners[at], corners[at + 1]) / curve.cost, i, at


def _fill(curves: Sequence[Curve], ranks: list[int], left: int) -> int:
    """Spend what is left on single ranks between corners, largest gain for its cost first."""
    while True:
        gains = [
            ((c.errors[r] - c.errors[r + 1]) / c.cost, i)
            for i, (c, r) in enumerate(zip(curves, ranks, strict=True))
            if r + 1 < len(c.errors) and c.cost <= left
        ]
        best = max(gains, default=(0.0, -1))
        if best[0] <= 0:
            return left
        ranks[best[1]] += 1
        left -= curves[best[1]].cost


def _dual(curves: Sequence[Curve], budget: int, price: float) -> float:
    lowest = (min(c.errors[r] + price * c.cost * r for r in range(c.least, len(c.errors))) for c in curves)
    return sum(lowest) - price * budget
