"""The slow road: try every assignment of every look-up to every layer. For small cases, and for tests."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import permutations, product

from headcount.nets import Architecture
from headcount.papers.infoflow.analysis import Cost, uncompared
from headcount.papers.infoflow.costs import decoding_exponent, gate_heads
from headcount.papers.infoflow.demands import Act, Demand, demands_of, readings
from headcount.structure import Structure

__all__ = ["exhaustive_cost"]

Unit = tuple[Demand, int]  # a single look-up of a demand
Price = tuple[Fraction, Fraction, int]  # (features, separated, spare dimensions)
Duties = list[tuple[int, int, str]]  # (numbers carried, scores, mode)


def exhaustive_cost(structure: Structure, arch: Architecture) -> Cost:
    """The least cost over all assignments, by enumeration; agrees with `analyse` wherever it can finish.

    Every look-up is taken by itself. In every layer it may rest, do its next act, be held by all tokens, be collected
    by gated heads, or join one of the bundles that a shared head collects by position; bundles may be fetched and what
    tokens hold may ride along, or wait. Duties are put on heads in every order. Nothing is pruned but repeated states.
    """
    options = [_whole(structure, arch)]
    if structure.order > 2:
        return options[0]
    last = arch.class_token == "last" and len(arch.layers) > 1
    for demands, rest in [demands_of(structure, by_tokens=True)] if last else list(readings(structure)):
        places = len({p for r in rest if not r.summed for p in r.positions})
        sums = sum(min(r.summed, len(r.positions) * structure.token_dim) for r in rest if r.positions)
        units: list[Unit] = [(d, i) for d in demands for i in range(d.count)]
        named = {name for d in demands for name in d.after}
        for chosen in product(*(_may_gather(d, structure, named) for d, _ in units)):
            compared = tuple(u for u, gathered in zip(units, chosen, strict=True) if not gathered)
            left = [d for (d, _), gathered in zip(units, chosen, strict=True) if gathered]
            tokens = sum(_tokens(d) for d in left if d.numbers == structure.token_dim)
            scores = sum(d.window * d.numbers for d in left if d.numbers < structure.token_dim)
            most = structure.length * structure.token_dim
            gathered = min(most, min(structure.length, tokens + places) * structure.token_dim + scores) + sums
            if compared:
                options.extend(_costs(structure, arch, compared, gathered))
    return min(options, key=lambda cost: cost.order)


def _tokens(demand: Demand) -> int:
    return demand.window * (1 + len(demand.beside)) * (2 if demand.offset else 1)


def _may_gather(demand: Demand, structure: Structure, named: set[str]) -> tuple[bool, ...]:
    free = demand.order and demand.window < structure.length and not demand.after
    return (False, True) if free and not set(demand.name.split(", ")) & named else (False,)


def _whole(structure: Structure, arch: Architecture) -> Cost:
    layers = arch.layers if arch.class_token == "every" else arch.layers[-1:]
    channel = min(arch.embed_dim, sum(heads * head_dim for heads, head_dim in layers))
    tokens = sums = scores = 0
    used, d = {name for r in structure.retrievals for name in r.after}, structure.token_dim
    for r in structure.retrievals:
        if r.positions and r.summed:
            sums += min(r.summed, len(r.positions) * d)
            continue
        window = r.window or structure.length
        asides = len(r.beside)
        own = 1 + asides * r.summed  # the numbers of a token that scores of its own, and of its neighbours, need
        if r.order == 1 and not (r.after or r.offset or r.name in used or (asides and not r.summed) or own >= d):
            scores += window * min(d, r.count * own)
        else:
            tokens += len(r.positions) or window * (1 + asides) * (2 if r.offset else 1)
    numbers = min(structure.length * d, min(structure.length, tokens) * d + scores) + sums
    return Cost(aggregated=decoding_exponent(numbers, channel), compared=uncompared(structure, arch) is None)


def _costs(structure: Structure, arch: Architecture, units: tuple[Unit, ...], gathered: int) -> Iterator[Cost]:
    held = decoding_exponent(sum(d.keeps for d, _ in units) + gathered, arch.embed_dim)
    for features, separated, spare in _Enumeration(structure, arch, units, riding=not gathered).prices():
        channel = min(arch.embed_dim, spare)
        if gathered and not channel:
            continue
        yield Cost(max(features, held), separated, decoding_exponent(gathered, channel) if gathered else Fraction(1))


class _Enumeration:
    def __init__(self, structure: Structure, arch: Architecture, units: tuple[Unit, ...], *, riding: bool) -> None:
        self.structure, self.arch, self.units, self.riding = structure, arch, units, riding
        self._go = lru_cache(maxsize=None)(self._search)

    def prices(self) -> frozenset[Price]:
        return self._go(0, (0,) * len(self.units), (), 0)

    def _attends(self, layer: int) -> bool:
        return self.arch.class_token == "every" or layer == len(self.arch.layers) - 1

    def _search(self, layer: int, progress: tuple[int, ...], bundles: tuple[int, ...], held: int) -> frozenset[Price]:
        layers = self.arch.layers
        if not bundles and not held and all(p == len(d.acts) for p, (d, _) in zip(progress, self.units, strict=True)):
            idle = sum(h * n for l, (h, n) in enumerate(layers) if l >= layer and self._attends(l))
            return frozenset({(Fraction(1), Fraction(1), idle)})
        if layer == len(layers):
            return frozenset()
        prices: set[Price] = set()
        moves = [self._moves(layer, i, progress) for i in range(len(self.units))]
        for chosen in product(*moves):
            for fetched in product((False, True) if self._attends(layer) else (False,), repeat=len(bundles)):
                for rides in range(held + 1 if self._attends(layer) else 1):
                    prices |= self._layer(layer, progress, bundles, held, chosen, fetched, rides)
        return _undominated(prices)

    def _moves(self, layer: int, unit: int, progress: tuple[int, ...]) -> list[str]:
        demand, p = self.units[unit][0], progress[unit]
        moves = ["rest"]
        if p == len(demand.acts):
            return moves
        act, rest = demand.acts[p], demand.acts[p:]
        if act.waits and not self._known(demand.after, progress):
            return moves
        if act.at == "tokens" or self._attends(layer):
            apart = self.arch.layers[layer][0] if act.mode == "positions" else 1
            moves += [f"act {heads}" for heads in range(1, apart + 1)]  # by so many heads, each with a part of it
        if demand.free and act.kind == "collect" and layer < len(self.arch.layers) - 1:
            moves += ["hold"] if self.riding else []
            moves += [f"bundle {b}" for b in range(self.arch.layers[layer][0])] if self.arch.positions else []
        masks = all(a.kind in ("mask", "collect") for a in rest) and len(rest) > 1 and demand.order == 1
        if self.arch.positions and masks and demand.acts[-1].at == "cls" and self._attends(layer):
            moves.append("gate")
        return moves

    def _known(self, names: tuple[str, ...], progress: tuple[int, ...]) -> bool:
        return all(p == len(d.acts) for p, (d, _) in zip(progress, self.units, strict=True) if d.name in names)

    def _layer(
        self,
        layer: int,
        progress: tuple[int, ...],
        bundles: tuple[int, ...],
        held: int,
        chosen: tuple[str, ...],
        fetched: tuple[bool, ...],
        rides: int,
    ) -> set[Price]:
        heads, head_dim = self.arch.layers[layer]
        tokens: Duties = []
        cls: Duties = [(size, 1, "fetch") for size, taken in zip(bundles, fetched, strict=True) if taken]
        both: Duties = []
        brought = 0
        after, sizes = list(progress), {}
        for i, move in enumerate(chosen):
            if move == "rest":
                continue
            demand, _ = self.units[i]
            act: Act = demand.acts[progress[i]]
            after[i] = progress[i] + 1 if move.startswith("act") else len(demand.acts)
            if move.startswith("act"):
                parts = int(move.removeprefix("act "))
                scores = 2 if act.kind in ("shift", "jump") else 1  # every token attends to another: no score of rank 1
                duty = (-(-act.load // parts), scores, act.mode)
                {"tokens": tokens, "cls": cls, "both": both}[act.at].extend([duty] * parts)
                brought += act.load * (act.at != "cls")
            elif move == "hold":
                tokens.append((act.load, 1, "max"))
                brought += act.load
            elif move == "gate":
                cls += [(1, 1, "max")] * gate_heads(demand.window, demand.rank_left(progress[i]))
            else:
                sizes[move] = sizes.get(move, 0) + 1
        if any(size > min(head_dim, self.structure.length) or size < 2 for size in sizes.values()):
            return set()
        tokens += [(size, size, "route") for size in sizes.values()]
        brought += len(sizes)
        if max(len(tokens), len(cls)) > heads - len(both):
            return set()
        state = decoding_exponent(self.structure.token_dim + brought, self.arch.embed_dim) if brought else Fraction(1)
        waiting = tuple(
            sorted([b for b, taken in zip(bundles, fetched, strict=True) if not taken] + list(sizes.values()))
        )
        newly = sum(move == "hold" for move in chosen)
        later = self._go(layer + 1, tuple(after), waiting, held - rides + newly)
        if not later:
            return set()
        here = set(_on_heads(tokens, cls, both, rides, heads, head_dim, self._attends(layer)))
        return {(max(state, f, g), max(s, t), free + spare) for f, s, free in here for g, t, spare in later}


def _undominated(prices: set[Price]) -> frozenset[Price]:
    better = {p for p in prices if not any(q != p and q[0] <= p[0] and q[1] <= p[1] and q[2] >= p[2] for q in prices)}
    return frozenset(better)


def _on_heads(
    tokens: Duties, cls: Duties, both: Duties, rides: int, heads: int, head_dim: int, attends: bool
) -> Iterator[Price]:
    """The price of every way to put the duties on heads."""
    free = heads - len(both)
    mine = [*tokens, *([None] * (free - len(tokens)))]
    for theirs in set(permutations([*cls, *([None] * (free - len(cls)))])):
        served = [*zip(mine, theirs, strict=True), *((duty, duty) for duty in both)]
        for carried in _shares(rides, len(served)):
            price = _price(served, carried, head_dim, attends)
            if price:
                yield price


def _shares(rides: int, heads: int) -> Iterator[tuple[int, ...]]:
    if heads == 1:
        yield (rides,)
        return
    for first in range(rides + 1):
        yield from ((first, *rest) for rest in _shares(rides - first, heads - 1))


def _price(served, carried: tuple[int, ...], head_dim: int, attends: bool) -> Price | None:
    features, separated, spare = Fraction(1), Fraction(1), 0
    for (token, cls), rides in zip(served, carried, strict=True):
        duties = (
            {id(duty): duty for duty in (token, cls) if duty}.values()
            if token is cls
            else [duty for duty in (token, cls) if duty]
        )
        raw = len(duties) == 2 and all(duty[2] == "positions" for duty in duties)
        load = max(duty[0] for duty in duties) if raw else sum(duty[0] for duty in duties)
        ranks = max(2, *(duty[1] for duty in duties)) if raw else sum(duty[1] for duty in duties)
        if ranks > head_dim:
            return None
        alone = len(duties) == 1 and not rides and next(iter(duties))[2] in ("max", "route")
        bundle = alone and next(iter(duties))[2] == "route"
        exponent = decoding_exponent(load + rides, head_dim)
        if alone and not bundle:
            features = max(features, exponent)
        else:
            separated = max(separated, exponent)
        if cls is None and attends:
            spare += max(0, head_dim - load - rides)
    return features, separated, spare
