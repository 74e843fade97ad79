"""What a task asks, in words a program can read: which tokens are looked up, how compared, and where.

`tasks` state a `Structure`, `infoflow` reads it; neither needs tensors for it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headcount.frozen import decode
from headcount.refusals import nearest

# What can be known of a retrieval's scores, for the theorems whose hypotheses speak of them.
SCORES = {
    "": "nothing is stated",
    "wells": "smooth features with distinct minimisers, positive definite Hessians and a combination that feels each",
    "linear": "<a_i, x_t> with distinct rays a_i, added, on a domain with interior",
    "number": "the token itself, a number",
    "opposite": "one bilinear form over pairs that is negative definite on a plane, or the distance from cancelling",
    "other": "known, and of none of the kinds that a lower bound speaks about",
}


@dataclass(frozen=True)
class Retrieval:
    """One kind of look-up, of which the target makes `count` that differ only in their score.

    `order` tokens are compared jointly (1: max over t; 2: over pairs; 3: over triples), and the one wanted is
    the `rank`-th largest. It searches `window` positions (None: all), or reads the fixed `positions` and then
    compares nothing (order 0). `after` names earlier retrievals whose finding enters its score: a chain. The token
    wanted stands `offset` places after the one found (1: its successor, as in an induction head). `score` is what is
    known of the scores, a key of `SCORES`: a lower bound reads there whether its hypotheses hold. `beside` are the
    places, relative to t, of tokens that enter the score of t with it: max_t of x_t + x_(t+1) has beside=(1,).
    `summed` says that of each token read, at the positions or beside, only so many numbers enter, in a sum: one where
    scores are linear in every token.

    >>> Retrieval("maxima", count=4).order
    1
    >>> Retrieval("first three", positions=(0, 1, 2)).order
    0
    """

    name: str
    count: int = 1
    order: int = -1  # -1: what the other fields imply
    rank: int = 1
    window: int | None = None
    positions: tuple[int, ...] = ()
    summed: int = 0  # of what stands there only a sum of so many numbers enters; 0: every token does
    after: tuple[str, ...] = ()
    offset: int = 0
    score: str = ""
    beside: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.order == -1:
            object.__setattr__(self, "order", 0 if self.positions else 1)
        for name, least in (("count", 1), ("order", 0), ("rank", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"retrieval {self.name!r}: {name} must be at least {least}, got {getattr(self, name)}")
        if self.positions and self.order != 0:
            raise ValueError(
                f"retrieval {self.name!r}: positions are read, not compared, so order must be 0, got {self.order}"
            )
        if self.order == 0 and not self.positions:
            raise ValueError(f"retrieval {self.name!r}: order 0 reads fixed positions, and positions is empty")
        if self.positions and self.window is not None:
            raise ValueError(f"retrieval {self.name!r}: give window or positions, not both")
        for name, plain in (("count", 1), ("rank", 1), ("offset", 0)):
            if self.positions and getattr(self, name) != plain:
                raise ValueError(
                    f"retrieval {self.name!r}: fixed positions are read once, so {name} must be {plain}, "
                    f"got {getattr(self, name)}"
                )
        if self.beside and (self.order != 1 or 0 in self.beside or len(set(self.beside)) < len(self.beside)):
            raise ValueError(
                f"retrieval {self.name!r}: beside lists distinct places relative to one token (order 1), none of them "
                f"0, got {self.beside} at order {self.order}"
            )
        if self.summed < 0 or (self.summed and not (self.positions or self.beside)):
            raise ValueError(
                f"retrieval {self.name!r}: summed counts numbers read at positions or beside a token, got {self.summed}"
            )
        if self.window is not None and self.window < 1:
            raise ValueError(f"retrieval {self.name!r}: window must hold at least 1 position, got {self.window}")
        if self.score not in SCORES:
            raise ValueError(f"retrieval {self.name!r}: unknown score {self.score!r}; {nearest(self.score, SCORES)}")

    def numbers(self, token_dim: int) -> int:
        """How many numbers of each token one such look-up depends on: a score of a token's own is one number.

        >>> Retrieval("third", rank=3).numbers(8), Retrieval("pair", order=2).numbers(8)
        (1, 8)
        >>> Retrieval("sums", beside=(1,), summed=1).numbers(8)
        2
        """
        if self.order != 1 or self.after or self.offset or (self.beside and not self.summed):
            return token_dim
        return min(token_dim, 1 + self.summed * len(self.beside))


@dataclass(frozen=True)
class Structure:
    """All that a target looks up in a sequence of `length` tokens of dimension `token_dim`.

    >>> s = Structure(length=32, token_dim=4, retrievals=(Retrieval("maxima", count=4),))
    >>> s.count, s.order
    (4, 1)
    >>> Structure.from_json(s.to_json()) == s
    True
    """

    length: int
    token_dim: int
    retrievals: tuple[Retrieval, ...]

    def __post_init__(self) -> None:
        if self.length < 1 or self.token_dim < 1:
            raise ValueError(f"length and token_dim must be at least 1, got {self.length} and {self.token_dim}")
        if not self.retrievals:
            raise ValueError("retrievals is empty: a task must look up something")
        names: set[str] = set()
        for r in self.retrievals:
            if r.name in names:
                raise ValueError(f"two retrievals are named {r.name!r}; names must differ")
            for earlier in r.after:
                if earlier not in names:
                    raise ValueError(f"retrieval {r.name!r}: after names {earlier!r}, which does not come before it")
            if r.window is not None and r.window > self.length:
                raise ValueError(f"retrieval {r.name!r}: window {r.window} is longer than length {self.length}")
            outside = [p for p in r.positions if not 0 <= p < self.length]
            if outside:
                raise ValueError(f"retrieval {r.name!r}: position {outside[0]} is outside 0..{self.length - 1}")
            if r.rank > (r.window or self.length):
                raise ValueError(f"retrieval {r.name!r}: rank {r.rank} exceeds the {r.window or self.length} searched")
            far = [p for p in r.beside if abs(p) >= self.length]
            if far:
                raise ValueError(f"retrieval {r.name!r}: beside {far[0]} leaves the {self.length} positions")
            if abs(r.offset) >= self.length:
                raise ValueError(f"retrieval {r.name!r}: offset {r.offset} leaves the {self.length} positions")
            names.add(r.name)

    @property
    def count(self) -> int:
        """The number D of retrievals by comparison."""
        return sum(r.count for r in self.retrievals if r.order > 0)

    @property
    def order(self) -> int:
        """The highest order of comparison."""
        return max(r.order for r in self.retrievals)

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary, with every field spelt out."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Structure:
        """The structure a dictionary (JSON or TOML) describes; whatever is wrong is refused by the field's name."""
        return decode(cls, data, "the structure")
