"""A group of members under the address of its lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from headcount.results.store import address
from headcount.training.member import Member, Recipe
from headcount.training.memory import Padded


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
        return cls(tuple(members), runs, bank_address(runs))

    def lacking(self, missing: set[str]) -> list[Member]:
        """Those of its members whose runs are missing."""
        return [member for member, run in zip(self.members, self.runs, strict=True) if run in missing]

    def to_train(self, missing: set[str], trained_in: Mapping[str, str]) -> list[Member]:
        """Those whose runs are missing, with all that were trained beside them before their rows were lost.

        `trained_in` says in which bank the rows that are there were trained. How numbers are rounded depends on who
        shares a bank: a row that was lost comes back bit for bit if it is trained beside the same members again.
        """
        for bank in dict.fromkeys(trained_in.values()):
            together = {run for run in self.runs if run in missing or trained_in.get(run) == bank}
            if bank_address([run for run in self.runs if run in together]) == bank:
                return self.lacking(together)
        return self.lacking(missing)

    def touched(self, recipe: Recipe) -> int:
        """Bytes that a step goes over: what orders banks by the time they take."""
        return reduce(Padded.plus, self.members[1:], Padded.of(self.members[0])).touched(recipe)

    def __str__(self) -> str:
        first = self.members[0]
        return f"a bank of {len(self.members)} networks ({type(first.task).__name__}, length {first.task.length})"


def bank_address(runs: Sequence[str]) -> str:
    """The address of a bank that trains these runs."""
    return address({"runs": tuple(runs)})
