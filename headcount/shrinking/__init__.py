"""A trained model made smaller: plan ranks under a budget, carry the plan out, calibrate, distil, write it to disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.nets.pretrained.folders import load_compact
    from headcount.shrinking.budget import Curve, Spending, spend
    from headcount.shrinking.calibration import corrected
    from headcount.shrinking.checkpoint import save_compact, save_padded
    from headcount.shrinking.distillation import Lessons, distil, learn_from
    from headcount.shrinking.file_bytes import FileBytes, tensor_bytes
    from headcount.shrinking.language_model import Calibrated, CutModel, calibrated, cut_to
    from headcount.shrinking.loss_bench import benched
    from headcount.shrinking.loss_plan import LossPlan, carried_out
    from headcount.shrinking.perplexity import PairedLoss, compared, losses_of
    from headcount.shrinking.pipeline import Compressed, compress
    from headcount.shrinking.rank_plan import RankPlan, plan
    from headcount.shrinking.surgery import ShrinkWay, reduce, shrink_model
    from headcount.shrinking.text_windows import TextSplit, split_text
    from headcount.shrinking.weight_and_time import gap, latencies, size

__all__ = [
    "Calibrated",
    "Compressed",
    "Curve",
    "CutModel",
    "FileBytes",
    "Lessons",
    "LossPlan",
    "PairedLoss",
    "RankPlan",
    "ShrinkWay",
    "Spending",
    "TextSplit",
    "benched",
    "calibrated",
    "carried_out",
    "compared",
    "compress",
    "corrected",
    "cut_to",
    "distil",
    "gap",
    "latencies",
    "learn_from",
    "load_compact",
    "losses_of",
    "plan",
    "reduce",
    "save_compact",
    "save_padded",
    "shrink_model",
    "size",
    "spend",
    "split_text",
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
        ),
        "file_bytes": ("FileBytes", "tensor_bytes"),
        "language_model": ("Calibrated", "CutModel", "calibrated", "cut_to"),
        "loss_bench": ("benched",),
        "loss_plan": ("LossPlan", "carried_out"),
        "perplexity": ("PairedLoss", "compared", "losses_of"),
        "text_windows": ("TextSplit", "split_text"),
        "weight_and_time": (
            "gap",
            "latencies",
            "size",
        ),
        "calibration": ("corrected",),
        "distillation": ("Lessons", "distil", "learn_from"),
        "rank_plan": (
            "RankPlan",
            "plan",
        ),
        "surgery": (
            "ShrinkWay",
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
