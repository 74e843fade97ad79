"""The paper on attention as a support vector machine: directions, feasibility and ranks, nonlinear heads.

The paper's printed numbers were not at hand, only its recipes: what is compared are its statements.
"""

from __future__ import annotations

import torch

from headcount.papers.attention_svm.descent import SelectionPath, select
from headcount.papers.attention_svm.experiments import (
    Direction,
    directions,
    feasible_share,
    infeasible_choices,
    rank_study,
)
from headcount.papers.attention_svm.nonlinear import concave_head, nonlinear_study, relu_head
from headcount.papers.attention_svm.selection import Instances, Selection
from headcount.results.record import Claim, Measured, Reproduction, Setting

__all__ = ["ATTENTION_SVM"]

COLUMNS = ("cosine to Frobenius", "cosine to nuclear", "chosen = best token")


def _trained(data: Instances, *, factored: bool, steps: int) -> SelectionPath:
    return select(data, factored=factored, steps=steps, looks=1, generator=torch.Generator().manual_seed(1))


def _cells(name: str, rows: list[Direction]) -> dict[tuple[str, str], tuple[float, ...]]:
    values = ([r.to_frobenius for r in rows], [r.to_nuclear for r in rows], [r.best_tokens for r in rows])
    return {(name, column): tuple(v) for column, v in zip(COLUMNS, values, strict=True)}


def direction_table(setting: Setting) -> Measured:
    """W and (K, Q) trained on the same instances, beside both solutions for the tokens each chose."""
    instances, steps = (10, 1000) if setting.quick else (100, 2000)
    data = Selection(6, 8, 10).sample(instances, generator=torch.Generator().manual_seed(0))
    joint = directions(data, _trained(data, factored=False, steps=steps))
    factored = directions(data, _trained(data, factored=True, steps=steps))
    nearer = sum(r.to_frobenius > r.to_nuclear for r in joint), sum(r.to_nuclear > r.to_frobenius for r in factored)
    gap = max(max(r.gaps) for r in (*joint, *factored))
    odd = sum(bool(r.offenders) for r in joint)
    return Measured(
        {"directions after training": _cells("W", joint) | _cells("(K, Q)", factored)},
        (
            Claim("training W goes in the direction of least Frobenius norm",
                  f"nearer to it than to the nuclear one in {nearer[0]} of {len(joint)}", nearer[0] == len(joint)),
            Claim("training K and Q goes in the direction of least nuclear norm",
                  f"nearer to it than to the Frobenius one in {nearer[1]} of {len(factored)}",
                  nearer[1] == len(factored)),
            Claim("the tokens chosen are locally optimal",
                  f"in all but {odd} of {len(joint)} runs of W after {steps} steps", odd <= len(joint) / 20),
        ),
        {"sequences": 6, "length": 8, "token_dim": 10, "steps": steps, "rate": 0.1, "largest duality gap": gap},
    )  # fmt: skip


def feasibility_table(setting: Setting) -> Measured:
    """The share of feasible instances by dimension, ranks of feasible ones, and training where none is feasible."""
    many = 20 if setting.quick else 60
    shares = {
        (f"n = {n}, T = {length}", d): (feasible_share(n, length, d, many),)
        for n, length in ((5, 5), (5, 10), (10, 5))
        for d in range(1, 6)
    }
    one, other, lost = rank_study(5, 5, 10, 5 if setting.quick else 12)
    choices = infeasible_choices(10, 5, 3, 10 if setting.quick else 100)
    ranks = {("Frobenius", "rank"): tuple(map(float, one)), ("nuclear", "rank"): tuple(map(float, other))}
    return Measured(
        {"share of feasible instances": shares, "ranks at n = T = 5, d = 10": ranks},
        (
            Claim("the nuclear solution has the smaller rank",
                  f"means {sum(other) / len(other):.2f} and {sum(one) / len(one):.2f}, {lost} infeasible left out",
                  sum(other) < sum(one)),
            Claim("where the best tokens cannot be separated, training chooses others that can",
                  f"of {choices.trained} such instances {choices.saturated} chose, {choices.on_feasible} on feasible "
                  f"tokens, {choices.locally_optimal} locally optimal", choices.on_feasible == choices.saturated),
        ),
        {"instances": many},
        ("the published study counts infeasible problems as rank 1; here they are counted apart",),
    )  # fmt: skip


def nonlinear_table(setting: Setting) -> Measured:
    """Heads that want a mixture: W_fin + R W_dir beside W_dir alone, by dimension."""
    many = 10 if setting.quick else 100
    found = [nonlinear_study(d, many, concave_head) for d in (4, 6, 8, 10)]
    relu = nonlinear_study(6, many, relu_head)
    cells = {
        (row["token_dim"], name): (row[name],)
        for row in found
        for name in ("mixing tokens", "set aside", "gap of W_dir", "gap of both")
        if row[name] is not None
    }
    mixed, nearer = (sum(row[name] for row in found) for name in ("mixing tokens", "both nearer"))
    note = (
        f"random ReLU heads: of {relu['drawn']} runs {relu['mixing tokens']} mix tokens, {relu['one token each']} "
        f"choose one in each sequence, {relu['set aside']} are undecided by the published rule"
    )
    return Measured(
        {"concave head: median 1 - cosine": cells},
        (Claim("with a nonlinear head W goes like W_fin + R W_dir",
               f"nearer than W_dir alone in {nearer} of {mixed} runs that mix tokens", nearer == mixed),),
        {"sequences": 3, "length": 5, "drawn for each dimension": many},
        (note,),
    )  # fmt: skip


ATTENTION_SVM = (
    Reproduction("attention-svm:directions", "where training W and (K, Q) goes: Frobenius and nuclear solutions",
                 direction_table, (), "n = 6, T = 8, d = 10, uniform on the sphere; W from 0, K and Q normal "
                 "times 0.1; the gradient of W exact in its tails.", "", ("20 s", "2 min", "2 min")),
    Reproduction("attention-svm:feasibility", "when one token per sequence can be separated; ranks",
                 feasibility_table, (), "Best tokens; feasibility first, ranks of feasible instances only.", "",
                 ("20 s", "1 min", "1 min")),
    Reproduction("attention-svm:nonlinear", "heads that mix tokens: W_fin + R W_dir", nonlinear_table, (),
                 "A concave head, best inside the hull of the tokens, and a vanishing ridge: random ReLU heads "
                 "hardly ever end in a separated mixture.", "random ReLU heads", ("10 s", "1 min", "1 min")),
)  # fmt: skip
