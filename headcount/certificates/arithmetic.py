"""Small tools of every plan: a bound that stays one in float64, and the least number that fits."""

from __future__ import annotations

from collections.abc import Callable


def up(value: float) -> float:
    """A little more than a number that was computed in float64, so that it stays a bound.

    The formulas it is used on are a few hundred operations on numbers of one sign, off by at most 1e3 u = 1e-13.

    >>> up(1.0) > 1.0, up(0.0)
    (True, 0.0)
    """
    return value * (1 + 1e-12)


def smallest(fits: Callable[[float], bool], start: float) -> float:
    """The smallest positive number that fits, to 1 part in 10^12; all larger ones must fit. `start` is a guess.

    >>> round(smallest(lambda beta: beta**2 >= 2, start=1.0), 9)
    1.414213562
    """
    high = start
    while not fits(high):
        high *= 1.25
    low = high / 1.25
    while low > 1e-300 and fits(low):
        low, high = low / 1.25, low
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def fewest(fits: Callable[[int], bool]) -> int:
    """The smallest whole number >= 1 that fits; all larger ones must fit.

    >>> fewest(lambda pieces: pieces * pieces >= 50)
    8
    """
    high = 1
    while not fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
