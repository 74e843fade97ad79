"""Who does what in which layer: the fast search for a placement of all acts on heads, within given exponents.

Look-ups of one kind are interchangeable, so the state of the search is a handful of counts, and heads are filled as
far as they go: an act done earlier never stands in the way of a later one. `exhaustive` knows neither shortcut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

from headcount.infoflow.costs import gate_heads
from headcount.infoflow.demands import Act, Demand, Shape

__all__ = ["Job", "Limits", "Schedule", "schedule"]


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
class Schedule:
    """The jobs of every layer, and the dimensions of the class token's heads that are left to aggregate with."""

    layers: tuple[tuple[Job, ...], ...]
    spare: int


# Progress of a search: for each demand, how many look-ups wait for each of its acts; and the sizes of routed bundles
# that have not been fetched yet.
Counts = tuple[tuple[int, ...], ...]


def schedule(
    demands: tuple[Demand, ...], arch: Shape, size: tuple[int, int], limits: Limits, *, spare: int = 0
) -> Schedule | None:
    """The placement of all acts that leaves the most spare dimensions, or None when there is none within `limits`.

    `size` is (length, token_dim). Collecting by position is tried only where the plain way leaves less than `spare`.
    """
    start = tuple((d.count,) + (0,) * (len(d.acts) - 1) for d in demands)
    plain = _Search(demands, arch, size, limits, route=False, spare=spare).best(start)
    if not arch.positions or (plain is not None and plain.spare >= spare):
        return plain
    routed = _Search(demands, arch, size, limits, route=True, spare=spare).best(start)
    return max((found for found in (plain, routed) if found), key=lambda found: found.spare, default=None)


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
    ) -> None:
        self.demands, self.arch, self.limits, self.route, self.spare = demands, arch, limits, route, spare
        self.chains = any(d.after for d in demands)
        self.bundle = max(head_dim for _, head_dim in arch.layers) if route else 1
        self.length, self.token_dim = size
        self.index = {d.name: i for i, d in enumerate(demands)}
        # Which heads collect matters only for what they leave: by how many they are when bundles save some, and by
        # their layer when head dimensions differ.
        self.greedy = not spare or (len({head_dim for _, head_dim in arch.layers}) == 1 and not route)
        self.room = int(limits.features * arch.embed_dim) - self.token_dim  # numbers a token can take in, in one layer
        most = max(heads for heads, _ in arch.layers)
        self.gates = arch.positions and any(d.rank > 1 and gate_heads(d.window, 2) <= most for d in demands)
        self._go = lru_cache(maxsize=None)(self._search)

    def best(self, start: Counts) -> Schedule | None:
        found = self._go(0, start, ())
        return None if found is None else Schedule(found[1], found[0])

    def _search(
        self, layer: int, counts: Counts, bundles: tuple[int, ...]
    ) -> tuple[int, tuple[tuple[Job, ...], ...]] | None:
        if not bundles and not any(map(any, counts)):
            free = sum(heads * head_dim for heads, head_dim in self.arch.layers[layer:])
            return free, ((),) * (len(self.arch.layers) - layer)
        if layer == len(self.arch.layers) or self._hopeless(layer, counts, bundles):
            return None
        best = None
        for jobs, after, waiting, spare in self._choices(layer, counts, bundles):
            rest = self._go(layer + 1, after, waiting)
            if rest is not None and (best is None or spare + rest[0] > best[0]):
                best = (spare + rest[0], (jobs, *rest[1]))
                if not self.spare:
                    return best
        return best

    def _hopeless(self, layer: int, counts: Counts, bundles: tuple[int, ...]) -> bool:
        """Whether a chain is longer than the layers left, or the acts are more than the heads left."""
        left = self.arch.layers[layer:]
        heads = sum(h for h, _ in left)
        # Heads of this layer collect one each; later ones can fetch a bundle, made by a token's head before.
        first = left[0][0] - len(bundles)
        if sum(map(sum, counts)) > first + (heads - left[0][0]) * self.bundle:
            return True
        if self.gates:
            return False
        waiting = [(self.demands[g].acts[p:], number) for g, p, number in self._waiting(counts)]
        if any(len(acts) > len(left) for acts, _ in waiting):
            return True
        work = sum(number * sum(act.at != "cls" for act in acts) for acts, number in waiting)
        return work > heads

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
                        waiting = _without(bundles, fetched) + tuple(sorted(_sizes(routed)))
                        spare = (heads - len(fetched) - cls_used) * head_dim
                        yield jobs, _plus(left, done), tuple(sorted(waiting)), spare

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
        for g, p, number in self._waiting(counts):
            demand, rest = self.demands[g], self.demands[g].acts[p:]
            if demand.order == 1 and len(rest) > 1 and all(act.kind in ("mask", "collect") for act in rest):
                gates = gate_heads(demand.window, demand.rank_left(p))
                if (
                    gates <= self.arch.layers[layer][0]
                    and rest[-1].at == "cls"
                    and self._ready(demand, rest[0], counts)
                ):
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
        for g, p, number in self._waiting(counts):
            demand, act = self.demands[g], self.demands[g].acts[p]
            here = act.at == "tokens" if at == "tokens" else act.at != "tokens"
            if here and self.limits.admits(act, head_dim) and self._ready(demand, act, before or counts):
                found.append(Job(g, p, number, 1))
        return found

    def _waiting(self, counts: Counts) -> Iterator[tuple[int, int, int]]:
        for g, row in enumerate(counts):
            for p, number in enumerate(row):
                if number:
                    yield g, p, number

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
