"""A task in a few lines of TOML, for a person without code."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from headcount.structure import Structure

__all__ = ["read_structure", "structure_from_toml"]

WHOLE = ("length", "token_dim", "count", "order", "rank", "window", "offset")
LISTS = {"positions": int, "after": str}


def read_structure(path: str | Path) -> Structure:
    """The structure that a TOML file describes."""
    path = Path(path)
    return structure_from_toml(path.read_text(), where=str(path))


def structure_from_toml(text: str, *, where: str = "the task") -> Structure:
    """The structure that TOML text describes; whatever is wrong is refused by the field's name.

    >>> structure_from_toml('''
    ... length = 64
    ... token_dim = 4
    ... [[retrievals]]
    ... name = "best pairs"
    ... count = 2
    ... order = 2
    ... ''').retrievals[0].order
    2
    >>> structure_from_toml("length = 64")
    Traceback (most recent call last):
    ...
    ValueError: the task: the structure lacks 'token_dim'
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{where} is not TOML: {problem}") from None
    try:
        _check_types(data)
        return Structure.from_json(data)
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}") from None


def _check_types(data: dict[str, Any]) -> None:
    retrievals = data.get("retrievals", [])
    if not isinstance(retrievals, list) or not all(isinstance(r, dict) for r in retrievals):
        raise ValueError("retrievals must be tables, each begun by a line [[retrievals]]")
    for table in (data, *retrievals):
        for key, value in table.items():
            _check(key, value)


def _check(key: str, value: Any) -> None:
    if key in WHOLE and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{key} must be a whole number, got {value!r}")
    if key == "name" and not isinstance(value, str):
        raise ValueError(f"name must be text, got {value!r}")
    if key in LISTS and not (isinstance(value, list) and all(type(v) is LISTS[key] for v in value)):
        kind = "whole numbers" if LISTS[key] is int else "names"
        raise ValueError(f"{key} must be a list of {kind}, got {value!r}")
