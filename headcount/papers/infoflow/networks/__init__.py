"""The multi-layer constructions of the InfoFlow paper as networks with certificates, and `build` that chooses one."""

from headcount.papers.infoflow.networks.build import build
from headcount.papers.infoflow.networks.carried import carried_retrievals
from headcount.papers.infoflow.networks.gated import gated_second_largest
from headcount.papers.infoflow.networks.induction_head import induction_head
from headcount.papers.infoflow.networks.kth_largest import kth_largest
from headcount.papers.infoflow.networks.looked_up import looked_up
from headcount.papers.infoflow.networks.pair import opposite_pair
from headcount.papers.infoflow.networks.pair_max import pair_max
from headcount.papers.infoflow.networks.positions import position_sum, retrievals_by_position

__all__ = [
    "build",
    "carried_retrievals",
    "gated_second_largest",
    "induction_head",
    "kth_largest",
    "looked_up",
    "opposite_pair",
    "pair_max",
    "position_sum",
    "retrievals_by_position",
]
