"""Linear state-space systems as values: responses, norms, shallow to deep and back.

The values need numpy and scipy alone; what trains them loads torch when first used.
"""

from __future__ import annotations

import importlib
from typing import Any

from headcount.ssm.chains import by_angle, by_modulus
from headcount.ssm.depths import entry_bounds, minimal_depth
from headcount.ssm.files import from_json, load, save, to_json
from headcount.ssm.interchange import (
    from_continuous,
    from_control,
    from_layer,
    from_sos,
    from_state_space,
    from_tf,
    from_zpk,
    to_control,
    to_sos,
    to_state_space,
    to_tf,
    to_zpk,
)
from headcount.ssm.layer import Layer
from headcount.ssm.values import DeepSSM, DiagonalSSM

_TRAINED = {"TrainableSSM": "trainable", "train_table": "training"}

__all__ = [
    "DeepSSM",
    "DiagonalSSM",
    "Layer",
    "by_angle",
    "by_modulus",
    "entry_bounds",
    "from_continuous",
    "from_control",
    "from_json",
    "from_layer",
    "from_sos",
    "from_state_space",
    "from_tf",
    "from_zpk",
    "load",
    "minimal_depth",
    "save",
    "to_control",
    "to_json",
    "to_sos",
    "to_state_space",
    "to_tf",
    "to_zpk",
    *_TRAINED,  # pyright: ignore[reportUnsupportedDunderAll]
]


def __getattr__(name: str) -> Any:
    if name in _TRAINED:
        return getattr(importlib.import_module(f"headcount.ssm.{_TRAINED[name]}"), name)
    raise AttributeError(f"module 'headcount.ssm' has no attribute {name!r}")
