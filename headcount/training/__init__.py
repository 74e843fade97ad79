"""Many networks trained as one bank, on CPU or GPU, and sweeps that survive a crash."""

from headcount.training.bank import Bank
from headcount.training.loop import Outcome, train
from headcount.training.member import Given, Member, Recipe
from headcount.training.spec import Sweep
from headcount.training.sweeps import sweep

__all__ = ["Bank", "Given", "Member", "Outcome", "Recipe", "Sweep", "sweep", "train"]
