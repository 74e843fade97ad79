"""The best plan that a structure and a shape allow: acts on heads where they fit, aggregation for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from headcount.infoflow.costs import (
    FEATURES,
    SEPARATED,
    comparisons_made,
    comparisons_needed,
    decoding_exponent,
)
from headcount.infoflow.demands import Demand, Shape, demands_of
from headcount.infoflow.schedule import Job, Limits, Schedule, schedule
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
    """The plan of least cost: cheap before costly, then by exponent. Assumes that `impossible` found nothing."""
    demands, rest = demands_of(structure)
    if not demands and not any(r.order > 2 for r in rest):
        return _gathering(structure, arch, rest)
    best = _everything(structure, arch)
    if any(r.order > 2 for r in rest):
        return best
    for kept, gathered in _divisions(demands, rest, structure):
        found = _placed(structure, arch, kept, gathered)
        if found is not None and found.cost.order <= best.cost.order:
            best = found
    return best


def is_cheap(structure: Structure, arch: Shape) -> bool:
    """Whether `analyse` would find a cheap plan; quicker, since any will do."""
    if impossible(structure, arch):
        return False
    demands, rest = demands_of(structure)
    if not demands or any(r.order > 2 for r in rest) or _everything(structure, arch).cost.cheap:
        return analyse(structure, arch).cost.cheap
    size, limits = (structure.length, structure.token_dim), Limits(FEATURES, SEPARATED)
    for kept, gathered in _divisions(demands, rest, structure):
        placed = schedule(kept, arch, size, limits, spare=gathered)
        found = None if placed is None else _costed(structure, arch, kept, placed, gathered)
        if found is not None and found.cost.cheap:
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
    """Every way to leave some look-ups over a short window to aggregation: (what is compared, numbers gathered)."""
    places = len({p for r in rest for p in r.positions})
    named = {name for d in demands for name in d.after}
    free = [
        range(d.count + 1)
        if d.order and d.window < structure.length and not d.after and not set(d.name.split(", ")) & named
        else range(1)
        for d in demands
    ]
    for left_out in product(*free):
        tokens = sum(n * d.window * (2 if _shifts(d) else 1) for n, d in zip(left_out, demands, strict=True))
        kept = tuple(_fewer(d, d.count - n) for n, d in zip(left_out, demands, strict=True) if n < d.count)
        yield kept, min(structure.length, tokens + places) * structure.token_dim


def _shifts(demand: Demand) -> bool:
    return demand.acts[0].kind == "shift"


def _fewer(demand: Demand, count: int) -> Demand:
    return Demand(**{**demand.__dict__, "count": count})


def _placed(structure: Structure, arch: Shape, demands: tuple[Demand, ...], gathered: int) -> Found | None:
    """The cheapest placement of these demands, or None when they do not fit at any price."""
    size = (structure.length, structure.token_dim)
    for chain in _limits(demands, arch, size):
        if not chain or schedule(demands, arch, size, chain[-1], spare=gathered) is None:
            continue
        chain = chain[_first_fit(demands, arch, size, chain) :]
        placed = (
            schedule(demands, arch, size, limits, spare=gathered) for limits in (chain if gathered else chain[:1])
        )
        found = [_costed(structure, arch, demands, p, gathered) for p in placed if p is not None]
        best = min((f for f in found if f is not None), key=lambda f: f.cost.order, default=None)
        if best is not None and (best.cost.cheap or chain[-1].features == NO_LIMIT):
            return best
    return None


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
    structure: Structure, arch: Shape, demands: tuple[Demand, ...], placed: Schedule, gathered: int
) -> Found | None:
    keeps = sum(d.count * d.keeps for d in demands) + gathered
    channel = min(arch.embed_dim, placed.spare)
    if gathered and not channel:
        return None
    features = [decoding_exponent(keeps, arch.embed_dim)]
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
