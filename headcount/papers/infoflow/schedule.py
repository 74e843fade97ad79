"""Who does what in which layer: the fast search for a placement of all acts on heads, within given exponents.

Look-ups of one kind are interchangeable, so the state of the search is a handful of counts; and what is done earlier
never stands in the way of what comes later, so only layers to which nothing can be added are tried. The exhaustive road
of the tests knows neither shortcut.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from headcount.nets.architecture import Architecture
from headcount.papers.infoflow.costs import gate_heads
from headcount.papers.infoflow.demands import Act, Demand
from headcount.papers.infoflow.packing import Duty, Limits, Packing
from headcount.results.gathering import grouped

# For each demand, how many look-ups wait for each of its acts.
Counts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Job:
    """`number` look-ups of one demand served in one layer, by `heads` heads.

    `way`: "plain" (the act as it stands), "gated" (collected at once by gated heads), "held" (collected by every
    token), "ridden" (what the tokens hold, fetched along with anything), "routed" (each collected at its own position
    by a shared head), "fetched" (read from those positions by the class token).
    """

    demand: int
    act: int
    number: int
    heads: int
    way: str = "plain"


@dataclass(frozen=True)
class ActSchedule:
    """The jobs of every layer, and the dimensions of the class token's idle heads, to aggregate with."""

    layers: tuple[tuple[Job, ...], ...]
    spare: int


def schedule(
    demands: tuple[Demand, ...], arch: Architecture, size: tuple[int, int], limits: Limits, *, spare: int = 0
) -> ActSchedule | None:
    """A placement of all acts that leaves at least `spare` dimensions to aggregate with, or None.

    `size` is (length, token_dim). Where something is aggregated, nothing rides along.
    """
    kinds, members = _kinds(demands)
    start = tuple((d.count,) + (0,) * (len(d.acts) - 1) for d in kinds)
    for routing in (False, True) if arch.positions else (False,):
        search = _Search(kinds, arch, size, limits, routing=routing, riding=not spare)
        placed = search.finish(0, _State(start), spare)
        if placed is not None:
            return ActSchedule(tuple(_shared_out(placed.layers, kinds, members)), placed.spare)
    return None


def gates_of(demand: Demand, progress: int) -> int:
    """Heads that would collect one such look-up at once, gated by position; 0 where gates do not help."""
    rest = demand.acts[progress:]
    masks = demand.order == 1 and len(rest) > 1 and all(act.kind in ("mask", "collect") for act in rest)
    return gate_heads(demand.window, demand.rank_left(progress)) if masks and demand.acts[-1].at == "cls" else 0


def scheduling_kind(demand: Demand, named: set[str]) -> Hashable:
    """Demands of one kind are interchangeable to the search: it sees their acts, and a window only behind gates."""
    window = demand.window if gates_of(demand, 0) else 0
    own = demand.name if demand.name in named else ""
    return demand.acts, demand.after, demand.free, demand.order, demand.rank, window, own


def _kinds(demands: tuple[Demand, ...]) -> tuple[tuple[Demand, ...], list[list[int]]]:
    """One demand for all of a kind, and which ones it stands for."""
    named = {name for d in demands for name in d.after}
    members = grouped((scheduling_kind(demand, named), g) for g, demand in enumerate(demands))
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
                granted = heads if job.way == "routed" else job.heads // job.number * number
                written.append(Job(g, job.act, number, granted, job.way))
                heads -= granted
            moved.append((queues[job.demand][job.act + 1 if job.way == "plain" else -1], taken))
        for queue, taken in moved:
            queue += taken
        yield tuple(written)


@dataclass(frozen=True)
class _Option:
    """Something a layer may do any number of times: for which look-ups, at what price in heads and numbers."""

    demand: int
    act: int
    way: str
    heads: int
    duty: Duty
    at: str
    brings: int  # numbers that every token takes in

    def job(self, number: int) -> Job:
        return Job(self.demand, self.act, number, number * self.heads, self.way)


