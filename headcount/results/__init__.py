"""Values that travel between rooms: a bound, a claim, a study, the store that keeps its rows."""

from headcount.results.bound import Bound
from headcount.results.claim import Claim
from headcount.results.hypothesis import Hypothesis
from headcount.results.result import Result
from headcount.results.store import Store, read_study
from headcount.results.study import Study
from headcount.results.verdicts import Basis, Comparison, Evidence, Predicate

__all__ = [
    "Basis",
    "Bound",
    "Claim",
    "Comparison",
    "Evidence",
    "Hypothesis",
    "Predicate",
    "Result",
    "Store",
    "Study",
    "read_study",
]
