"""A group of members under the address of its lease."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from headcount.results.store import address
from headcount.training.member import Member, Recipe
from headcount.training.memory import Padded

__all__ = ["LeasedBank"]


@dataclass(frozen=True)
class LeasedBank:
    """A group of members, the runs they stand for, and the address under which a process has them on lease."""

    members: tuple[Member, ...]
    runs: tuple[str, ...]
    address: str

    @classmethod
    def of(cls, members: Sequence[Member], recipe: Recipe) -> LeasedBank:
        """The bank of these members."""
        runs = tuple(member.run(recipe) for member in members)
        return cls(tuple(members), runs, address({"runs": runs}))

    def lacking(self, missing: set[str]) -> list[Member]:
        """Those of its members whose runs are missing."""
        return [member for member, run in zip(self.members, self.runs, strict=True) if run in missing]

    def touched(self, recipe: Recipe) -> int:
        """Bytes that a step goes over: what orders banks by the time they take."""
        return reduce(Padded.plus, self.members[1:], Padded.of(self.members[0])).touched(recipe)

    def __str__(self) -> str:
        first = self.members[0]
        return f"a bank of {len(self.members)} networks ({type(first.task).__name__}, length {first.task.length})"
