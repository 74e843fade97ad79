"""Divide a budget over heads and layers; see where attention saturates; shrink a trained model.

`allocate` and the bound need no torch; the rest loads when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "lags": ("Allocation", "Relaxed", "allocate", "brute_force", "relaxed"),
    "bound": ("compression", "exponential_sum_error", "extraction_error", "starved_lags", "synthesis", "trade_off"),
    "checkpoint": ("load_compact", "save_compact", "save_padded", "tensor_bytes"),
    "measuring": ("gap", "latencies", "size"),
    "correction": ("corrected",),
    "distillation": ("distil",),
    "families": ("family_of",),
    "layout": ("Layout",),
    "loading": ("load", "tokenizer_of"),
    "lowrank": ("Factors", "factors", "logit_error"),
    "planning": ("Plan", "plan"),
    "surgery": ("compress", "reduce"),
    "jacobian": ("half_range", "jacobian_norm", "row_bound"),
    "schedules": ("Schedule", "by_bound", "ramp", "uniform"),
    "budget": ("Curve", "Spending", "spend"),
    "units": ("Survey", "Unit", "rewrite", "survey"),
    "text": ("Batch", "answers", "batches_of", "passages", "pooled", "states"),
    "watching": ("rank_costs", "saturation", "verdicts"),
}
# A module is never named like a name it holds: importing it would hide the name.
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'headcount.allocation' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headcount.allocation.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
