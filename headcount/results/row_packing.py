"""Rows that take half the memory: dictionaries that share their list of names, and equal values kept once."""

from __future__ import annotations

from typing import Any, cast

from headcount.results.study import COLUMNS, Row

DISTINCT = 256  # values of a column from which on it is not worth looking for equal ones


class RowPacking:
    """Packs the rows of one study, row after row.

    What an object has is a dictionary, and those of all objects of a class share one list of names (PEP 412). So each
    row is the dictionary of an object that nobody keeps.

    >>> packed = RowPacking()
    >>> one, other = (packed({"task": "Wells " + "x", "heads": h, "nmse": 0.5}) for h in (1, 2))
    >>> one, one["task"] is other["task"], type(one)
    ({'task': 'Wells x', 'heads': 1, 'nmse': 0.5}, True, <class 'dict'>)
    """

    def __init__(self) -> None:
        self.kind = type("PackedRow", (), {})
        self.known: dict[str, dict[tuple[type, Any], Any] | None] = {name: {} for name in COLUMNS}
        self.known["run"] = None  # each has its own

    def __call__(self, row: Row) -> Row:
        """The same row, packed; one with a column that this package does not know stays as it is."""
        if not row.keys() <= self.known.keys():
            return row
        packed = self.kind()
        for name, value in row.items():
            known = self.known[name]
            if known is not None and value:  # zeros have a sign, which equal ones need not share
                value = known.setdefault((value.__class__, value), value)
                if len(known) > DISTINCT:
                    self.known[name] = None
            setattr(packed, name, value)
        return cast(Row, vars(packed))
