"""Transformers Are Universally Consistent (Ghosh, Bose, Das, arXiv 2505.24531).

The paper claims that softmax attention estimates a function from t labelled tokens with an error of t^(-1/(2d)), in
flat and in hyperbolic space. Its proof could not be seen. Here attention is a kernel smoother, certified for every
length (`smoother`); its decay stands beside the claimed rate and the one that noise allows (`decay`,
`consistency_rate`, `lipschitz_rate`), with one-sided verdicts; and the Poincare ball is a value (`Ball`) whose
curvature a trained block can be asked about (`curvature_rows`). The vision and language runs of the paper print no
number to compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.papers.consistency.ball import Ball, BallResidual
    from headcount.papers.consistency.bounds import consistency_rate, lipschitz_rate, spacing_rate
    from headcount.papers.consistency.decays import NOISY, QUIET, Decay, DecayCase, decay
    from headcount.papers.consistency.experiments import BallRecipe, curvature_rows, curvature_verdict
    from headcount.papers.consistency.networks import ball_smoother, context_bound, kernel_estimate, smoother
    from headcount.papers.consistency.smooth import Smooth

__all__ = [
    "NOISY",
    "QUIET",
    "Ball",
    "BallRecipe",
    "BallResidual",
    "Decay",
    "DecayCase",
    "Smooth",
    "ball_smoother",
    "consistency_rate",
    "context_bound",
    "curvature_rows",
    "curvature_verdict",
    "decay",
    "kernel_estimate",
    "lipschitz_rate",
    "smoother",
    "spacing_rate",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "ball": ("Ball", "BallResidual"),
        "bounds": ("consistency_rate", "lipschitz_rate", "spacing_rate"),
        "decays": ("NOISY", "QUIET", "Decay", "DecayCase", "decay"),
        "experiments": ("BallRecipe", "curvature_rows", "curvature_verdict"),
        "networks": ("ball_smoother", "context_bound", "kernel_estimate", "smoother"),
        "smooth": ("Smooth",),
    },
)
