"""How many heads does my data need? Read sequences, split them without leakage, train banks, say what was found."""

from headcount.measuring.fitted import FittedModel
from headcount.measuring.loading import load
from headcount.measuring.measure import measure
from headcount.measuring.planning import StudyPlan
from headcount.measuring.sequences import Sequences, sequences

__all__ = ["FittedModel", "StudyPlan", "Sequences", "load", "measure", "sequences"]
