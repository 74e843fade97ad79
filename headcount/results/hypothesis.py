"""What a theorem asks for, and whether it was seen to hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Hypothesis:
    """What a theorem asks for, and whether the program saw it: it `holds`, it `fails`, or it is `assumed`.

    Assumed is what sizes and task do not show, such as the weights of a network that is not at hand.

    >>> Hypothesis.checked("heads < retrievals", 5 < 4).status
    'fails'
    >>> print(Hypothesis("Assumption 1"))
    Assumption 1
    """

    says: str
    status: Literal["holds", "fails", "assumed"] = "assumed"
    short: str = ""  # for a sentence of few words; empty: as it is

    @classmethod
    def checked(cls, says: str, holds: bool | None, short: str = "") -> Hypothesis:
        """The hypothesis after a look: True, False, or None where nothing could be seen."""
        return cls(says, "assumed" if holds is None else "holds" if holds else "fails", short)

    @property
    def brief(self) -> str:
        """In the fewest words that say it."""
        return self.short or self.says

    def __str__(self) -> str:
        return self.says
