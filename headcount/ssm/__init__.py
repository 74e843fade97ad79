"""Linear state-space systems as values: responses, norms, shallow to deep and back."""

from headcount.ssm.chains import by_angle, by_modulus
from headcount.ssm.layer import Layer
from headcount.ssm.values import DeepSSM, DiagonalSSM

__all__ = ["DeepSSM", "DiagonalSSM", "Layer", "by_angle", "by_modulus"]
