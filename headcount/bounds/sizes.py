"""What sizes may be: whole numbers from one up, positive reals; anything else is refused by name."""

from __future__ import annotations

import math

__all__ = ["at_least_one", "positive"]


def at_least_one(**sizes: int) -> None:
    """Refuse the first size below 1.

    >>> at_least_one(heads=0)
    Traceback (most recent call last):
    ...
    ValueError: heads must be at least 1, got 0
    """
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def positive(**numbers: float) -> None:
    """Refuse the first number that is not finite and above zero.

    >>> positive(eps=-0.5)
    Traceback (most recent call last):
    ...
    ValueError: eps must be a finite number above 0, got -0.5
    """
    for name, number in numbers.items():
        if not (math.isfinite(number) and number > 0):
            raise ValueError(f"{name} must be a finite number above 0, got {number}")
