"""Is attention worth it on my data, and how many heads? Sequences, an equal contest, an answer, a page."""

from typing import TYPE_CHECKING, Any

from headcount.measuring.fitted import FittedModel
from headcount.measuring.loading import load
from headcount.measuring.measure import measure
from headcount.measuring.measured_page import measured, write_measured
from headcount.measuring.measurement import Measurement
from headcount.measuring.planning import StudyPlan
from headcount.measuring.sequences import Sequences, sequences

if TYPE_CHECKING:
    from headcount.measuring.estimators import Classifier, Regressor

__all__ = [
    "Classifier",
    "FittedModel",
    "Measurement",
    "Regressor",
    "Sequences",
    "StudyPlan",
    "load",
    "measure",
    "measured",
    "sequences",
    "write_measured",
]


def __getattr__(name: str) -> Any:
    """The estimators, which need scikit-learn, when they are first asked for."""
    if name not in ("Classifier", "Regressor"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headcount.measuring import estimators

    return getattr(estimators, name)
