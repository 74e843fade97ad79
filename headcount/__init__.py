"""headcount: a theorem and an experiment are functions of the same sizes.

The nouns and verbs below load their room when first used, so that `import headcount` needs no torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_ROOMS = (
    "allocation",
    "bounds",
    "constructions",
    "fits",
    "infoflow",
    "lens",
    "nets",
    "papers",
    "report",
    "results",
    "sources",
    "ssm",
    "structure",
    "tasks",
    "training",
)
_NAMES = {
    "Architecture": "nets",
    "Bound": "results",
    "Built": "constructions",
    "Certificate": "constructions",
    "Source": "sources",
    "Store": "results",
    "Study": "results",
    "advise": "infoflow",
    "build": "constructions",
    "knee": "fits",
    "predict": "infoflow",
    "sweep": "training",
}

__all__ = ["__version__", *_ROOMS, *_NAMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"headcount.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"headcount.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'headcount' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
