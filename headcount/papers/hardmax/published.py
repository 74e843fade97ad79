"""The counts of blocks that the paper states, at the sizes that are built here."""

from __future__ import annotations

from headcount.papers.hardmax.bounds import interpolation_blocks

CLASSIFIED = (4, 8, 16, 32, 64)
SETS = ((1, 2, 3, 2, 1), (2, 2, 3, 2, 2), (3, 2, 3, 2, 3))


def stated_blocks(outputs: tuple[int, ...]) -> int:
    """2 sum m + 2N + 1.

    >>> [stated_blocks(m) for m in SETS]
    [29, 33, 37]
    """
    return int(interpolation_blocks(outputs).value)
