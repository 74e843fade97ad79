"""Unveiling Induction Heads: Provable Training Dynamics and Feature Learning in Transformers (Chen et al. 2024).

In-context learning of Markov chains: every sequence has its own kernel, and two attention layers learn to read it. The
first layer copies lags, a selector keeps the lags that matter, the second layer compares them: a generalised induction
head (`matched_mean`, `generalised_induction`). Training goes in stages (`Staged`, `descend`): the selector finds the
set of lags of largest modified chi-square information (`information_set`), heads concentrate on it, the scale grows.

The information needs numpy alone; networks and training load torch when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily
from headcount.papers.induction.bounds import (
    InformationSet,
    chi2_information,
    information_set,
    information_table,
    stationary_law,
)

if TYPE_CHECKING:
    from headcount.papers.induction.experiments import ChainRun, length_rows, predictor_rows, selection_rows, stage_rows
    from headcount.papers.induction.networks import generalised_induction, matched_mean, soft_match_error, unmatched
    from headcount.papers.induction.staged import ChainTables, Learnt, Stage, Staged, descend

__all__ = [
    "ChainRun",
    "ChainTables",
    "InformationSet",
    "Learnt",
    "Stage",
    "Staged",
    "chi2_information",
    "descend",
    "generalised_induction",
    "information_set",
    "information_table",
    "length_rows",
    "matched_mean",
    "predictor_rows",
    "selection_rows",
    "soft_match_error",
    "stage_rows",
    "stationary_law",
    "unmatched",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "experiments": ("ChainRun", "length_rows", "predictor_rows", "selection_rows", "stage_rows"),
        "networks": ("generalised_induction", "matched_mean", "soft_match_error", "unmatched"),
        "staged": ("ChainTables", "Learnt", "Stage", "Staged", "descend"),
    },
)
