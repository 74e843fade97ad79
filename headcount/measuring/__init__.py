"""How many heads does my data need? Read sequences, split them without leakage, train banks, say what was found."""

from headcount.measuring.loading import load
from headcount.measuring.measure import measure
from headcount.measuring.planning import Plan
from headcount.measuring.sequences import Sequences, sequences

__all__ = ["Plan", "Sequences", "load", "measure", "sequences"]
