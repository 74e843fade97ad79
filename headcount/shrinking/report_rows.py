"""Rows of what `compress` reports, with their types. No torch."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["BeforeAfter", "JsonRow", "RankRow", "before_after"]

JsonRow = dict[str, object]  # what a value writes as JSON; read back by nobody but a person's program

BeforeAfter = dict[str, str | float | None]  # what ("") is compared, original, compact, ratio


class RankRow(TypedDict):
    """One layer's part: the rows that each of its heads keeps, their sum, and of how many."""

    layer: int
    part: str
    ranks: list[int]
    sum: int
    of: int


def before_after(what: str, before: float, after: float) -> BeforeAfter:
    """A figure of the original and of the smaller model, and their ratio.

    >>> before_after("parameters", 200, 150)["ratio"]
    0.75
    """
    return {"": what, "original": before, "compact": after, "ratio": after / before if before else None}
