"""Architectures as frozen values, and the plain modules they describe.

The modules load when first used, so that a shape can be stated and counted without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headcount.nets.architecture import Architecture, Parameters, parameters

if TYPE_CHECKING:
    from headcount.nets.transformer import Transformer
    from headcount.nets.weighing import Weighing, hardmax, softmax

__all__ = ["Architecture", "Parameters", "Transformer", "Weighing", "hardmax", "parameters", "softmax"]

_WITH_TORCH = {"Transformer": "transformer", "Weighing": "weighing", "hardmax": "weighing", "softmax": "weighing"}


def __getattr__(name: str) -> Any:
    if name in _WITH_TORCH:
        return getattr(importlib.import_module(f"headcount.nets.{_WITH_TORCH[name]}"), name)
    raise AttributeError(f"module 'headcount.nets' has no attribute {name!r}")
