"""A trained model made smaller: plan ranks under a budget, carry the plan out, calibrate, distil, write it to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.nets.pretrained.folders import load_compact
    from headcount.shrinking.budget import Curve, Spending, spend
    from headcount.shrinking.calibration import corrected
    from headcount.shrinking.checkpoint import save_compact, save_padded, tensor_bytes
    from headcount.shrinking.distillation import distil
    from headcount.shrinking.pipeline import Compressed, compress
    from headcount.shrinking.rank_plan import RankPlan, plan
    from headcount.shrinking.surgery import reduce, shrink_model
    from headcount.shrinking.weight_and_time import gap, latencies, size

__all__ = [
    "Compressed",
    "Curve",
    "RankPlan",
    "Spending",
    "compress",
    "corrected",
    "distil",
    "gap",
    "latencies",
    "load_compact",
    "plan",
    "reduce",
    "save_compact",
    "save_padded",
    "shrink_model",
    "size",
    "spend",
    "tensor_bytes",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "pipeline": (
            "Compressed",
            "compress",
        ),
        "headcount.nets.pretrained.folders": ("load_compact",),
        "checkpoint": (
            "save_compact",
            "save_padded",
            "tensor_bytes",
        ),
        "weight_and_time": (
            "gap",
            "latencies",
            "size",
        ),
        "calibration": ("corrected",),
        "distillation": ("distil",),
        "rank_plan": (
            "RankPlan",
            "plan",
        ),
        "surgery": (
            "reduce",
            "shrink_model",
        ),
        "budget": (
            "Curve",
            "Spending",
            "spend",
        ),
    },
)
