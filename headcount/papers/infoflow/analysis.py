"""The best plan that a structure and a shape allow: acts on heads where they fit, aggregation for the rest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from headcount.nets.architecture import Architecture
from headcount.papers.infoflow.costs import (
    FEATURES,
    SEPARATED,
    comparisons_made,
    comparisons_needed,
    decoding_exponent,
)
from headcount.papers.infoflow.demands import Demand, demands_of, readings
from headcount.papers.infoflow.packing import Limits
from headcount.papers.infoflow.schedule import ActSchedule, Job, schedule, scheduling_kind
from headcount.results.gathering import grouped
from headcount.structure import Retrieval, Structure

Reading = tuple[tuple[Demand, ...], tuple[Retrieval, ...]]


@dataclass(frozen=True)
class Cost:
    """The exponents of a plan's three kinds of steps; the plan costs the largest of them.

    `features`: what heads retrieve and states hold; `separated`: what is read by position or shares a head;
    `aggregated`: what is gathered without comparing. Each is at least 1. `compared` is False where the read-out alone
    must make the comparisons, whose number grows faster than any layer's.
    """

    features: Fraction = Fraction(1)
    separated: Fraction = Fraction(1)
    aggregated: Fraction = Fraction(1)
    compared: bool = True

    @property
    def exponent(self) -> Fraction:
        return max(self.features, self.separated, self.aggregated)

    @property
    def cheap(self) -> bool:
        within = self.features <= FEATURES and max(self.separated, self.aggregated) <= SEPARATED
        return within and self.compared

    @property
    def order(self) -> tuple[bool, Fraction]:
        """Cheap plans first, then the smaller exponent."""
        return (not self.cheap, self.exponent)


@dataclass(frozen=True)
class Analysis:
    """A plan before it is put into words: jobs layer by layer, and how many numbers are aggregated through how many."""

    demands: tuple[Demand, ...]
    layers: tuple[tuple[Job, ...], ...]
    cost: Cost
    gathered: int = 0
    channel: int = 0
    whole: bool = False


def unplaced(structure: Structure, arch: Architecture) -> Retrieval | None:
    """A retrieval that asks for tokens by place while the network sees them as a bag; then no price is enough."""
    if arch.positions:
        return None
    return next((r for r in structure.retrievals if _by_place(r, structure)), None)


def _by_place(r: Retrieval, structure: Structure) -> bool:
    if r.positions and r.summed and len(set(r.positions)) == structure.length:
        return False  # the sum of all tokens is the same in any order
    return bool(r.positions or r.offset or r.beside) or (r.window or structure.length) < structure.length


def uncompared(structure: Structure, arch: Architecture) -> Retrieval | None:
    """A retrieval of order above 2 with more comparisons to make than the heads make: they are left to the read-out."""
    comparisons = comparisons_made(arch.layers, structure.length)
    for r in structure.retrievals:
        if r.order > 2 and comparisons < comparisons_needed(r.window or structure.length, r.order):
            return r
    return None


def analyse(structure: Structure, arch: Architecture) -> Analysis:
    """The plan of least cost: cheap before costly, then by exponent; at equal cost the one that aggregates least.

    Assumes that nothing is `unplaced`.
    """
    best = _everything(structure, arch)
    for reading in _readings(structure, arch):
        for demands, gathered in _divisions(reading, structure):
            placed = _placed(structure, arch, demands, gathered, best)
            if placed is not None:
                best = placed
            if best.cost.order == (False, 1) and not best.whole:
                return best
    return best


def is_cheap(structure: Structure, arch: Architecture, features: Fraction = FEATURES) -> bool:
    """Whether `analyse` would find a cheap plan, with `features` as the largest exponent; quicker, as any will do."""
    if unplaced(structure, arch) is not None:
        return False
    if _everything(structure, arch).cost.cheap:
        return True
    limits = Limits(features, SEPARATED)
    return any(
        _fitted(structure, arch, demands, gathered, limits) is not None
        for reading in _readings(structure, arch)
        for demands, gathered in _divisions(reading, structure)
    )


def _readings(structure: Structure, arch: Architecture) -> Iterator[Reading]:
    """A class token that attends in the last layer alone cannot use a finding in its query: the tokens must."""
    if structure.order > 2:
        return
    if arch.class_token == "last" and arch.depth > 1:
        yield demands_of(structure, by_tokens=True)
    else:
        yield from readings(structure)


def _everything(structure: Structure, arch: Architecture) -> Analysis:
    """Global aggregation: all that the target depends on, through every head of the class token."""
    compared = [r for r in structure.retrievals if not (r.positions and r.summed)]
    numbers = _read(compared, structure) + _sums(structure.retrievals, structure)
    channel = _channel(arch)
    short = uncompared(structure, arch) is not None
    cost = Cost(aggregated=decoding_exponent(numbers, channel), compared=not short)
    all_tokens = numbers == structure.length * structure.token_dim or any(r.order for r in structure.retrievals)
    return Analysis((), ((),) * arch.depth, cost, numbers, channel, all_tokens)


def _read(retrievals: list[Retrieval], structure: Structure) -> int:
    """How many numbers must pass: of tokens that matter whole all of them, of others the scores that are their own."""
    length, d = structure.length, structure.token_dim
    used = {name for r in structure.retrievals for name in r.after}
    tokens = scores = 0
    for r in retrievals:
        numbers = d if r.name in used else r.numbers(d)
        if length == 1 and r.order:
            scores += r.count
        elif r.positions or numbers == d:
            tokens += len(r.positions) or (r.window or length) * _seen(r)
        else:
            scores += (r.window or length) * min(d, r.count * numbers)
    return min(length * d, min(length, tokens) * d + scores)


def _seen(r: Retrieval | Demand) -> int:
    """How many tokens belong to each that is looked at: itself, those beside it, and what stands after each."""
    return (1 + len(r.beside)) * (2 if r.offset else 1)


def _sums(retrievals: tuple[Retrieval, ...], structure: Structure) -> int:
    """Numbers of what enters only as a sum; never more than its tokens have."""
    return sum(min(r.summed, len(r.positions) * structure.token_dim) for r in retrievals if r.positions)


def _channel(arch: Architecture) -> int:
    layers = arch.layers if arch.class_token == "every" else arch.layers[-1:]
    return min(arch.embed_dim, sum(heads * head_dim for heads, head_dim in layers))


def _divisions(reading: Reading, structure: Structure) -> Iterator[tuple[tuple[Demand, ...], int]]:
    """The ways to leave some look-ups over a short window to aggregation: (what is compared, numbers gathered).

    Of look-ups that differ in their window alone, those with the shortest go first: to leave out a longer one and keep
    a shorter costs more numbers and saves the same heads.
    """
    (demands, rest), length, d = reading, structure.length, structure.token_dim
    places = len({p for r in rest if not r.summed for p in r.positions})
    sums = _sums(rest, structure)
    for left_out in product(*_orders(demands, structure)):
        gone = Counter(g for group in left_out for g in group)
        left = [(demands[g], n * demands[g].window) for g, n in gone.items()]
        tokens = sum(n * _seen(demand) for demand, n in left if demand.numbers == d)
        scores = sum(n * demand.numbers for demand, n in left if demand.numbers < d)
        compared = tuple(replace(r, count=r.count - gone[g]) for g, r in enumerate(demands) if gone[g] < r.count)
        if compared:
            yield compared, min(length * d, min(length, tokens + places) * d + scores) + sums


def _orders(demands: tuple[Demand, ...], structure: Structure) -> list[list[list[int]]]:
    """For each kind of look-up that may be gathered: none of it, the one with the shortest window, the two, ..."""
    named = {name for d in demands for name in d.after}
    kinds = grouped(
        (scheduling_kind(d, named), g)
        for g, d in sorted(enumerate(demands), key=lambda pair: pair[1].window)
        if d.order and d.window < structure.length and not d.after and not set(d.name.split(", ")) & named
        for _ in range(d.count)
    )
    return [[queue[:n] for n in range(len(queue) + 1)] for queue in kinds.values()]


def _fitted(
    structure: Structure, arch: Architecture, demands: tuple[Demand, ...], gathered: int, limits: Limits
) -> ActSchedule | None:
    """A placement of these demands within limits, with the dimensions that what is gathered needs."""
    dims = math.ceil(gathered / limits.separated)
    keeps = sum(d.count * d.keeps for d in demands) + gathered
    if dims > arch.embed_dim or keeps > limits.features * arch.embed_dim:
        return None
    return schedule(demands, arch, (structure.length, structure.token_dim), limits, spare=dims)


def _placed(
    structure: Structure, arch: Architecture, demands: tuple[Demand, ...], gathered: int, best: Analysis
) -> Analysis | None:
    """The cheapest placement of these demands, or None when none costs as little as `best`."""
    steps = _exponents(structure, arch, demands, gathered)
    cheap = [Limits(e, SEPARATED) for e in steps if e <= FEATURES]
    for chain in (cheap, [Limits(e, e) for e in steps]):
        worse = best.cost.cheap and chain is not cheap
        within = [] if worse else [limits for limits in chain if _no_worse(limits, best, chain is cheap)]
        fit = _first_fit(structure, arch, demands, gathered, within)
        if fit is not None:
            limits, placed = fit
            shared = Fraction(1) if chain is cheap else limits.separated
            channel = min(arch.embed_dim, placed.spare) if gathered else 0
            aggregated = decoding_exponent(gathered, channel) if gathered else Fraction(1)
            cost = Cost(limits.features, shared, min(aggregated, limits.separated))
            return Analysis(demands, placed.layers, cost, gathered, channel)
    return None


def _no_worse(limits: Limits, best: Analysis, cheap: bool) -> bool:
    """Aggregating everything gives way to a plan of the same cost, and another plan only to a better one."""
    order = (not cheap, limits.features)
    return order <= best.cost.order if best.whole or not best.demands else order < best.cost.order


def _first_fit(
    structure: Structure, arch: Architecture, demands: tuple[Demand, ...], gathered: int, chain: list[Limits]
) -> tuple[Limits, ActSchedule] | None:
    """The tightest limits of a chain, from tight to loose, within which the demands fit."""
    fit, low, high = None, 0, len(chain)
    while low < high:
        middle = (low + high) // 2 if fit else high - 1
        placed = _fitted(structure, arch, demands, gathered, chain[middle])
        if placed is None:
            low = middle + 1
        else:
            fit, high = (chain[middle], placed), middle
    return fit


def _exponents(structure: Structure, arch: Architecture, demands: tuple[Demand, ...], gathered: int) -> list[Fraction]:
    """Every exponent at which something new fits, from small to large."""
    loads = {act.load for d in demands for act in d.acts} | {1}
    dims = {head_dim for _, head_dim in arch.layers}
    count = sum(d.count for d in demands)
    bundle = min(max(dims), count) if arch.positions else 1
    most = 2 * max(*loads, bundle) + count
    brought = max(heads for heads, _ in arch.layers) * max(loads)
    steps = {decoding_exponent(load, n) for load in range(1, most + 1) for n in dims}
    steps |= {decoding_exponent(structure.token_dim + q, arch.embed_dim) for q in range(brought + 1)}
    steps.add(decoding_exponent(sum(d.count * d.keeps for d in demands) + gathered, arch.embed_dim))
    steps |= {decoding_exponent(gathered, n) for n in range(1, _channel(arch) + 1)} if gathered else set()
    return sorted(steps)
