"""Scaling Laws and In-Context Learning: A Unified Theoretical Framework (Mehta and Gupta, arXiv 2511.06232).

The paper claims power laws of the in-context error in depth, width, context and data, a step of the descent that a
forward pass makes, a sharp transition, and a best shape. Its proofs and tables could not be seen, so every formula of
`bounds` is a claim to test, marked "claimed, without a proof here".

What stands here: descent in the forward pass as a certified network (`descent`), its exact curves by depth
(`descent_curve`: geometric for isotropic inputs, a drifting power for a falling spectrum), in-context tasks
(`InContext`), networks trained on them in banks, and the claims beside what was measured (`claims_table`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.papers.icl.bounds import (
        BestShape,
        best_shape,
        effective_step,
        icl_exponent,
        icl_transition,
        parameters,
        product,
    )
    from headcount.papers.icl.contexts import InContext, Spectrum
    from headcount.papers.icl.descent_curves import DescentCurve, descent_curve, plateau, ridge_curve
    from headcount.papers.icl.experiments import ReaderCell, ReaderRecipe, train_readers
    from headcount.papers.icl.measured_exponents import claims_table, measured_laws, shape_contrast
    from headcount.papers.icl.networks import context_error, descent, safe_rate

__all__ = [
    "BestShape",
    "DescentCurve",
    "InContext",
    "ReaderCell",
    "ReaderRecipe",
    "Spectrum",
    "best_shape",
    "claims_table",
    "context_error",
    "descent",
    "descent_curve",
    "effective_step",
    "icl_exponent",
    "icl_transition",
    "measured_laws",
    "parameters",
    "plateau",
    "product",
    "ridge_curve",
    "safe_rate",
    "shape_contrast",
    "train_readers",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "bounds": (
            "BestShape",
            "best_shape",
            "effective_step",
            "icl_exponent",
            "icl_transition",
            "parameters",
            "product",
        ),
        "contexts": ("InContext", "Spectrum"),
        "descent_curves": ("DescentCurve", "descent_curve", "plateau", "ridge_curve"),
        "experiments": ("ReaderCell", "ReaderRecipe", "train_readers"),
        "measured_exponents": ("claims_table", "measured_laws", "shape_contrast"),
        "networks": ("context_error", "descent", "safe_rate"),
    },
)
