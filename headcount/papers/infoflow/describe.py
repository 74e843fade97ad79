"""A task in a few lines of TOML, for a person without code."""

from __future__ import annotations

import tomllib
from pathlib import Path

from headcount.files import text_in
from headcount.structure import Structure


def read_structure(path: str | Path) -> Structure:
    """The structure that a TOML file describes."""
    path = Path(path)
    return structure_from_toml(text_in(path), where=str(path))


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
        return Structure.from_json(data)
    except ValueError as problem:
        raise ValueError(f"{where}: {problem}") from None
