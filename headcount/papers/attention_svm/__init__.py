"""Transformers as Support Vector Machines (Tarzanagh et al. 2023, arXiv 2308.16898).

A softmax that is trained without a limit ends by choosing one token per sequence, and the direction in which its
weights grow is that of a support vector machine: of least Frobenius norm when W is trained itself, of least nuclear
norm when it is trained as K Q^T. `max_margin` solves both with a dual certificate, `select` trains, and
`direction_gap` and `locally_optimal` put the two beside each other.

Solvers and bounds need no torch; what trains loads it when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.papers.attention_svm.bounds import selection_feasible_from
    from headcount.papers.attention_svm.descent import SelectionPath, select
    from headcount.papers.attention_svm.direction import (
        Offender,
        direction_gap,
        largest_rise,
        locally_optimal,
        settled,
    )
    from headcount.papers.attention_svm.experiments import (
        directions,
        feasible_share,
        infeasible_choices,
        rank_study,
        summary,
    )
    from headcount.papers.attention_svm.margins import (
        InfeasibleError,
        MaxMargin,
        feasible,
        frobenius,
        max_margin,
        nuclear,
    )
    from headcount.papers.attention_svm.nonlinear import Decomposition, decompose, nonlinear_study
    from headcount.papers.attention_svm.regularised import regularisation_path
    from headcount.papers.attention_svm.relu_heads import MixingRun, mixing_rows, mixing_runs
    from headcount.papers.attention_svm.selection import Instances, Selection

__all__ = [
    "Decomposition",
    "InfeasibleError",
    "Instances",
    "MaxMargin",
    "MixingRun",
    "Offender",
    "Selection",
    "SelectionPath",
    "decompose",
    "direction_gap",
    "directions",
    "feasible",
    "feasible_share",
    "frobenius",
    "infeasible_choices",
    "largest_rise",
    "locally_optimal",
    "max_margin",
    "mixing_rows",
    "mixing_runs",
    "nonlinear_study",
    "nuclear",
    "rank_study",
    "regularisation_path",
    "select",
    "selection_feasible_from",
    "settled",
    "summary",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "bounds": ("selection_feasible_from",),
        "descent": ("SelectionPath", "select"),
        "direction": ("Offender", "direction_gap", "largest_rise", "locally_optimal", "settled"),
        "experiments": ("directions", "feasible_share", "infeasible_choices", "rank_study", "summary"),
        "margins": ("InfeasibleError", "MaxMargin", "feasible", "frobenius", "max_margin", "nuclear"),
        "nonlinear": ("Decomposition", "decompose", "nonlinear_study"),
        "regularised": ("regularisation_path",),
        "relu_heads": ("MixingRun", "mixing_rows", "mixing_runs"),
        "selection": ("Instances", "Selection"),
    },
)
