"""Values that travel between rooms: a bound, a study, the store that keeps its rows."""

from headcount.results.bound import Bound, Hypothesis
from headcount.results.store import Store, read_study
from headcount.results.study import Study

__all__ = ["Bound", "Hypothesis", "Store", "Study", "read_study"]
