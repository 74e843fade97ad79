"""Numbers and dates as people read them: short figures, counted nouns, bytes, counts spelt out, runs by their ends."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, Literal

WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


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


def cell(value: Any, number: Callable[[float], str] = lambda value: short(value, missing="-")) -> str:
    """A value as it stands in a table.

    >>> cell(None), cell(True), cell(12345), cell(0.0000123), cell("zero heads")
    ('-', 'yes', '12,345', '1.23e-5', 'zero heads')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)


def percent(share: float) -> str:
    """A share with all its digits: a level of confidence is never rounded to certainty.

    >>> percent(0.95), percent(0.9999), percent(0.5)
    ('95%', '99.99%', '50%')
    """
    return f"{100 * share:.12g}%"


Side = Literal["lower", "upper", "exact"]


def outward(value: float, digits: int, side: Side) -> float:
    """A bound in a few digits, rounded so that it stays one: a lower bound never up, an upper one never down.

    >>> outward(30.47, 3, "lower"), outward(30.43, 3, "upper"), outward(30.47, 3, "exact"), outward(6.0, 3, "lower")
    (30.4, 30.5, 30.47, 6.0)
    """
    if side == "exact" or not math.isfinite(value):
        return value
    rounding = ROUND_FLOOR if side == "lower" else ROUND_CEILING
    return float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))))


def power(exponent: float, side: Side = "exact") -> str:
    """An exponent as it is read: three digits, large ones whole, never a power of ten in a power.

    >>> power(1.4545), power(8.0), power(100000.0), power(51234.4)
    ('1.45', '8', '100,000', '51,234')
    """
    if exponent < 1000:
        return f"{outward(exponent, 3, side):.3g}"
    return f"{({'lower': math.floor, 'upper': math.ceil}.get(side, round))(exponent):,}"


def magnitude(count: int) -> str:
    """A count with commas, or by its power of ten where nobody would read the digits.

    >>> magnitude(25141), magnitude(3 * 10**11), magnitude(10**6000)
    ('25,141', '10^11', '10^6,000')
    """
    if count < 10**9:
        return f"{count:,}"
    digits = math.floor(math.log10(count) + 1e-9)  # str() of more than 4,300 digits is refused by Python
    return f"10^{digits:,}"


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


def spoken_bytes(count: float) -> str:
    """Bytes as one says them.

    >>> spoken_bytes(3 * 2**20), spoken_bytes(5 * 2**29), spoken_bytes(1536), spoken_bytes(7)
    ('3 MB', '2.5 GB', '2 kB', '7 bytes')
    """
    if count < 2**10:
        return f"{count:.0f} bytes"
    if count < 2**30:
        return f"{count / 2**20:.0f} MB" if count >= 2**20 else f"{count / 2**10:.0f} kB"
    return f"{count / 2**30:.1f} GB" if count < 2**90 else "more memory than there is anywhere"


def bytes_from(text: int | str) -> int:
    """A size of memory as people write it.

    >>> bytes_from("4G"), bytes_from("1.5M"), bytes_from("512 kB"), bytes_from(7)
    (4294967296, 1572864, 524288, 7)
    >>> bytes_from("much")
    Traceback (most recent call last):
    ...
    ValueError: a size of memory is a number with K, M, G or T behind it (4G), got 'much'
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)i?B?\s*", str(text), flags=re.IGNORECASE)
    if not match:
        raise ValueError(f"a size of memory is a number with K, M, G or T behind it (4G), got {text!r}")
    return int(float(match[1]) * UNITS[match[2].upper()])


def spoken_time(time: float) -> str:
    """A time as one says it.

    >>> spoken_time(4.2), spoken_time(200), spoken_time(5400)
    ('4 s', '3 min 20 s', '1 h 30 min')
    """
    rounded = round(time)
    if rounded < 60:
        return f"{max(1, rounded)} s"
    if rounded < 3600:
        return f"{rounded // 60} min" + (f" {rounded % 60} s" if rounded % 60 and rounded < 600 else "")
    return f"{rounded // 3600} h" + (f" {rounded % 3600 // 60} min" if rounded % 3600 >= 60 else "")


def today() -> str:
    """The date as pages and files state it, everywhere the same day."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def now() -> str:
    """The date and the minute."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
