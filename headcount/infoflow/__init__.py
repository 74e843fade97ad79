"""Say in advance which depth, heads and dimensions a task needs: information sets and their prices, never tensors.

`predict` answers for one architecture, `advise` looks for the cheapest. Nothing here needs torch.
"""

from headcount.infoflow.advise import Advice, Choice, Frontier, advise
from headcount.infoflow.describe import read_structure, structure_from_toml
from headcount.infoflow.drawing import draw
from headcount.infoflow.exhaustive import exhaustive_cost
from headcount.infoflow.predict import predict
from headcount.infoflow.prediction import Known, Prediction, Statement, Step

__all__ = [
    "Advice",
    "Choice",
    "Frontier",
    "Known",
    "Prediction",
    "Statement",
    "Step",
    "advise",
    "draw",
    "exhaustive_cost",
    "predict",
    "read_structure",
    "structure_from_toml",
]
