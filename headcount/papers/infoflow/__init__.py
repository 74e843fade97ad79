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
    from headcount.papers.infoflow.networks import (
        build,
        carried_retrievals,
        gated_second_largest,
        induction_head,
        kth_largest,
        looked_up,
        opposite_pair,
        pair_max,
        position_sum,
        retrievals_by_position,
    )
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
        "networks": (
            "build",
            "gated_second_largest",
            "induction_head",
            "kth_largest",
            "looked_up",
            "opposite_pair",
            "pair_max",
            "position_sum",
            "retrievals_by_position",
            "carried_retrievals",
        ),
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
