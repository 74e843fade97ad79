"""Looking into trained networks: where heads attend, and which tokens a state linearly contains."""

from headcount.lens.keeping import load_net, save_net
from headcount.lens.probes import Attends, Contains, class_attention, contained

__all__ = ["Attends", "Contains", "class_attention", "contained", "load_net", "save_net"]
