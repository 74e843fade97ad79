"""What a structure demands of heads: every look-up as the acts it takes, in order, and where each is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from headcount.structure import Retrieval, Structure

Place = Literal["tokens", "cls", "both"]
Mode = Literal["max", "positions"]
Kind = Literal["shift", "mask", "partner", "jump", "collect", "read"]


@dataclass(frozen=True)
class Act:
    """One head's work in one layer for one look-up.

    `load` is how many numbers the head must compare or carry, whichever is more; `waits` whether its score uses what
    the retrievals named in `after` found.
    """

    kind: Kind
    at: Place
    load: int
    waits: bool = True

    @property
    def mode(self) -> Mode:
        return "positions" if self.kind in ("shift", "read") else "max"

    @property
    def scores(self) -> int:
        """The least rank of the score: 2 where every token attends to another one, which q_t k_s cannot do.

        By a product of two numbers every token ranks the keys alike, or in reverse: it finds an extreme.
        """
        return 2 if self.kind in ("shift", "jump") else 1

    def shares(self, heads: int) -> Iterator[tuple[int, int]]:
        """By how many of so many heads it can be done, and how many numbers each then carries.

        What is attended to by place alone may be carried in parts, by heads that all look there; a score that compares
        numbers stays in one head.

        >>> list(Act("shift", "tokens", 5).shares(4)), list(Act("partner", "tokens", 5).shares(4))
        ([(1, 5), (2, 3), (3, 2)], [(1, 5)])
        """
        least = self.load + 1
        for number in range(1, heads + 1 if self.mode == "positions" else 2):
            carried = -(-self.load // number)
            if carried < least:
                yield number, carried
            least = carried


@dataclass(frozen=True)
class Demand:
    """`count` look-ups of one kind, each a chain of acts in strictly rising layers.

    `keeps` numbers per look-up end at the class token. `free` says that the last act's score is a token's own: then the
    tokens may make it, or one position per look-up, and the class token fetch it from there. `window` is how many
    tokens would have to be aggregated instead, and `numbers` how many numbers of each; `links` how many equal look-ups
    in a chain it stands for.
    """

    name: str
    count: int
    acts: tuple[Act, ...]
    window: int
    order: int
    rank: int
    keeps: int
    after: tuple[str, ...] = ()
    free: bool = False
    offset: int = 0
    positions: tuple[int, ...] = ()
    links: int = 1
    beside: tuple[int, ...] = ()
    numbers: int = 1

    @property
    def alike(self) -> Demand:
        """Itself without name and number, to see whether two demands differ in nothing else."""
        return replace(self, name="", count=1)

    def rank_left(self, progress: int) -> int:
        """The rank still to be found when `progress` acts are done: each mask takes the largest away."""
        return self.rank - sum(act.kind == "mask" for act in self.acts[:progress])


def nearer_rank(r: Retrieval, length: int) -> int:
    """The rank counted from above or from below, whichever is nearer: the least of all is the largest of -x.

    >>> nearer_rank(Retrieval("least", rank=8), length=8), nearer_rank(Retrieval("second least", rank=7), length=8)
    (1, 2)
    """
    return min(r.rank, (r.window or length) - r.rank + 1)


def readings(structure: Structure) -> Iterator[tuple[tuple[Demand, ...], tuple[Retrieval, ...]]]:
    """Every way to read a structure as demands, for a class token that attends in every layer.

    A score that uses an earlier finding may be joint at the class token, or every token finds it and holds a score of
    its own; and a chain of equal look-ups may go link by link, or by doubling.
    """
    chained = any(r.after for r in structure.retrievals)
    for double in (False, True) if _chains(structure) else (False,):
        for by_tokens in (False, True) if chained and not double else (False,):
            yield demands_of(structure, by_tokens=by_tokens, double=double)


def demands_of(
    structure: Structure, *, by_tokens: bool = False, double: bool = False
) -> tuple[tuple[Demand, ...], tuple[Retrieval, ...]]:
    """The look-ups that heads can make by comparing (equal ones joined), and what can only be aggregated.

    Order 1, rank k: the winner is masked k - 1 times, then collected. Order 2: every token first finds its partner.
    Fixed positions that a later score uses are read one by one; others, and orders above 2, are aggregated.
    `by_tokens`: what a later score uses is found by every token. `double`: k equal links are made in floor(log2 k) + 1
    acts, since a token that knows m links ahead finds the next by matching and reads there m more: 1, 3, 7, ...
    Source: Sanford et al. 2024 for k-hop look-ups in floor(log2 k) + 2 layers, the first of which looks one back.

    >>> pair = Retrieval("pairs", count=2, order=2)
    >>> (demand,), _ = demands_of(Structure(64, 4, (pair,)))
    >>> [(act.kind, act.at, act.load) for act in demand.acts]
    [('partner', 'tokens', 4), ('collect', 'cls', 1)]
    """
    chains = _chains(structure) if double else {}
    inner = {name for names in chains.values() for name in names[:-1]}
    retrievals = [r for r in structure.retrievals if r.name not in inner]
    used = {name for r in retrievals for name in _start(r, chains, structure)}
    shared = {name for r in retrievals if _token_acts(r, 1, r.rank) for name in _start(r, chains, structure)}
    demands, rest = [], []
    for r in retrievals:
        place = "tokens" if by_tokens else "both" if r.name in shared else "cls"
        if r.order > 2 or (r.positions and r.name not in used):
            rest.append(r)
        elif r.positions:
            demands.append(_reading(r, structure.token_dim, place))
        elif r.name in chains:
            demands.append(_doubling(r, structure, chains[r.name]))
        else:
            demands.append(_comparing(r, structure, r.name in used, place, by_tokens))
    return _joined(demands, used), tuple(rest)


def _chains(structure: Structure) -> dict[str, list[str]]:
    """Chains of two or more look-ups that differ in nothing but their names, by their last: all names in order."""
    by_name = {r.name: r for r in structure.retrievals}
    users = [name for r in structure.retrievals for name in r.after]
    chains: dict[str, list[str]] = {}
    for r in structure.retrievals:
        if len(r.after) != 1 or (r.order, r.rank, r.count) != (1, 1, 1) or r.beside:
            continue
        before = by_name[r.after[0]]
        alike = before.after and replace(before, name=r.name, after=r.after) == r and users.count(before.name) == 1
        chains[r.name] = [*chains.pop(before.name), r.name] if alike and before.name in chains else [r.name]
    return {name: names for name, names in chains.items() if len(names) > 1}


def _start(r: Retrieval, chains: dict[str, list[str]], structure: Structure) -> tuple[str, ...]:
    """What a look-up waits for; a chain waits for what its first link does."""
    first = chains[r.name][0] if r.name in chains else r.name
    return next(q.after for q in structure.retrievals if q.name == first)


def _token_acts(r: Retrieval, load: int, rank: int) -> tuple[Act, ...]:
    partner, mask = Act("partner", "tokens", load), Act("mask", "tokens", 1)
    if r.order == 2:
        return (partner,) + (mask, partner) * (rank - 1)
    return (mask,) * (rank - 1) if r.order == 1 else ()


def _comparing(r: Retrieval, structure: Structure, used: bool, place: Place, by_tokens: bool) -> Demand:
    d, rank = structure.token_dim, nearer_rank(r, structure.length) if r.order == 1 else r.rank
    # One look aside for each place. Of what stands beside, the score needs as many numbers as are summed, or every one;
    # of the token found, its own score, or every number where the score is made with what was found before.
    shift = (Act("shift", "tokens", min(d, r.summed or d), waits=False),) * len(r.beside)
    shift += (Act("shift", "tokens", d if r.after else 1, waits=False),) * bool(r.offset)
    collect = Act("collect", place if used else "cls", d if used or (r.after and not by_tokens) else 1)
    return Demand(
        r.name,
        r.count,
        shift + _token_acts(r, d, rank) + (collect,),
        window=r.window or structure.length,
        order=r.order,
        rank=rank,
        keeps=0 if used and by_tokens else d if used else 1,
        after=r.after,
        free=not (used or r.after),
        offset=r.offset,
        beside=r.beside,
        numbers=d if used else r.numbers(d),
    )


def _doubling(r: Retrieval, structure: Structure, names: list[str]) -> Demand:
    d, links = structure.token_dim, len(names)
    shift = (Act("shift", "tokens", d, waits=False),) if r.offset else ()
    jumps = (Act("jump", "both", d + 1),) * (links.bit_length() - 1)  # the letter there, and its place
    first = next(q for q in structure.retrievals if q.name == names[0])
    acts = (*shift, *jumps, Act("collect", "cls", d))
    window = r.window or structure.length
    return Demand(r.name, 1, acts, window, 1, 1, 1, first.after, offset=r.offset, links=links)


def _reading(r: Retrieval, token_dim: int, place: Place) -> Demand:
    act = Act("read", place, token_dim)
    keeps = 0 if place == "tokens" else token_dim
    places = r.positions
    return Demand(r.name, len(places), (act,), len(places), 0, 1, keeps, r.after, positions=places)


def _joined(demands: list[Demand], used: set[str]) -> tuple[Demand, ...]:
    joined: list[Demand] = []
    for demand in demands:
        for i, other in enumerate(joined):
            if other.alike == demand.alike and not {demand.name, other.name} & used:
                joined[i] = replace(other, name=f"{other.name}, {demand.name}", count=other.count + demand.count)
                break
        else:
            joined.append(demand)
    return tuple(joined)
