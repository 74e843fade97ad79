"""Who does what in which layer: the fast search for a placement of all acts on heads, within given exponents.

Look-ups of one kind are interchangeable, so the state of the search is a handful of counts, and heads are filled as
far as they go: an act done earlier never stands in the way of a later one. `exhaustive` knows neither shortcut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import product

from headcount.papers.infoflow.demands import Act, Demand, Shape
from headcount.papers.infoflow.outlook import Counts, Outlook, gates_of, waiting

__all__ = ["Job", "Limits", "ActSchedule", "schedule", "scheduling_kind"]


@dataclass(frozen=True)
class Limits:
    """The largest exponents allowed: of retrieved tokens and full states, and of reading by position."""

    features: Fraction
    separated: Fraction

    def admits(self, act: Act, head_dim: int) -> bool:
        limit = self.separated if act.mode == "positions" else self.features
        return act.load <= limit * head_dim


@dataclass(frozen=True)
class Job:
    """`number` look-ups of one demand served in one layer, by `heads` heads.

    `way`: "plain" (the act as it stands), "gated" (collected at once by gated heads), "routed" (each collected at its
    own position by a shared head), "fetched" (read from those positions by the class token).
    """

    demand: int
    act: int
    number: int
    heads: int
    way: str = "plain"


@dataclass(frozen=True)
class ActSchedule:
    """The jobs of every layer, and the dimensions of the class token's heads that are left to aggregate with."""

    layers: tuple[tuple[Job, ...], ...]
    spare: int


def schedule(
    demands: tuple[Demand, ...], arch: Shape, size: tuple[int, int], limits: Limits, *, spare: int = 0, least: int = 0
) -> ActSchedule | None:
    """The placement of all acts that leaves the most spare dimensions, or None when there is none within `limits`.

    `size` is (length, token_dim). More than `spare` dimensions are not looked for, and nothing is when fewer than
    `least` can be left. Collecting by position is tried only where the plain way leaves less than `spare`.
    """
    kinds, members = _kinds(demands)
    start = tuple((d.count,) + (0,) * (len(d.acts) - 1) for d in kinds)
    found = None
    for route in (False, True) if arch.positions else (False,):
        tried = _Search(kinds, arch, size, limits, route=route, spare=spare, least=least).best(start)
        if tried is not None and (found is None or tried.spare > found.spare):
            found = tried
        if found is not None and found.spare >= spare:
            break
    return None if found is None else ActSchedule(tuple(_shared_out(found.layers, kinds, members)), found.spare)


def scheduling_kind(demand: Demand, named: set[str]) -> Hashable:
    """Demands of one kind are interchangeable to the search: it sees their acts, and a window only behind gates."""
    window = demand.window if gates_of(demand, 0) else 0
    own = demand.name if demand.name in named else ""
    return demand.acts, demand.after, demand.route, demand.order, demand.rank, window, own


def _kinds(demands: tuple[Demand, ...]) -> tuple[tuple[Demand, ...], list[list[int]]]:
    """One demand for all of a kind, and which ones it stands for."""
    named = {name for d in demands for name in d.after}
    members: dict[Hashable, list[int]] = {}
    for g, demand in enumerate(demands):
        members.setdefault(scheduling_kind(demand, named), []).append(g)
    kinds = (replace(demands[own[0]], count=sum(demands[g].count for g in own)) for own in members.values())
    queues = [[g for g in own for _ in range(demands[g].count)] for own in members.values()]
    return tuple(kinds), queues


def _shared_out(
    layers: tuple[tuple[Job, ...], ...], kinds: tuple[Demand, ...], members: list[list[int]]
) -> Iterator[tuple[Job, ...]]:
    """The jobs of the kinds as jobs of their members, first come, first served."""
    queues = [[own] + [[] for _ in kind.acts] for own, kind in zip(members, kinds, strict=True)]
    for jobs in layers:
        moved, written = [], []
        for job in jobs:
            if job.demand < 0:
                written.append(job)
                continue
            queue = queues[job.demand][job.act]
            taken, queue[:] = queue[: job.number], queue[job.number :]
            heads = job.heads
            for g, number in Counter(taken).items():
                share = heads if job.way == "routed" else job.heads // job.number * number
                written.append(Job(g, job.act, number, share, job.way))
                heads -= share
            moved.append((queues[job.demand][job.act + 1 if job.way == "plain" else -1], taken))
        for queue, taken in moved:
            queue += taken
        yield tuple(written)


