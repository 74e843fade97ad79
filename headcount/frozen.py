"""Frozen values as JSON and back: the shape that `tasks.describe` writes, read again for this package's own classes."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

__all__ = ["class_named", "name_of", "plain", "rebuilt"]


def plain(value: Any) -> Any:
    """A frozen value as JSON: its class and the values of its fields.

    >>> from headcount.certificates.domains import Box
    >>> plain(Box(4, 2, 0.0, 1.0))["is"]
    'headcount.certificates.domains:Box'
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"is": name_of(type(value)), **fields}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return value


def rebuilt(data: Any) -> Any:
    """The frozen value that `plain` described; lists become tuples.

    >>> from headcount.certificates.domains import Box
    >>> rebuilt(plain(Box(4, 2, 0.0, 1.0)))
    Box(length=4, token_dim=2, low=0.0, high=1.0)
    """
    if isinstance(data, list):
        return tuple(rebuilt(v) for v in data)
    if isinstance(data, dict) and "is" in data:
        cls = class_named(data["is"])
        if not dataclasses.is_dataclass(cls):
            raise ValueError(f"the file names {data['is']!r}, which is not a value this package can rebuild")
        return class_named(data["is"])(**{k: rebuilt(v) for k, v in data.items() if k != "is"})
    return data


def name_of(cls: type) -> str:
    """`module:Class`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def class_named(name: str) -> Any:
    """The class of this package that `module:Class` names; a file may not make us import what a stranger wrote."""
    module, _, attribute = name.partition(":")
    if not module.startswith("headcount."):
        raise ValueError(f"the file names {name!r}, which is not part of headcount; give your own task as task=...")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError):
        raise ValueError(f"the file names {name!r}, which this version of headcount does not have") from None
