"""InfoFlow: A Framework for Multi-Layer Transformer Analysis (Yu et al., arXiv 2605.17930).

What each position knows is a set of tokens; a layer's heads move information between sets at a price that is cheap or
grows like a power of 1/eps. `predict` answers for one architecture, `advise` looks for the cheapest, `build` returns
the network that a theorem promises for a task, with a certificate.

The calculus is sets and numbers: only networks, probes and experiments need torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.lazy import lazily
from headcount.papers.infoflow.advise import Advice, Choice, Frontier, advise
from headcount.papers.infoflow.constructible import Blueprint, blueprints
from headcount.papers.infoflow.describe import read_structure, structure_from_toml
from headcount.papers.infoflow.explain import KnownSet, Statement, Step
from headcount.papers.infoflow.flow_picture import draw
from headcount.papers.infoflow.predict import predict
from headcount.papers.infoflow.prediction import Caution, Fix, Limit, Prediction

if TYPE_CHECKING:
    from headcount.papers.infoflow.networks.build import build
    from headcount.papers.infoflow.networks.carried import carried_retrievals
    from headcount.papers.infoflow.networks.gated import gated_second_largest
    from headcount.papers.infoflow.networks.induction_head import induction_head
    from headcount.papers.infoflow.networks.kth_largest import kth_largest
    from headcount.papers.infoflow.networks.looked_up import looked_up
    from headcount.papers.infoflow.networks.pair import opposite_pair
    from headcount.papers.infoflow.networks.pair_max import pair_max
    from headcount.papers.infoflow.networks.positions import position_sum, retrievals_by_position
    from headcount.papers.infoflow.probes import (
        Asks,
        Attends,
        Contains,
        NetworkProbes,
        asked_forms,
        class_attention,
        contained,
        probe_network,
    )

__all__ = [
    "Advice",
    "Asks",
    "Attends",
    "Blueprint",
    "Caution",
    "Choice",
    "Contains",
    "Fix",
    "Frontier",
    "KnownSet",
    "Limit",
    "NetworkProbes",
    "Prediction",
    "Statement",
    "Step",
    "advise",
    "asked_forms",
    "blueprints",
    "build",
    "carried_retrievals",
    "class_attention",
    "contained",
    "draw",
    "gated_second_largest",
    "induction_head",
    "kth_largest",
    "looked_up",
    "opposite_pair",
    "pair_max",
    "position_sum",
    "predict",
    "probe_network",
    "read_structure",
    "retrievals_by_position",
    "structure_from_toml",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "networks.build": ("build",),
        "networks.carried": ("carried_retrievals",),
        "networks.gated": ("gated_second_largest",),
        "networks.induction_head": ("induction_head",),
        "networks.kth_largest": ("kth_largest",),
        "networks.looked_up": ("looked_up",),
        "networks.pair": ("opposite_pair",),
        "networks.pair_max": ("pair_max",),
        "networks.positions": ("position_sum", "retrievals_by_position"),
        "probes": (
            "Asks",
            "Attends",
            "Contains",
            "asked_forms",
            "class_attention",
            "contained",
            "NetworkProbes",
            "probe_network",
        ),
    },
)
