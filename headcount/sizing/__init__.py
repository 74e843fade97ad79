"""How many heads for a real model: what each shape costs, what is known of its quality, and what would settle it.

`shape` ranks heads, head dimensions and key-value heads of one budget; `evidence_table` holds what was measured, each
row with its source; `pooled_change` is what at least three sources come to; `settling_experiment` writes the sweep that
decides between two shapes, with the interval it promises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.sizing.basis import Basis
    from headcount.sizing.costing import Footprint, footprint
    from headcount.sizing.evidence import EvidenceRow, EvidenceTable, evidence_table
    from headcount.sizing.known_models import known_shape
    from headcount.sizing.meta_analysis import PooledChange, pooled_change
    from headcount.sizing.model_configs import config_shape, read_config
    from headcount.sizing.model_shape import LayerShape, ModelShape, Wiring
    from headcount.sizing.ranked_shapes import ShapeAnswer, shape
    from headcount.sizing.settling import SettlingExperiment, settling_experiment

__all__ = [
    "Basis",
    "EvidenceRow",
    "EvidenceTable",
    "Footprint",
    "LayerShape",
    "ModelShape",
    "PooledChange",
    "SettlingExperiment",
    "ShapeAnswer",
    "Wiring",
    "config_shape",
    "evidence_table",
    "footprint",
    "known_shape",
    "pooled_change",
    "read_config",
    "settling_experiment",
    "shape",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "basis": ("Basis",),
        "evidence": ("EvidenceRow", "EvidenceTable", "evidence_table"),
        "costing": ("Footprint", "footprint"),
        "known_models": ("known_shape",),
        "model_configs": ("config_shape", "read_config"),
        "model_shape": ("LayerShape", "ModelShape", "Wiring"),
        "meta_analysis": ("PooledChange", "pooled_change"),
        "ranked_shapes": ("ShapeAnswer", "shape"),
        "settling": ("SettlingExperiment", "settling_experiment"),
    },
)
