"""A plan for a smaller model: the rank of every product under one budget, with the error it predicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headcount.papers.allocation.units import Survey, Unit
from headcount.shrinking.budget import Curve, spend
from headcount.shrinking.grouping import Grouping, best_grouping
from headcount.shrinking.report_rows import RankRow, rank_rows

RULES = ("uniform", "allocated")
TRIED = 6  # heads whose removal is tried at a time: those that lose least


@dataclass(frozen=True)
class RankPlan:
    """The rank of every unit of a survey, in its order; 0 in both parts of a head removes it.

    `parameters` is what the reduced products cost, `stock` what they cost before, `error` the predicted error and
    `floor` what no plan with the same removals and groupings could go below.
    """

    survey: Survey
    ranks: tuple[int, ...]
    budget: int
    error: float
    floor: float
    rule: str
    removed: tuple[tuple[int, int], ...] = ()  # (layer, head)
    groupings: tuple[Grouping, ...] = ()

    @property
    def stock(self) -> int:
        return self.survey.stock

    @property
    def parameters(self) -> int:
        """Exactly the numbers that the reduced products will hold."""
        alone = sum(u.cost * r for u, r in self.chosen if not self._grouped(u))
        return alone + sum(g.cost for g in self.groupings)

    @property
    def saved(self) -> int:
        """By how many numbers the model will be smaller, biases that rewriting folds away included."""
        return self.stock - self.parameters + self.survey.folded

    @property
    def chosen(self) -> list[tuple[Unit, int]]:
        return list(zip(self.survey.units, self.ranks, strict=True))

    def at(self, layer: int, part: str, index: int) -> tuple[Unit, int] | None:
        """One unit with its planned rank, or None where it is not reduced."""
        return next(((u, r) for u, r in self.chosen if (u.layer, u.part, u.index) == (layer, part, index)), None)

    @property
    def rows(self) -> list[RankRow]:
        """One row per layer and part: the ranks of its heads, their sum, and of how many."""
        return rank_rows((u.layer, u.part, r, u.full) for u, r in self.chosen)

    def _grouped(self, unit: Unit) -> bool:
        return unit.part == "query-key" and any(g.layer == unit.layer and unit.index in g.keys for g in self.groupings)


def plan(survey: Survey, keep: float, *, rule: str = "allocated", grouping: bool = False) -> RankPlan:
    """Ranks that keep the share `keep` of the products' parameters.

    `uniform`: the same share of every unit's rank. `allocated`: the least predicted error (`spend`), then as long as it
    helps whole heads are removed, their query-key ranks going to others, and pairs of heads share one key.
    """
    check_share(keep, rule)
    if not survey.units:
        reasons = "; ".join(sorted({f"{part}: {why}" for _, part, why in survey.refused}))
        raise ValueError(f"nothing in this model can be reduced ({reasons or 'no attention layers'})")
    budget = int(keep * survey.stock)
    if budget < min(u.cost for u in survey.units):
        raise ValueError(
            f"keeping {keep:g} of {survey.stock} parameters leaves {budget}, less than one rank of one head"
        )
    if rule == "uniform":
        return _uniform(survey, keep, budget)
    first = _allocated(survey, budget, ())
    if {u.part for u in survey.units} == {"query-key", "value-output"}:
        first = _remove(survey, budget, first)
    return _group(first) if grouping else first


def check_share(keep: float, rule: str) -> None:
    """Refuse a share or a rule that no survey could meet."""
    if not 0 < keep <= 1:
        raise ValueError(f"keep must be above 0 and at most 1, got {keep:g}")
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")


def _uniform(survey: Survey, keep: float, budget: int) -> RankPlan:
    ranks = tuple(max(_least(survey, u), int(keep * u.full + 1e-9)) for u in survey.units)
    if not any(ranks):
        raise ValueError(f"keeping {keep:g} of every head leaves no rank at all; keep more, or allocate")
    error = sum(u.errors[r] for u, r in zip(survey.units, ranks, strict=True))
    return RankPlan(survey, ranks, budget, error, 0.0, "uniform")


def _allocated(survey: Survey, budget: int, removed: tuple[tuple[int, int], ...]) -> RankPlan:
    """Least error with the given heads gone: their value-output units at rank 0, their query-key units free."""
    gone = {i for i, u in enumerate(survey.units) if _all_removed(u, removed)}
    there = [i for i in range(len(survey.units)) if i not in gone]
    units = [survey.units[i] for i in there]
    spent = spend([Curve(_name(u), u.cost, u.errors, _least(survey, u)) for u in units], budget)
    ranks = [0] * len(survey.units)
    for i, rank in zip(there, spent.ranks, strict=True):
        ranks[i] = rank
    lost = sum(survey.units[i].errors[0] for i in gone if survey.units[i].part == "value-output")
    return RankPlan(survey, tuple(ranks), budget, spent.error + lost, spent.floor + lost, "allocated", removed)


def _remove(survey: Survey, budget: int, now: RankPlan) -> RankPlan:
    """Remove one head at a time while that lowers the predicted error at the same budget."""
    while True:
        heads = [u for u in survey.units if u.part == "value-output" and len(u.heads) == 1]
        heads = [u for u in heads if (u.layer, u.heads[0]) not in now.removed and not _least(survey, u)]
        heads = sorted(heads, key=lambda u: u.errors[0])[:TRIED]
        trials = [_allocated(survey, budget, (*now.removed, (u.layer, u.heads[0]))) for u in heads]
        best = min(trials, key=lambda p: p.error, default=now)
        if best.error >= now.error:
            return _bury(now)
        now = best


def _bury(now: RankPlan) -> RankPlan:
    """Heads that ended at value-output rank 0 need no queries and keys either."""
    dead = {(u.layer, u.heads[0]) for u, r in now.chosen if _empty(u, r)}
    more = tuple(sorted(dead - set(now.removed)))
    if not more:
        return now
    return _bury(_allocated(now.survey, now.budget, (*now.removed, *more)))


def _group(now: RankPlan) -> RankPlan:
    """Let pairs of heads of one layer share a key where that predicts less error at no more parameters."""
    chosen: list[Grouping] = []
    error = now.error
    for layer in sorted({u.layer for u in now.survey.units}):
        units = [(u, r) for u, r in now.chosen if (u.layer, u.part) == (layer, "query-key")]
        free = {u.index: (u, r) for u, r in units if r > 0 and len(u.heads) == 1}
        while grouping := best_grouping(layer, list(free.values()), now.survey):
            chosen.append(grouping)
            error -= grouping.gain
            for index in grouping.keys:
                del free[index]
    return replace(now, groupings=tuple(chosen), error=error, floor=min(now.floor, error))


def _least(survey: Survey, unit: Unit) -> int:
    """A head whose queries and keys are not touched is not removed either."""
    return int(any((unit.layer, "query-key") == refused[:2] for refused in survey.refused))


def _name(unit: Unit) -> str:
    return f"layer {unit.layer} {unit.part} {unit.index}"


def _empty(unit: Unit, rank: int) -> bool:
    return unit.part == "value-output" and rank == 0 and len(unit.heads) == 1


def _all_removed(unit: Unit, removed: Sequence[tuple[int, int]]) -> bool:
    return all((unit.layer, head) in removed for head in unit.heads)
