"""What one layer's heads can do at once: a head may serve the tokens and the class token, and then its loads add.

Keys, values and output matrix of a head are the same for whoever asks. So what it does for the tokens and what it does
for the class token lie side by side in its dimensions: each a score of its own, and numbers that must come out
separated. What rides along needs no score, only dimensions. Only where both read tokens by their places, by the same
keys and the same values, does one load serve both: so the induction head looks one back and reads the last letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from headcount.papers.infoflow.demands import Act


@dataclass(frozen=True)
class Limits:
    """The largest exponents allowed: of retrieved tokens and full states, and of numbers that must be separated."""

    features: Fraction
    separated: Fraction

    def admits(self, act: Act, head_dim: int, carried: int) -> bool:
        """Whether a head that does nothing else can do it, or its part of it."""
        limit = self.separated if act.mode == "positions" else self.features
        return carried <= limit * head_dim and act.scores <= head_dim


@dataclass(frozen=True, order=True)
class Duty:
    """What one head does for one asker: how many numbers it carries, by how many different scores.

    `raw` where it reads a token as it stands, by its place.
    """

    load: int
    scores: int = 1
    raw: bool = False


@dataclass(frozen=True)
class Packing:
    """`heads` heads of one dimension under limits; `shared` numbers fit where a head serves more than one asker."""

    heads: int
    head_dim: int
    limits: Limits

    @property
    def shared(self) -> int:
        return int(self.limits.separated * self.head_dim)

    def spare(self, tokens: list[Duty], cls: list[Duty], both: list[Duty], rides: int) -> int:
        """The dimensions left to the class token's idle heads, or -1 where the duties do not fit.

        >>> two = Packing(1, 2, Limits(Fraction(2), Fraction(1)))
        >>> two.spare([Duty(1)], [Duty(1)], [], rides=0), two.spare([Duty(1)], [Duty(2)], [], rides=0)
        (0, -1)
        """
        tokens, cls, both = self._read_together(tokens, cls, both)
        heads = self.heads - len(both)
        if max(len(tokens), len(cls)) > heads or not self._carries([*tokens, *cls, *both], rides):
            return -1
        pairs = self._pairs(tokens, cls)
        if len(tokens) + len(cls) - len(pairs) > heads:
            return -1
        alone = sum(min(duty.load, self.head_dim) for duty in tokens) - sum(min(load, self.head_dim) for load in pairs)
        return max(0, (heads - len(cls)) * self.head_dim - alone)

    def _read_together(
        self, tokens: list[Duty], cls: list[Duty], both: list[Duty]
    ) -> tuple[list[Duty], list[Duty], list[Duty]]:
        """One head reads by place for tokens and class token alike, wherever both do."""
        token_reads, cls_reads = ([duty for duty in duties if duty.raw] for duties in (tokens, cls))
        number = min(len(token_reads), len(cls_reads)) if self.head_dim > 1 else 0
        others = [[duty for duty in duties if not duty.raw] for duties in (tokens, cls)]
        return others[0] + token_reads[number:], others[1] + cls_reads[number:], both + token_reads[:number]

    def _carries(self, duties: list[Duty], rides: int) -> bool:
        """Whether what rides along finds room: beside duties, however they are paired, the same numbers are free."""
        small = [duty.load for duty in duties if duty.load <= self.shared]
        return not rides or rides + sum(small) <= (self.heads - len(duties) + len(small)) * self.shared

    def _pairs(self, tokens: list[Duty], cls: list[Duty]) -> list[int]:
        """The loads of tokens' duties that can share a head with one of the class token's: the heaviest set.

        Which duties can be matched at once is a matroid, so the heaviest first is best, and as many as can be.
        """
        able = [duty.load for duty in tokens if duty.scores + 1 <= self.head_dim]
        chosen: list[int] = []
        for load in sorted(able, reverse=True):
            if self._matched(sorted([*chosen, load], reverse=True), sorted(cls)):
                chosen.append(load)
        return chosen

    def _matched(self, loads: list[int], cls: list[Duty]) -> bool:
        """The heaviest beside the lightest."""
        return len(loads) <= len(cls) and all(
            load + duty.load <= self.shared for load, duty in zip(loads, cls, strict=False)
        )
