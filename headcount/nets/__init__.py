"""Architectures as frozen values, and the plain modules they describe."""

from headcount.nets.architecture import Architecture, Parameters, parameters
from headcount.nets.transformer import Transformer
from headcount.nets.weighing import Weighing, hardmax, softmax

__all__ = ["Architecture", "Parameters", "Transformer", "Weighing", "hardmax", "parameters", "softmax"]
