"""Many networks trained as one bank, on CPU or GPU, and sweeps that survive a crash."""

from headcount.kernels.bank import Bank
from headcount.kernels.rate_schedule import Schedule, cosine, warmup_stable_decay
from headcount.training.loop import Outcome, train
from headcount.training.member import Given, Member, Recipe
from headcount.training.rate_search import RateSearch
from headcount.training.spec import Sweep
from headcount.training.sweeps import sweep
from headcount.training.width_factors import Widths, widths

__all__ = [
    "Bank",
    "Given",
    "Member",
    "Outcome",
    "RateSearch",
    "Recipe",
    "Schedule",
    "Sweep",
    "Widths",
    "cosine",
    "sweep",
    "train",
    "warmup_stable_decay",
    "widths",
]
