"""Effect of Depth on the Expressivity of Deep Linear State-Space Models (ICLR 2026 submission 17007).

Linear state-space systems as values: responses, norms, shallow to deep and back. The same response needs smaller
weights when the layers are more (`entry_bounds`, `minimal_depth`, `DiagonalSSM.deepen`), until depth stops paying.

The values need numpy and scipy alone; what trains them loads torch when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily
from headcount.papers.ssm.chains import by_angle, by_modulus
from headcount.papers.ssm.depths import entry_bounds, minimal_depth
from headcount.papers.ssm.interchange import (
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
from headcount.papers.ssm.layer import Layer
from headcount.papers.ssm.system_files import from_json, load, save, to_json
from headcount.papers.ssm.systems import DeepSSM, DiagonalSSM

if TYPE_CHECKING:
    from headcount.papers.ssm.experiments import train_table
    from headcount.papers.ssm.streaming import StreamingFilter, export, to_module
    from headcount.papers.ssm.trainable import TrainableSSM

__all__ = [
    "DeepSSM",
    "DiagonalSSM",
    "Layer",
    "StreamingFilter",
    "TrainableSSM",
    "by_angle",
    "by_modulus",
    "entry_bounds",
    "export",
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
    "to_module",
    "to_sos",
    "to_state_space",
    "to_tf",
    "to_zpk",
    "train_table",
]


__getattr__, __dir__ = lazily(
    __name__,
    {
        "experiments": ("train_table",),
        "streaming": ("StreamingFilter", "export", "to_module"),
        "trainable": ("TrainableSSM",),
    },
)
