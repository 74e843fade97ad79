"""Architectures as frozen values, and the plain modules they describe.

A shape can be stated and counted without torch; modules load it when first used.
"""

from typing import TYPE_CHECKING

from headcount.lazy import lazily

if TYPE_CHECKING:
    from headcount.nets.architecture import Architecture, Parameters, parameters
    from headcount.nets.saved import load_net, save_net
    from headcount.nets.transformer import Transformer
    from headcount.nets.weighing import Weighing, hardmax, hardmax_within, softmax

__all__ = [
    "Architecture",
    "Parameters",
    "Transformer",
    "Weighing",
    "hardmax",
    "hardmax_within",
    "load_net",
    "parameters",
    "save_net",
    "softmax",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "architecture": (
            "Architecture",
            "Parameters",
            "parameters",
        ),
        "transformer": ("Transformer",),
        "weighing": (
            "Weighing",
            "hardmax",
            "hardmax_within",
            "softmax",
        ),
        "saved": (
            "load_net",
            "save_net",
        ),
    },
)