@dataclass(frozen=True)
class _State:
    """What is left to do: acts waited for, bundles to be fetched by their sizes, numbers the tokens hold."""

    counts: Counts
    bundles: tuple[int, ...] = ()
    held: int = 0

    @property
    def done(self) -> bool:
        return not self.bundles and not self.held and not any(map(any, self.counts))


class _Search:
    def __init__(
        self,
        demands: tuple[Demand, ...],
        arch: Architecture,
        size: tuple[int, int],
        limits: Limits,
        *,
        routing: bool,
        riding: bool,
    ) -> None:
        self.demands, self.arch, self.limits, self.routing, self.riding = demands, arch, limits, routing, riding
        self.length, token_dim = size
        self.room = int(limits.features * arch.embed_dim) - token_dim  # numbers a token can take in, in one layer
        self.last = len(arch.layers) - 1
        self.index = {d.name: i for i, d in enumerate(demands)}
        self.dead: dict[tuple[int, _State], int] = {}  # with how many dimensions wanted there was no way

    def finish(self, layer: int, state: _State, wanted: int) -> ActSchedule | None:
        """Any way to finish from here that leaves at least `wanted` dimensions."""
        if state.done and wanted <= self._idle(layer):
            return ActSchedule(((),) * (self.last + 1 - layer), self._idle(layer))
        if layer > self.last or not self._hopeful(layer, state) or self.dead.get((layer, state), wanted + 1) <= wanted:
            return None
        for jobs, after, spare in self._layers(layer, state, wanted):
            rest = self.finish(layer + 1, after, max(0, wanted - spare))
            if rest is not None:
                return ActSchedule((jobs, *rest.layers), spare + rest.spare)
        self.dead[layer, state] = min(wanted, self.dead.get((layer, state), wanted))
        return None

    def _attends(self, layer: int) -> bool:
        """Whether the class token does anything in this layer."""
        return layer == self.last or self.arch.class_token == "every"

    def _idle(self, layer: int) -> int:
        return sum(h * n for l, (h, n) in enumerate(self.arch.layers) if l >= layer and self._attends(l))

    def _hopeful(self, layer: int, state: _State) -> bool:
        """Necessary: layers for every chain, and heads for all acts that are left."""
        heads = [h for h, _ in self.arch.layers[layer:]]
        at_tokens = sum(heads[:-1])
        at_cls = sum(h for l, h in enumerate(heads, start=layer) if self._attends(l))
        steps = ends = 0
        for g, row in enumerate(state.counts):
            for p, number in enumerate(row):
                left = len(row) - p
                if not number or (self.arch.positions and gates_of(self.demands[g], p)):
                    continue
                if left > len(heads):
                    return False
                steps += number * left
                ends += number * (self.demands[g].acts[-1].at != "tokens")
        if self.routing:
            return steps - ends <= at_tokens + at_cls
        return steps <= at_tokens + at_cls and (self.riding or ends <= at_cls)

    # One layer.

    def _layers(self, layer: int, state: _State, wanted: int) -> Iterator[tuple[tuple[Job, ...], _State, int]]:
        heads, head_dim = self.arch.layers[layer]
        packing = Packing(heads, head_dim, self.limits)
        options = self._options(layer, state)
        for fetched in self._fetches(layer, state.bundles):
            for routed in self._routings(layer, state):
                left = {}
                for option in options:
                    taken = sum(j.number for j in routed if (j.demand, j.act) == (option.demand, option.act))
                    left[option.demand, option.act] = state.counts[option.demand][option.act] - taken
                fixed = _Layer(packing, tuple(_sizes(routed)), fetched, self.room)
                for numbers in _fill(fixed, options, left, maximal=not wanted):
                    jobs = tuple(o.job(k) for o, k in zip(options, numbers, strict=True) if k)
                    most = fixed.rides(options, numbers, state.held) if state.held and self._attends(layer) else 0
                    spare = fixed.spare(options, numbers) if wanted and self._attends(layer) else 0
                    fetches = tuple(Job(-1, -1, m, 1, "fetched") for m in fetched)
                    ridden = (Job(-1, -1, most, 0, "ridden"),) if most else ()
                    yield (*jobs, *routed, *fetches, *ridden), _after(state, jobs, routed, fetched, most), spare

    def _options(self, layer: int, state: _State) -> list[_Option]:
        options: list[_Option] = []
        for g, row in enumerate(state.counts):
            for p, number in enumerate(row):
                if number and self._ready(self.demands[g], self.demands[g].acts[p], state.counts):
                    options += self._ways(layer, g, p)
        return sorted(options, key=lambda o: (o.act - len(self.demands[o.demand].acts), o.way != "plain"))

    def _ways(self, layer: int, g: int, p: int) -> Iterator[_Option]:
        demand, (heads, head_dim) = self.demands[g], self.arch.layers[layer]
        act, cls = demand.acts[p], self._attends(layer)
        for number, carried in act.shares(heads) if cls or act.at == "tokens" else ():
            if self.limits.admits(act, head_dim, carried):
                duty = Duty(carried, act.scores, raw=act.mode == "positions")
                yield _Option(g, p, "plain", number, duty, act.at, act.load if act.at != "cls" else 0)
        holds = self.riding and demand.free and act.kind == "collect" and layer < self.last
        if holds and self.limits.admits(act, head_dim, act.load):
            yield _Option(g, p, "held", 1, Duty(act.load), "tokens", act.load)
        gates = gates_of(demand, p) if self.arch.positions and cls else 0
        if 0 < gates <= heads:
            yield _Option(g, p, "gated", gates, Duty(1), "cls", 0)

    def _ready(self, demand: Demand, act: Act, counts: Counts) -> bool:
        return not act.waits or not any(any(counts[self.index[name]]) for name in demand.after)

    # Collecting by position.

    def _fetches(self, layer: int, bundles: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        heads, head_dim = self.arch.layers[layer]
        fits = [m for m in bundles if m <= self.limits.separated * head_dim] if self._attends(layer) else []
        choices: set[tuple[int, ...]] = {()}
        for size in fits:
            choices |= {tuple(sorted((*chosen, size))) for chosen in choices if len(chosen) < heads}
        yield from sorted((c for c in choices if not Counter(c) - Counter(fits)), key=lambda c: (-len(c), c))

    def _routings(self, layer: int, state: _State) -> Iterator[tuple[Job, ...]]:
        """Bundles made in this layer: one shared head lets every member be collected at a position of its own."""
        yield ()
        heads, head_dim = self.arch.layers[layer]
        if not self.routing or layer == self.last or self.room < 1:
            return
        ready = [
            (g, p, number)
            for g, row in enumerate(state.counts)
            for p, number in enumerate(row)
            if number and self.demands[g].free and self.demands[g].acts[p].kind == "collect"
            if self._ready(self.demands[g], self.demands[g].acts[p], state.counts)
        ]
        total = sum(number for *_, number in ready)
        largest = min(head_dim, self.length, total)
        later = max((int(self.limits.separated * n) for _, n in self.arch.layers[layer + 1 :]), default=0)
        for sizes in _partitions(total, min(largest, later), min(heads, self.room)):
            yield tuple(_bundled(ready, sizes))


@dataclass(frozen=True)
class _Layer:
    """A layer with its bundles chosen, to be filled."""

    packing: Packing
    routed: tuple[int, ...]
    fetched: tuple[int, ...]
    room: int

    def spare(self, options: list[_Option], numbers: tuple[int, ...], rides: int = 0) -> int:
        tokens = [Duty(m, m) for m in self.routed]
        cls, both = [Duty(m) for m in self.fetched], []
        brought = len(self.routed)
        for option, number in zip(options, numbers, strict=False):
            duties = [option.duty] * (option.heads * number)
            (tokens if option.at == "tokens" else cls if option.at == "cls" else both).extend(duties)
            brought += option.brings * number
        return -1 if brought > max(0, self.room) else self.packing.spare(tokens, cls, both, rides)

    def rides(self, options: list[_Option], numbers: tuple[int, ...], limit: int) -> int:
        """As many as find room beside the rest."""
        return bisect_left(range(1, limit + 1), True, key=lambda more: self.spare(options, numbers, more) < 0)


def _fill(
    layer: _Layer, options: list[_Option], left: dict[tuple[int, int], int], *, maximal: bool
) -> Iterator[tuple[int, ...]]:
    """How often to do each option: every way that fits; only those to which nothing can be added if `maximal`."""

    def fits(numbers: tuple[int, ...]) -> bool:
        return layer.spare(options, numbers) >= 0

    def rest(numbers: tuple[int, ...]) -> dict[tuple[int, int], int]:
        used = dict(left)
        for option, number in zip(options, numbers, strict=False):
            used[option.demand, option.act] -= number
        return used

    def grow(numbers: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(numbers) == len(options):
            yield numbers
            return
        option = options[len(numbers)]
        most = min(rest(numbers)[option.demand, option.act], layer.packing.heads // option.heads)
        while most and not fits((*numbers, most)):
            most -= 1
        last = len(numbers) + 1 == len(options)
        for number in range(most, most - 1 if maximal and last else -1, -1):
            yield from grow((*numbers, number))

    def full(numbers: tuple[int, ...]) -> bool:
        free = rest(numbers)
        return not any(
            free[o.demand, o.act] and fits((*numbers[:i], numbers[i] + 1, *numbers[i + 1 :]))
            for i, o in enumerate(options)
        )

    if not fits(()):
        return
    for numbers in grow(()):
        if not maximal or full(numbers):
            yield numbers


def _partitions(total: int, largest: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Falling sizes from 2 to `largest`, at most `parts` of them, at most `total` in all; the largest first.

    Beyond eight, only sizes that leave room for one or two other duties, and remainders, are tried.
    """
    if not parts or total < 2 or largest < 2:
        return
    for size in range(min(largest, total), 1, -1):
        if 8 < size < min(largest, total) - 2:
            continue
        yield (size,)
        for more in _partitions(total - size, size, parts - 1):
            yield (size, *more)


def _bundled(ready: list[tuple[int, int, int]], sizes: tuple[int, ...]) -> Iterator[Job]:
    """The ready look-ups in bundles of these sizes; the first job of each bundle holds its head."""
    queue = [(g, p) for g, p, number in ready for _ in range(number)]
    for size in sizes:
        own, queue = queue[:size], queue[size:]
        for i, ((g, p), number) in enumerate(Counter(own).items()):
            yield Job(g, p, number, int(i == 0), "routed")


def _sizes(routed: tuple[Job, ...]) -> list[int]:
    sizes: list[int] = []
    for job in routed:
        if job.heads:
            sizes.append(job.number)
        else:
            sizes[-1] += job.number
    return sizes


def _after(
    state: _State, jobs: tuple[Job, ...], routed: tuple[Job, ...], fetched: tuple[int, ...], ridden: int
) -> _State:
    held = state.held - ridden + sum(job.number for job in jobs if job.way == "held")
    bundles = sorted((Counter(state.bundles) - Counter(fetched) + Counter(_sizes(routed))).elements())
    return _State(_moved(state.counts, (*jobs, *routed)), tuple(bundles), held)


def _moved(counts: Counts, jobs: tuple[Job, ...]) -> Counts:
    rows = [list(row) for row in counts]
    for job in jobs:
        rows[job.demand][job.act] -= job.number
        if job.way == "plain" and job.act + 1 < len(rows[job.demand]):
            rows[job.demand][job.act + 1] += job.number
    return tuple(map(tuple, rows))
