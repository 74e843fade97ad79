"""What a structure demands of heads: every look-up as the acts it takes, in order, and where each is done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

from headcount.structure import Retrieval, Structure

__all__ = ["Act", "Demand", "Shape", "check_shape", "demands_of"]

Place = Literal["tokens", "cls", "both"]
Mode = Literal["max", "positions"]
Kind = Literal["shift", "mask", "partner", "collect", "read"]


@runtime_checkable
class Shape(Protocol):
    """What the calculus reads of an architecture: `headcount.Architecture` has it, and needs no torch."""

    @property
    def layers(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def width(self) -> int: ...
    @property
    def embed_dim(self) -> int: ...
    @property
    def positions(self) -> int: ...


def check_shape(arch: Shape) -> None:
    """Refuse a shape that holds no network, by the field's name."""
    if not arch.layers:
        raise ValueError("layers is empty: an architecture needs at least one layer")
    for number, (heads, head_dim) in enumerate(arch.layers, start=1):
        if heads < 1:
            raise ValueError(f"heads of layer {number} must be at least 1, got {heads}")
        if head_dim < 1:
            raise ValueError(f"head_dim of layer {number} must be at least 1, got {head_dim}")
    for name, least in (("width", 1), ("embed_dim", 1), ("positions", 0)):
        if getattr(arch, name) < least:
            raise ValueError(f"{name} must be at least {least}, got {getattr(arch, name)}")


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


@dataclass(frozen=True)
class Demand:
    """`count` look-ups of one kind, each a chain of acts in strictly rising layers.

    `keeps` numbers per look-up end at the class token. `route` says that one position per look-up may collect it, to
    be read from there; `window` is how many tokens would have to be aggregated instead.
    """

    name: str
    count: int
    acts: tuple[Act, ...]
    window: int
    order: int
    rank: int
    keeps: int
    after: tuple[str, ...] = ()
    route: bool = False

    @property
    def alike(self) -> Demand:
        """Itself without name and number, to see whether two demands differ in nothing else."""
        return replace(self, name="", count=1)

    def rank_left(self, progress: int) -> int:
        """The rank still to be found when `progress` acts are done: each mask takes the largest away."""
        return self.rank - sum(act.kind == "mask" for act in self.acts[:progress])


def demands_of(structure: Structure) -> tuple[tuple[Demand, ...], tuple[Retrieval, ...]]:
    """The look-ups that heads can make by comparing (equal ones joined), and what can only be aggregated.

    Order 1, rank k: the winner is masked k - 1 times, then collected. Order 2: every token first finds its partner.
    Fixed positions that a later score uses are read one by one; others, and orders above 2, are aggregated.

    >>> pair = Retrieval("pairs", count=2, order=2)
    >>> (demand,), _ = demands_of(Structure(64, 4, (pair,)))
    >>> [(act.kind, act.at, act.load) for act in demand.acts]
    [('partner', 'tokens', 4), ('collect', 'cls', 1)]
    """
    used = {name for r in structure.retrievals for name in r.after}
    shared = {name for r in structure.retrievals if _token_acts(r, 1) for name in r.after}
    demands, rest = [], []
    for r in structure.retrievals:
        if r.order > 2 or (r.positions and r.name not in used):
            rest.append(r)
        elif r.positions:
            demands.append(_reading(r, structure.token_dim, r.name in shared))
        else:
            demands.append(_comparing(r, structure, r.name in used, r.name in shared))
    return _joined(demands, used), tuple(rest)


def _token_acts(r: Retrieval, load: int) -> tuple[Act, ...]:
    partner, mask = Act("partner", "tokens", load), Act("mask", "tokens", 1)
    if r.order == 2:
        return (partner,) + (mask, partner) * (r.rank - 1)
    return (mask,) * (r.rank - 1) if r.order == 1 else ()


def _comparing(r: Retrieval, structure: Structure, used: bool, shared: bool) -> Demand:
    d = structure.token_dim
    shift = (Act("shift", "tokens", d, waits=False),) if r.offset else ()
    collect = Act("collect", "both" if shared else "cls", d if used or r.after else 1)
    return Demand(
        r.name,
        r.count,
        shift + _token_acts(r, d) + (collect,),
        window=r.window or structure.length,
        order=r.order,
        rank=r.rank,
        keeps=d if used else 1,
        after=r.after,
        route=not (used or r.after),
    )


def _reading(r: Retrieval, token_dim: int, shared: bool) -> Demand:
    act = Act("read", "both" if shared else "cls", token_dim)
    return Demand(r.name, len(r.positions), (act,), len(r.positions), 0, 1, token_dim, r.after)


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
