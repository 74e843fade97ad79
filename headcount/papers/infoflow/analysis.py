"""The best plan that a structure and a shape allow: acts on heads where they fit, aggregation for the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from headcount.papers.infoflow.costs import (
    FEATURES,
    SEPARATED,
    comparisons_made,
    comparisons_needed,
    decoding_exponent,
)
from headcount.papers.infoflow.demands import Demand, Shape, demands_of
from headcount.papers.infoflow.schedule import ActSchedule, Job, Limits, schedule, scheduling_kind
from headcount.structure import Retrieval, Structure

__all__ = ["Cost", "Found", "analyse", "impossible", "is_cheap"]

NO_LIMIT = Fraction(10**12)


@dataclass(frozen=True)
class Cost:
    """The exponents of a plan's three kinds of steps; the plan costs the largest of them.

    `features`: what heads retrieve and states hold; `separated`: what is read by position; `aggregated`: what is
    gathered without comparing. Each is at least 1.
    """

    features: Fraction = Fraction(1)
    separated: Fraction = Fraction(1)
    aggregated: Fraction = Fraction(1)

    @property
    def exponent(self) -> Fraction:
        return max(self.features, self.separated, self.aggregated)

    @property
    def cheap(self) -> bool:
        return self.features <= FEATURES and max(self.separated, self.aggregated) <= SEPARATED

    @property
    def order(self) -> tuple[bool, Fraction]:
        """Cheap plans first, then the smaller exponent."""
        return (not self.cheap, self.exponent)


CHEAPEST = Cost().order


@dataclass(frozen=True)
class Found:
    """A plan before it is put into words: jobs layer by layer, and how many numbers are aggregated through how many."""

    demands: tuple[Demand, ...]
    layers: tuple[tuple[Job, ...], ...]
    cost: Cost
    gathered: int = 0
    channel: int = 0
    whole: bool = False


def impossible(structure: Structure, arch: Shape) -> str:
    """Why no network of this shape computes the target at any price, or an empty string."""
    for r in structure.retrievals:
        placed = r.positions or r.offset or (r.window or structure.length) < structure.length
        if placed and not arch.positions:
            field = "positions" if r.positions else "offset" if r.offset else "window"
            return (
                f"retrieval {r.name!r} asks for tokens by place ({field}), and without position features "
                f"(positions = 0) a network sees its tokens as a bag"
            )
        needed = comparisons_needed(r.window or structure.length, r.order)
        made = comparisons_made(arch.layers, structure.length)
        if r.order > 2 and made < needed:
            heads = sum(h for h, _ in arch.layers)
            return (
                f"retrieval {r.name!r} compares {r.order} tokens at a time: {needed:,} comparisons, and {heads} heads "
                f"make at most {heads} x {structure.length}^2 = {made:,}"
            )
    return ""


def analyse(structure: Structure, arch: Shape) -> Found:
    """The plan of least cost: cheap before costly, then by exponent; at equal cost the one that aggregates least.

    Assumes that `impossible` found nothing.
    """
    demands, rest = demands_of(structure)
    if not demands and not any(r.order > 2 for r in rest):
        return _gathering(structure, arch, rest)
    everything = _everything(structure, arch)
    if any(r.order > 2 for r in rest):
        return everything
    best, bound = None, everything.cost
    for kept, gathered in _divisions(demands, rest, structure):
        if best is not None and best.cost.order == CHEAPEST:
            break
        if _least_cost(arch, kept, gathered).order <= bound.order:
            placed = _placed(structure, arch, kept, gathered, bound)
            if placed is not None and (best is None or placed.cost.order < best.cost.order):
                best, bound = placed, min(bound, placed.cost, key=lambda cost: cost.order)
    return best if best is not None and best.cost.order <= everything.cost.order else everything


def is_cheap(structure: Structure, arch: Shape, features: Fraction = FEATURES) -> bool:
    """Whether `analyse` would find a cheap plan, with `features` as the largest exponent; quicker, as any will do."""
    if impossible(structure, arch):
        return False
    demands, rest = demands_of(structure)
    everything = _everything(structure, arch).cost.cheap
    if everything or not demands or any(r.order > 2 for r in rest):
        return everything or (not demands and _gathering(structure, arch, rest).cost.cheap)
    size, limits = (structure.length, structure.token_dim), Limits(features, SEPARATED)
    for kept, gathered in _divisions(demands, rest, structure):
        if gathered > SEPARATED * arch.embed_dim or _keeps(kept, gathered) > features * arch.embed_dim:
            continue
        placed = schedule(kept, arch, size, limits, spare=gathered, least=gathered)
        if placed is not None and placed.spare >= gathered:
            return True
    return False


def _gathering(structure: Structure, arch: Shape, rest: tuple[Retrieval, ...]) -> Found:
    places = {p for r in rest for p in r.positions}
    return _through(arch, len(places) * structure.token_dim, all_of_it=False)


def _everything(structure: Structure, arch: Shape) -> Found:
    """Global aggregation: the whole sequence through every head of the class token."""
    return _through(arch, _reach(structure.retrievals, structure) * structure.token_dim, all_of_it=True)


def _reach(retrievals: tuple[Retrieval, ...], structure: Structure) -> int:
    """How many tokens these retrievals can depend on, at most."""
    sizes = (len(r.positions) or (r.window or structure.length) * (2 if r.offset else 1) for r in retrievals)
    return min(structure.length, sum(sizes if retrievals else ()))


def _through(arch: Shape, numbers: int, *, all_of_it: bool) -> Found:
    channel = min(arch.embed_dim, sum(heads * head_dim for heads, head_dim in arch.layers))
    cost = Cost(aggregated=decoding_exponent(numbers, channel))
    return Found((), ((),) * len(arch.layers), cost, numbers, channel, all_of_it)


def _divisions(
    demands: tuple[Demand, ...], rest: tuple[Retrieval, ...], structure: Structure
) -> Iterator[tuple[tuple[Demand, ...], int]]:
    """The ways to leave some look-ups over a short window to aggregation: (what is compared, numbers gathered).

    Of look-ups that differ in their window alone, those with the shortest go first: to leave out a longer one and keep
    a shorter costs more numbers and saves the same heads.
    """
    places = len({p for r in rest for p in r.positions})
    for left_out in product(*_orders(demands, structure)):
        gone = Counter(g for group in left_out for g in group)
        tokens = sum(n * demands[g].window * (2 if _shifts(demands[g]) else 1) for g, n in gone.items())
        kept = tuple(_fewer(d, d.count - gone[g]) for g, d in enumerate(demands) if gone[g] < d.count)
        yield kept, min(structure.length, tokens + places) * structure.token_dim


def _orders(demands: tuple[Demand, ...], structure: Structure) -> list[list[list[int]]]:
    """For each kind of look-up that may be gathered: none of it, the one with the shortest window, the two, ..."""
    named = {name for d in demands for name in d.after}
    kinds: dict[Hashable, list[int]] = {}
    for g, d in sorted(enumerate(demands), key=lambda pair: pair[1].window):
        if d.order and d.window < structure.length and not d.after and not set(d.name.split(", ")) & named:
            kinds.setdefault(scheduling_kind(d, named), []).extend([g] * d.count)
    return [[queue[:n] for n in range(len(queue) + 1)] for queue in kinds.values()]


def _shifts(demand: Demand) -> bool:
    return demand.acts[0].kind == "shift"


def _fewer(demand: Demand, count: int) -> Demand:
    return Demand(**{**demand.__dict__, "count": count})


def _placed(structure: Structure, arch: Shape, demands: tuple[Demand, ...], gathered: int, best: Cost) -> Found | None:
    """The cheapest placement of these demands, or None when none costs as little as `best`."""
    size, wanted = (structure.length, structure.token_dim), min(gathered, arch.embed_dim)
    least = min(wanted, math.ceil(gathered / (SEPARATED if best.cheap else best.exponent)))
    for chain in _limits(demands, arch, size):
        loosest = schedule(demands, arch, size, chain[-1], spare=wanted, least=least) if chain else None
        if loosest is None:
            continue
        found = []
        for limits in chain[_first_fit(demands, arch, size, chain) :]:
            placed = schedule(demands, arch, size, limits, spare=wanted, least=least)
            costed = None if placed is None else _costed(structure, arch, demands, placed, gathered)
            found += [costed] if costed else []
            if placed is not None and placed.spare >= min(wanted, loosest.spare):
                break  # looser limits leave no more for aggregation
        first = min(found, key=lambda f: f.cost.order, default=None)
        if first is not None and (first.cost.cheap or chain[-1].features == NO_LIMIT):
            return first
    return None


def _least_cost(arch: Shape, demands: tuple[Demand, ...], gathered: int) -> Cost:
    """What no placement of these demands can undercut."""
    channel = min(arch.embed_dim, sum(heads * head_dim for heads, head_dim in arch.layers))
    held = decoding_exponent(_keeps(demands, gathered), arch.embed_dim)
    return Cost(held, aggregated=decoding_exponent(gathered, channel))


def _keeps(demands: tuple[Demand, ...], gathered: int) -> int:
    """The numbers that end at the class token."""
    return sum(d.count * d.keeps for d in demands) + gathered


def _first_fit(demands: tuple[Demand, ...], arch: Shape, size: tuple[int, int], chain: list[Limits]) -> int:
    """The first limits of a chain, from tight to loose, within which the demands fit; the last ones do."""
    low, high = 0, len(chain) - 1
    while low < high:
        middle = (low + high) // 2
        fits = schedule(demands, arch, size, chain[middle]) is not None
        low, high = (low, middle) if fits else (middle + 1, high)
    return low


def _limits(demands: tuple[Demand, ...], arch: Shape, size: tuple[int, int]) -> tuple[list[Limits], list[Limits]]:
    """Every limit at which something new fits, from tight to loose: first the cheap ones, then all."""
    _, token_dim = size
    loads = {act.load for d in demands for act in d.acts} | {1}
    most = max(heads for heads, _ in arch.layers) * max(loads)
    dims = {head_dim for _, head_dim in arch.layers}
    bundle = min(max(dims), sum(d.count for d in demands))  # the largest that a shared head can serve
    loads |= set(range(1, bundle + 1)) if len(dims) > 1 else set()
    steps = {decoding_exponent(load, n) for load in loads for n in dims}
    steps |= {decoding_exponent(token_dim + q, arch.embed_dim) for q in range(most + 1)}
    cheap = [Limits(e, SEPARATED) for e in sorted(steps) if e <= FEATURES]
    return cheap, [*(Limits(e, e) for e in sorted(steps)), Limits(NO_LIMIT, NO_LIMIT)]


def _costed(
    structure: Structure, arch: Shape, demands: tuple[Demand, ...], placed: ActSchedule, gathered: int
) -> Found | None:
    channel = min(arch.embed_dim, placed.spare)
    if gathered and not channel:
        return None
    features = [decoding_exponent(_keeps(demands, gathered), arch.embed_dim)]
    separated = [Fraction(1)]
    for (_, head_dim), jobs in zip(arch.layers, placed.layers, strict=True):
        brought = 0
        for job in jobs:
            if job.way == "fetched":
                separated.append(decoding_exponent(job.number, head_dim))
                continue
            act = demands[job.demand].acts[job.act]
            price = decoding_exponent(1 if job.way != "plain" else act.load, head_dim)
            (separated if act.mode == "positions" else features).append(price)
            brought += _brought(job, act.at != "cls", act.load)
        features.append(decoding_exponent(structure.token_dim + brought, arch.embed_dim) if brought else Fraction(1))
    aggregated = decoding_exponent(gathered, channel) if gathered else Fraction(1)
    cost = Cost(max(features), max(separated), aggregated)
    return Found(demands, placed.layers, cost, gathered, channel if gathered else 0)


def _brought(job: Job, to_tokens: bool, load: int) -> int:
    if job.way == "routed":
        return job.heads
    return job.number * load if to_tokens and job.way == "plain" else 0
