"""What a statement about shapes rests on; one place, so that a claim's basis can take it over."""

from __future__ import annotations

from enum import Enum

__all__ = ["Basis"]


class Basis(Enum):
    """From firm to loose: a theorem, seeds trained here, at least three sources elsewhere, or what people do.

    >>> Basis.weakest([Basis.PROVED, Basis.ELSEWHERE])
    <Basis.ELSEWHERE: 'measured elsewhere'>
    """

    PROVED = "proved"
    HERE = "measured here"
    ELSEWHERE = "measured elsewhere"
    HABIT = "habit"

    @classmethod
    def weakest(cls, several: list[Basis]) -> Basis:
        """What a chain of statements rests on: its loosest link; nothing at all is habit."""
        order = list(cls)
        return max(several, key=order.index, default=cls.HABIT)