class _Search:
    def __init__(
        self,
        demands: tuple[Demand, ...],
        arch: Shape,
        size: tuple[int, int],
        limits: Limits,
        *,
        route: bool,
        spare: int,
        least: int,
    ) -> None:
        self.demands, self.arch, self.limits, self.route = demands, arch, limits, route
        self.spare, self.least = spare, least
        self.chains = any(d.after for d in demands)
        self.length, self.token_dim = size
        self.index = {d.name: i for i, d in enumerate(demands)}
        # Which heads collect matters only for what they leave: by how many they are when bundles save some, and by
        # their layer when head dimensions differ.
        self.greedy = not spare or (len({head_dim for _, head_dim in arch.layers}) == 1 and not route)
        self.room = int(limits.features * arch.embed_dim) - self.token_dim  # numbers a token can take in, in one layer
        widest = max(head_dim for _, head_dim in arch.layers)
        bundle = min(widest, self.length, int(limits.separated * widest)) if route else 1
        self.outlook = Outlook(demands, arch, self.room, bundle)
        dims = {head_dim for _, head_dim in arch.layers}
        self.admitted = {(act, n) for d in demands for act in d.acts for n in dims if limits.admits(act, n)}
        self._go = lru_cache(maxsize=None)(self._search)

    def best(self, start: Counts) -> ActSchedule | None:
        somewhere = {act for act, _ in self.admitted}
        for demand, gated in zip(self.demands, self.outlook.gated, strict=True):
            if not gated[0] and not somewhere.issuperset(demand.acts):
                return None
        low, high = self.least, min(self.spare, self.outlook.spare(0, start, 0))
        if high < low:
            return None
        best = self._go(0, start, (), high)
        if best is None and low < high:
            best = self._go(0, start, (), low)
            low = high if best is None else best.spare
            while low + 1 < high:  # at least `low` can be left, and less than `high`
                middle = (low + high) // 2
                found = self._go(0, start, (), middle)
                best, low, high = (best, low, middle) if found is None else (found, found.spare, high)
        return best

    def _search(self, layer: int, counts: Counts, bundles: tuple[int, ...], wanted: int) -> ActSchedule | None:
        """Any way to finish from here that leaves at least `wanted` dimensions."""
        if not bundles and not any(map(any, counts)):
            free = sum(heads * head_dim for heads, head_dim in self.arch.layers[layer:])
            return ActSchedule(((),) * (len(self.arch.layers) - layer), free) if free >= wanted else None
        if layer == len(self.arch.layers) or self.outlook.spare(layer, counts, len(bundles)) < wanted:
            return None
        for jobs, after, unfetched, spare in self._choices(layer, counts, bundles):
            rest = self._go(layer + 1, after, unfetched, max(0, wanted - spare))
            if rest is not None:
                return ActSchedule((jobs, *rest.layers), spare + rest.spare)
        return None

    def _choices(
        self, layer: int, counts: Counts, bundles: tuple[int, ...]
    ) -> Iterator[tuple[tuple[Job, ...], Counts, tuple[int, ...], int]]:
        heads, head_dim = self.arch.layers[layer]
        for fetched in self._fetches(bundles, heads, head_dim):
            for collected, cls_used, tokens_used, brought in self._collections(layer, counts, heads - len(fetched)):
                remaining = _minus(counts, collected)
                for routed in self._routings(layer, remaining, heads - tokens_used, self.room - brought):
                    left = _minus(remaining, routed)
                    shared = sum(job.heads for job in routed)  # each brings one number to the positions it serves
                    room = self.room - brought - shared
                    slots = heads - tokens_used - shared
                    for done in self._token_acts(layer, left, counts, slots, room):
                        jobs = (*collected, *routed, *done, *(Job(-1, -1, m, 1, "fetched") for m in fetched))
                        unfetched = _without(bundles, fetched) + tuple(_sizes(routed))
                        spare = (heads - len(fetched) - cls_used) * head_dim
                        yield jobs, _plus(left, done), tuple(sorted(unfetched)), spare

    # The class token.

    def _fetches(self, bundles: tuple[int, ...], heads: int, head_dim: int) -> Iterator[tuple[int, ...]]:
        fits = [m for m in bundles if m <= self.limits.separated * head_dim]
        if not self.spare and not self.chains and len(fits) == len(bundles):
            yield tuple(fits[:heads])  # a fetch put off makes room only for a collection that can wait as well
            return
        sizes = sorted(set(fits))
        for numbers in product(*(range(fits.count(size) + 1) for size in sizes)):
            if sum(numbers) <= heads:
                yield tuple(size for size, number in zip(sizes, numbers, strict=True) for _ in range(number))

    def _collections(self, layer: int, counts: Counts, heads: int) -> Iterator[tuple[tuple[Job, ...], int, int, int]]:
        """Jobs that finish look-ups at the class token; how many heads they take there and at the tokens; and how many
        numbers they bring to every token."""
        options = self._plain(layer, counts, "cls") + self._gated(layer, counts)
        everywhere = [self.demands[job.demand].acts[job.act].at == "both" for job in options]
        loads = [
            self.demands[job.demand].acts[job.act].load * both for job, both in zip(options, everywhere, strict=True)
        ]
        for jobs in _fill(tuple(options), heads, self.room, tuple(loads), maximal=self.greedy):
            cls_used = sum(job.heads for job in jobs)
            both = [job for job in jobs if self.demands[job.demand].acts[job.act].at == "both"]
            brought = sum(job.number * self.demands[job.demand].acts[job.act].load for job in both)
            yield jobs, cls_used, sum(job.heads for job in both), brought

    def _gated(self, layer: int, counts: Counts) -> list[Job]:
        if not self.arch.positions:
            return []
        found = []
        for g, p, number in waiting(counts):
            demand, gates = self.demands[g], gates_of(self.demands[g], p)
            if 0 < gates <= self.arch.layers[layer][0] and self._ready(demand, demand.acts[p], counts):
                found.append(Job(g, p, number, gates, "gated"))
        return found

    # The tokens.

    def _routings(self, layer: int, counts: Counts, heads: int, room: int) -> Iterator[tuple[Job, ...]]:
        """At most `heads` bundles: in each, one shared head lets every member be collected at a position of its own."""
        yield ()
        if not self.route or heads < 1 or room < 1:
            return
        ready = [job for job in self._plain(layer, counts, "cls") if self.demands[job.demand].route]
        total = sum(job.number for job in ready)
        head_dim = self.arch.layers[layer][1]
        later = {int(self.limits.separated * n) for _, n in self.arch.layers[layer + 1 :]}
        for size in sorted({min(head_dim, self.length, n) for n in later} - {0, 1}, reverse=True):
            for bundles in range(1, min(heads, -(-total // size)) + 1):
                yield tuple(_bundled(ready, size, bundles))

    def _token_acts(self, layer: int, left: Counts, before: Counts, heads: int, room: int) -> Iterator[tuple[Job, ...]]:
        options = self._plain(layer, left, "tokens", before)
        loads = tuple(self.demands[job.demand].acts[job.act].load for job in options)
        yield from _fill(tuple(options), heads, room, loads, maximal=True)

    # What can be done now.

    def _plain(self, layer: int, counts: Counts, at: str, before: Counts | None = None) -> list[Job]:
        head_dim, found = self.arch.layers[layer][1], []
        for g, p, number in waiting(counts):
            demand, act = self.demands[g], self.demands[g].acts[p]
            here = act.at == "tokens" if at == "tokens" else act.at != "tokens"
            if here and (act, head_dim) in self.admitted and self._ready(demand, act, before or counts):
                found.append(Job(g, p, number, 1))
        return sorted(found, key=self._layers_after)

    def _layers_after(self, job: Job) -> int:
        """How many layers must follow, counted down: the longest chains first, so that the first try is a good one."""
        return job.act - len(self.demands[job.demand].acts) - self.outlook.urgency[job.demand]

    def _ready(self, demand: Demand, act: Act, counts: Counts) -> bool:
        return not act.waits or not any(any(counts[self.index[name]]) for name in demand.after)


def _fill(
    options: tuple[Job, ...], heads: int, room: int, loads: tuple[int, ...], *, maximal: bool
) -> Iterator[tuple[Job, ...]]:
    """Every way to serve look-ups with `heads` heads and `room` numbers at a token; only the fullest if `maximal`."""
    if not options:
        yield ()
        return
    job, load = options[0], loads[0]
    most = min(job.number, heads // job.heads, room // load if load else job.number)
    last = len(options) == 1
    for number in range(most, -1, -1):
        taken = (Job(job.demand, job.act, number, number * job.heads, job.way),) if number else ()
        for rest in _fill(options[1:], heads - number * job.heads, room - number * load, loads[1:], maximal=maximal):
            if maximal and number < most and _could_add(job, load, heads, room, number, rest, options[1:], loads[1:]):
                continue
            yield taken + rest
        if maximal and last:
            return


def _could_add(
    job: Job,
    load: int,
    heads: int,
    room: int,
    number: int,
    rest: tuple[Job, ...],
    options: tuple[Job, ...],
    loads: tuple[int, ...],
) -> bool:
    price = {(o.demand, o.act): load for o, load in zip(options, loads, strict=True)}
    heads -= number * job.heads + sum(j.heads for j in rest)
    room -= number * load + sum(j.number * price[j.demand, j.act] for j in rest)
    return job.heads <= heads and load <= room


def _bundled(ready: list[Job], size: int, bundles: int) -> Iterator[Job]:
    """The first `bundles * size` ready look-ups; the first job of each bundle holds its head."""
    free = 0
    for job in ready:
        number = job.number
        while number and (free or bundles):
            heads = 0 if free else 1
            if not free:
                free, bundles = size, bundles - 1
            taken = min(free, number)
            yield Job(job.demand, job.act, taken, heads, "routed")
            free, number = free - taken, number - taken


def _sizes(routed: tuple[Job, ...]) -> list[int]:
    sizes: list[int] = []
    for job in routed:
        if job.heads:
            sizes.append(job.number)
        else:
            sizes[-1] += job.number
    return sizes


def _without(bundles: tuple[int, ...], fetched: tuple[int, ...]) -> tuple[int, ...]:
    left = list(bundles)
    for size in fetched:
        left.remove(size)
    return tuple(left)


def _minus(counts: Counts, jobs: tuple[Job, ...]) -> Counts:
    rows = [list(row) for row in counts]
    for job in jobs:
        rows[job.demand][job.act] -= job.number
    return tuple(map(tuple, rows))


def _plus(counts: Counts, jobs: tuple[Job, ...]) -> Counts:
    rows = [list(row) for row in counts]
    for job in jobs:
        rows[job.demand][job.act] -= job.number
        rows[job.demand][job.act + 1] += job.number
    return tuple(map(tuple, rows))
