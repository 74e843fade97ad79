"""How many heads does my data need? Read sequences, split them without leakage, train banks, say what was found."""

from typing import TYPE_CHECKING, Any

from headcount.measuring.fitted import FittedModel
from headcount.measuring.loading import load
from headcount.measuring.measure import measure
from headcount.measuring.planning import StudyPlan
from headcount.measuring.sequences import Sequences, sequences

if TYPE_CHECKING:
    from headcount.measuring.estimators import HeadcountClassifier, HeadcountRegressor

__all__ = [
    "FittedModel",
    "HeadcountClassifier",
    "HeadcountRegressor",
    "Sequences",
    "StudyPlan",
    "load",
    "measure",
    "sequences",
]


def __getattr__(name: str) -> Any:
    """The estimators, which need scikit-learn, when they are first asked for."""
    if name not in ("HeadcountClassifier", "HeadcountRegressor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headcount.measuring import estimators

    return getattr(estimators, name)
