"""The slow road: try every assignment of every look-up to every layer. For small cases, and for tests."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import product

from headcount.papers.infoflow.analysis import Cost
from headcount.papers.infoflow.costs import decoding_exponent, gate_heads
from headcount.papers.infoflow.demands import Demand, Shape, demands_of
from headcount.structure import Structure

__all__ = ["exhaustive_cost"]

Unit = tuple[Demand, int]  # a single look-up of a demand
Price = tuple[Fraction, Fraction, int]  # (features, separated, spare dimensions)


def exhaustive_cost(structure: Structure, arch: Shape) -> Cost:
    """The least cost over all assignments, by enumeration; agrees with `analyse` wherever it can finish.

    Every look-up is taken by itself. In every layer it may rest, do its next act, be collected by gated heads, or join
    one of the bundles that a shared head collects by position; every bundle may be fetched or wait. Nothing is pruned
    but repeated states.
    """
    demands, rest = demands_of(structure)
    options = [_whole(structure, arch)]
    if any(r.order > 2 for r in rest):
        return options[0]
    places = len({p for r in rest for p in r.positions})
    if not demands:
        return _aggregated(arch, places * structure.token_dim)
    units: list[Unit] = [(d, i) for d in demands for i in range(d.count)]
    named = {name for d in demands for name in d.after}
    for chosen in product(*(_may_gather(d, structure, named) for d, _ in units)):
        kept = tuple(u for u, gathered in zip(units, chosen, strict=True) if not gathered)
        tokens = sum(_tokens(d) for (d, _), gathered in zip(units, chosen, strict=True) if gathered)
        options.extend(_costs(structure, arch, kept, min(structure.length, tokens + places) * structure.token_dim))
    return min(options, key=lambda cost: cost.order)


def _tokens(demand: Demand) -> int:
    return demand.window * (2 if demand.acts[0].kind == "shift" else 1)


def _may_gather(demand: Demand, structure: Structure, named: set[str]) -> tuple[bool, ...]:
    free = demand.order and demand.window < structure.length and not demand.after
    return (False, True) if free and not set(demand.name.split(", ")) & named else (False,)


def _aggregated(arch: Shape, numbers: int) -> Cost:
    channel = min(arch.embed_dim, sum(heads * head_dim for heads, head_dim in arch.layers))
    return Cost(aggregated=decoding_exponent(numbers, channel))


def _whole(structure: Structure, arch: Shape) -> Cost:
    reach = sum(
        len(r.positions) or (r.window or structure.length) * (2 if r.offset else 1) for r in structure.retrievals
    )
    return _aggregated(arch, min(structure.length, reach) * structure.token_dim)


def _costs(structure: Structure, arch: Shape, units: tuple[Unit, ...], gathered: int) -> Iterator[Cost]:
    keeps = sum(d.keeps for d, _ in units) + gathered
    held = decoding_exponent(keeps, arch.embed_dim)
    for features, separated, spare in _Enumeration(structure, arch, units).prices():
        channel = min(arch.embed_dim, spare)
        if gathered and not channel:
            continue
        yield Cost(max(features, held), separated, decoding_exponent(gathered, channel) if gathered else Fraction(1))


class _Enumeration:
    def __init__(self, structure: Structure, arch: Shape, units: tuple[Unit, ...]) -> None:
        self.structure, self.arch, self.units = structure, arch, units
        self._go = lru_cache(maxsize=None)(self._search)

    def prices(self) -> frozenset[Price]:
        return self._go(0, (0,) * len(self.units), ())

    def _search(self, layer: int, progress: tuple[int, ...], bundles: tuple[int, ...]) -> frozenset[Price]:
        layers = self.arch.layers
        if not bundles and all(p == len(d.acts) for p, (d, _) in zip(progress, self.units, strict=True)):
            return frozenset({(Fraction(1), Fraction(1), sum(h * n for h, n in layers[layer:]))})
        if layer == len(layers):
            return frozenset()
        found: set[Price] = set()
        moves = [self._moves(layer, i, progress) for i in range(len(self.units))]
        for chosen in product(*moves):
            for fetched in product((False, True), repeat=len(bundles)):
                found |= self._layer(layer, progress, bundles, chosen, fetched)
        return frozenset(found)

    def _moves(self, layer: int, unit: int, progress: tuple[int, ...]) -> list[str]:
        demand, p = self.units[unit][0], progress[unit]
        moves = ["rest"]
        if p == len(demand.acts):
            return moves
        act, rest = demand.acts[p], demand.acts[p:]
        if act.waits and not self._known(demand.after, progress):
            return moves
        moves.append("act")
        if self.arch.positions and demand.route and act.kind == "collect":
            moves += [f"bundle {b}" for b in range(self.arch.layers[layer][0])]
        masks = all(a.kind in ("mask", "collect") for a in rest) and len(rest) > 1 and demand.order == 1
        if self.arch.positions and masks and demand.acts[-1].at == "cls":
            moves.append("gate")
        return moves

    def _known(self, names: tuple[str, ...], progress: tuple[int, ...]) -> bool:
        return all(p == len(d.acts) for p, (d, _) in zip(progress, self.units, strict=True) if d.name in names)

    def _layer(
        self,
        layer: int,
        progress: tuple[int, ...],
        bundles: tuple[int, ...],
        chosen: tuple[str, ...],
        fetched: tuple[bool, ...],
    ) -> set[Price]:
        heads, head_dim = self.arch.layers[layer]
        at_cls, at_tokens, brought = sum(fetched), 0, 0
        features = separated = Fraction(1)
        after, sizes = list(progress), {}
        for i, move in enumerate(chosen):
            if move == "rest":
                continue
            demand, _ = self.units[i]
            act = demand.acts[progress[i]]
            after[i] = progress[i] + 1 if move == "act" else len(demand.acts)
            if move == "act":
                price = decoding_exponent(act.load, head_dim)
                if act.mode == "positions":
                    separated = max(separated, price)
                else:
                    features = max(features, price)
                at_cls += act.at != "tokens"
                at_tokens += act.at != "cls"
                brought += act.load * (act.at != "cls")
            elif move == "gate":
                at_cls += gate_heads(demand.window, demand.rank_left(progress[i]))
            else:
                sizes[move] = sizes.get(move, 0) + 1
        if any(size > min(head_dim, self.structure.length) for size in sizes.values()):
            return set()
        at_tokens, brought = at_tokens + len(sizes), brought + len(sizes)
        if at_cls > heads or at_tokens > heads:
            return set()
        for size, taken in zip(bundles, fetched, strict=True):
            separated = max(separated, decoding_exponent(size, head_dim) if taken else Fraction(1))
        if brought:
            features = max(features, decoding_exponent(self.structure.token_dim + brought, self.arch.embed_dim))
        waiting = tuple(
            sorted([b for b, taken in zip(bundles, fetched, strict=True) if not taken] + list(sizes.values()))
        )
        spare = (heads - at_cls) * head_dim
        return {
            (max(features, f), max(separated, s), spare + free)
            for f, s, free in self._go(layer + 1, tuple(after), waiting)
        }
