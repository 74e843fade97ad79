"""Allocation of Parameters in Transformers (Yu et al., arXiv, October 2025).

How to divide a budget of heads times head dimension over lags and layers (`allocate`, with the bound behind it), and
where softmax attention saturates, so that later heads can be narrow (`saturation`, `jacobian_norm`).

`allocate` and the bounds need no torch. Making a trained model smaller with these is `headcount.shrinking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.papers.allocation.attention_saturation import (
        SaturationReport,
        rank_costs,
        saturation,
        saturation_report,
        verdicts,
    )
    from headcount.papers.allocation.bounds import (
        compression,
        exponential_sum_error,
        extraction_error,
        starved_lags,
        synthesis,
        trade_off,
    )
    from headcount.papers.allocation.jacobian import half_range, jacobian_norm, row_bound
    from headcount.papers.allocation.lags import Allocation, Relaxed, allocate, relaxed
    from headcount.papers.allocation.lowrank import Factors, factors, logit_error
    from headcount.papers.allocation.schedules import LayerSchedule, by_bound, ramp, uniform
    from headcount.papers.allocation.units import Survey, Unit, rewrite, survey

__all__ = [
    "Allocation",
    "Factors",
    "LayerSchedule",
    "Relaxed",
    "SaturationReport",
    "Survey",
    "Unit",
    "allocate",
    "by_bound",
    "compression",
    "exponential_sum_error",
    "extraction_error",
    "factors",
    "half_range",
    "jacobian_norm",
    "logit_error",
    "ramp",
    "rank_costs",
    "relaxed",
    "rewrite",
    "row_bound",
    "saturation",
    "saturation_report",
    "starved_lags",
    "survey",
    "synthesis",
    "trade_off",
    "uniform",
    "verdicts",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "lags": (
            "Allocation",
            "Relaxed",
            "allocate",
            "relaxed",
        ),
        "bounds": (
            "compression",
            "exponential_sum_error",
            "extraction_error",
            "starved_lags",
            "synthesis",
            "trade_off",
        ),
        "lowrank": (
            "Factors",
            "factors",
            "logit_error",
        ),
        "jacobian": (
            "half_range",
            "jacobian_norm",
            "row_bound",
        ),
        "schedules": (
            "LayerSchedule",
            "by_bound",
            "ramp",
            "uniform",
        ),
        "units": (
            "Survey",
            "Unit",
            "rewrite",
            "survey",
        ),
        "attention_saturation": (
            "SaturationReport",
            "rank_costs",
            "saturation",
            "saturation_report",
            "verdicts",
        ),
    },
)
