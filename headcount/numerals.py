"""Numbers as people read them: short figures, counted nouns, small counts spelt out, and runs by their ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["counted", "listed", "short", "spelt"]

WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def short(value: float | None, digits: int = 3, *, padded: bool = False, missing: str = "") -> str:
    """A number in a few digits, very small and very large ones with a power of ten.

    `padded` keeps zeros at the end, so that the digits of a column stand below each other; `missing` stands for what
    is None or not finite.

    >>> short(0.0000123), short(0.597), short(14.0), short(0.0), short(None)
    ('1.23e-5', '0.597', '14', '0', '')
    >>> short(0.1, 2, padded=True), short(4.36e-5, 2, padded=True), short(math.inf, missing="-")
    ('0.10', '4.4e-5', '-')
    """
    if value is None or not math.isfinite(value):
        return missing
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:#.{digits}g}".rstrip(".") if padded else f"{value:.{digits}g}"
    base, power = f"{value:.{digits - 1}e}".split("e")
    return f"{base}e{int(power)}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun.

    >>> counted(1, "head"), counted(3000, "head"), counted(2, "study", "studies")
    ('1 head', '3,000 heads', '2 studies')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def spelt(count: int) -> str:
    """A small count as a word.

    >>> spelt(0), spelt(4), spelt(40)
    ('no', 'four', '40')
    """
    return WORDS[count] if count < len(WORDS) else str(count)


def listed(values: Sequence[Any]) -> str:
    """Values in a row, a run of whole numbers by its ends.

    >>> listed((1, 2, 3, 4)), listed((8, 16, 32))
    ('1 to 4', '8, 16, 32')
    """
    if len(values) > 2 and tuple(values) == tuple(range(values[0], values[-1] + 1)):
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values))
