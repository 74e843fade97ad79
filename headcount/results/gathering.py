"""Values that belong together: of a cell's seeds, a layer's heads, a budget's forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of every key, both in the order in which they come.

    >>> grouped([("a", 1), ("b", 2), ("a", 3)])
    {'a': [1, 3], 'b': [2]}
    """
    groups = defaultdict[Key, list[Value]](list)
    for key, value in pairs:
        groups[key].append(value)
    return dict(groups)
