"""Transformers as Support Vector Machines (Tarzanagh et al. 2023, arXiv 2308.16898).

A softmax that is trained without a limit ends by choosing one token per sequence, and the direction in which its weights
grow is that of a support vector machine: of least Frobenius norm when W is trained itself (`max_margin(..., frobenius)`), of
least nuclear norm when it is trained as K Q^T. `max_margin` solves both with a dual certificate, `select` trains, and
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
        Decomposition,
        Offender,
        decompose,
        direction_gap,
        locally_optimal,
    )
    from headcount.papers.attention_svm.experiments import (
        directions,
        feasible_share,
        nonlinear_study,
        rank_study,
        summary,
    )
    from headcount.papers.attention_svm.max_margin import InfeasibleError, MaxMargin, feasible, frobenius, nuclear
    from headcount.papers.attention_svm.selection import Instances, Selection
