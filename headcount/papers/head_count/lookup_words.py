"""Why a task of so many look-ups is predicted to need so many heads, as a page says it."""

from __future__ import annotations

from headcount.numerals import counted, spelt
from headcount.sources import Source

THEOREM = Source("yu2025heads", "Theorem 2")


def one_head_each(lookups: int | None) -> str:
    """The prediction in words; nothing where the look-ups of a task are not known.

    >>> one_head_each(2)[:41]
    'That is two look-ups in one sequence. A s'
    """
    if lookups is None:
        return ""
    looked_up = f"{spelt(lookups)} look-up{'s' if lookups > 1 else ''}"
    return (
        f"That is {looked_up} in one sequence. A softmax head brings back the token with the largest score, so it can "
        "serve one look-up. With fewer heads than look-ups the networks after attention must tell apart what the heads "
        "have mixed, and while weights are bounded how large they must be grows exponentially with the length of the "
        "sequence; with as many heads as look-ups it does not grow with the length at all "
        f"({THEOREM}). So the error should stop falling at {counted(lookups, 'head')}, at every length."
    )
