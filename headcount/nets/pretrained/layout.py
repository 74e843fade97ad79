"""Where each head's rows lie in the compact matrices of one layer. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class HeadLayout:
    """The ranks of one attention layer, ragged: every key group and every value head has its own.

    `ranks[g]` is the query-key rank of key group g, and `groups[i]` the group that head i reads; `widths[j]` is
    the value-output rank of value head j, and `sharing[i]` the value head of head i. A head whose value head has
    rank 0 is removed. In a `rotary` layer a query-key dimension is one of the two coordinates of a frequency, and only
    whole frequencies can go: `pairs[g]` are those that group g has left, and `ranks[g]` is twice their number.

    >>> full = HeadLayout.full(heads=2, head_dim=4)
    >>> full.query_rows, full.key_rows, full.value_rows, full.output_columns
    (8, 8, 8, 8)
    >>> HeadLayout((3,), (0, 0), (4, 0), (0, 1)).alive
    (0,)
    >>> HeadLayout.full(heads=2, head_dim=4, rotary=True).pairs
    ((0, 1), (0, 1))
    """

    ranks: tuple[int, ...]
    groups: tuple[int, ...]
    widths: tuple[int, ...]
    sharing: tuple[int, ...]
    rotary: bool = False
    pairs: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.rotary and self.ranks != tuple(2 * len(frequencies) for frequencies in self.pairs):
            raise ValueError(f"a rotary layer of ranks {self.ranks} must name half as many frequencies: {self.pairs}")

    @classmethod
    def full(cls, heads: int, head_dim: int, key_heads: int | None = None, *, rotary: bool = False) -> HeadLayout:
        """Every rank at its full head dimension; `key_heads` < heads when keys and values are shared."""
        count = key_heads or heads
        groups = tuple(i * count // heads for i in range(heads))
        pairs = (tuple(range(head_dim // 2)),) * count if rotary else ()
        return cls((head_dim,) * count, groups, (head_dim,) * count, groups, rotary, pairs)

    @property
    def each_group(self) -> tuple[tuple[int, ...], ...]:
        """The living heads of every used key group."""
        return tuple(tuple(i for i in self.alive if self.groups[i] == g) for g in self.used_groups)

    @property
    def alive(self) -> tuple[int, ...]:
        """The heads that are still there."""
        return tuple(i for i, j in enumerate(self.sharing) if self.widths[j] > 0)

    @property
    def used_groups(self) -> tuple[int, ...]:
        """The key groups that some living head reads."""
        return tuple(sorted({self.groups[i] for i in self.alive}))

    @property
    def query_rows(self) -> int:
        return sum(self.ranks[self.groups[i]] for i in self.alive)

    @property
    def key_rows(self) -> int:
        return sum(self.ranks[g] for g in self.used_groups)

    @property
    def value_rows(self) -> int:
        return sum(self.widths)

    @property
    def output_columns(self) -> int:
        return sum(self.widths[self.sharing[i]] for i in self.alive)

    @property
    def padded(self) -> int:
        """The common head dimension that attention runs at: the largest rank of a living head."""
        dims = [max(self.ranks[self.groups[i]], self.widths[self.sharing[i]]) for i in self.alive]
        return max(dims, default=0)

    def query_starts(self) -> tuple[int, ...]:
        """The first query row of each living head."""
        return _starts([self.ranks[self.groups[i]] for i in self.alive])

    def key_starts(self) -> dict[int, int]:
        """The first key row of each used group."""
        return dict(zip(self.used_groups, _starts([self.ranks[g] for g in self.used_groups]), strict=True))

    def value_starts(self) -> tuple[int, ...]:
        """The first value row of each value head."""
        return _starts(self.widths)


def _starts(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(accumulate(sizes[:-1], initial=0)) if sizes else ()
