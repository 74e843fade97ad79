"""What is still possible from a half-made schedule: when every act can be done, and whether the heads left suffice.

Every remaining act has a first layer (its chain, and what it waits for, come before) and a last one (what follows
needs layers too). Whatever must lie in the first layers, or in the last, must find heads there: by these counts most
schedules that cannot be finished are seen at once, without a search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headcount.papers.infoflow.costs import gate_heads
from headcount.papers.infoflow.demands import Act, Demand, Shape

__all__ = ["Counts", "Outlook", "gates_of", "waiting"]

# For each demand, how many look-ups wait for each of its acts.
Counts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Open:
    """`number` equal acts still to be done, in layers `first` to `last`."""

    act: Act
    number: int
    first: int
    last: int
    routable: bool
    follows: bool  # an act at the tokens comes before it


def waiting(counts: Counts) -> Iterator[tuple[int, int, int]]:
    """(demand, act, how many look-ups wait for it), where there are any."""
    for g, row in enumerate(counts):
        for p, number in enumerate(row):
            if number:
                yield g, p, number


def gates_of(demand: Demand, progress: int) -> int:
    """Heads that would collect one such look-up at once, gated by position; 0 where gates do not help."""
    rest = demand.acts[progress:]
    masks = demand.order == 1 and len(rest) > 1 and all(act.kind in ("mask", "collect") for act in rest)
    return gate_heads(demand.window, demand.rank_left(progress)) if masks and demand.acts[-1].at == "cls" else 0


class Outlook:
    """Necessary conditions on a state of the search; `bundle` look-ups at most can share a head (1: no routing)."""

    def __init__(self, demands: tuple[Demand, ...], arch: Shape, room: int, bundle: int) -> None:
        self.demands, self.room, self.bundle = demands, room, bundle
        self.heads = [heads for heads, _ in arch.layers]
        self.dims = [head_dim for _, head_dim in arch.layers]
        self.end, self.most = len(self.heads) - 1, max(self.heads)
        index = {d.name: g for g, d in enumerate(demands)}
        self.before = [[index[name] for name in d.after] for d in demands]
        self.then = [[j for j, earlier in enumerate(self.before) if g in earlier] for g in range(len(demands))]
        self.gated = [
            [bool(arch.positions) and 0 < gates_of(d, p) <= self.most for p in range(len(d.acts))] for d in demands
        ]
        self.waiting_acts = [[_waiting_acts(d.acts[p:]) for p in range(len(d.acts))] for d in demands]
        self.urgency = self._urgencies()

    def _urgencies(self) -> list[int]:
        """Layers that must follow the end of each demand."""
        after = [0] * len(self.demands)
        for g in reversed(range(len(self.demands))):
            after[g] = max((self.waiting_acts[j][0] + after[j] for j in self.then[g]), default=0)
        return after

    def spare(self, layer: int, counts: Counts, bundles: int) -> int:
        """The dimensions that the class token's heads can have left at most; negative when there is no way at all."""
        acts = self._open(layer, counts)
        if any(a.first > a.last for a in acts) or not self._tokens_fit(layer, acts) or not self._ends_fit(layer, acts):
            return -1
        needed = self._cls_heads(layer, acts, bundles)
        if needed > sum(self.heads[layer:]) or not self._cls_fits(layer, acts):
            return -1
        dims = sum(h * n for h, n in zip(self.heads[layer:], self.dims[layer:], strict=True))
        return dims - needed * min(self.dims[layer:])

    def _open(self, layer: int, counts: Counts) -> list[_Open]:
        ready, last = self._ready(layer, counts), self._last(layer, counts)
        acts = []
        for g, p, number in waiting(counts):
            demand, first, left = self.demands[g], layer, len(self.demands[g].acts) - p
            if self.gated[g][p]:  # perhaps one act at the class token, and none at the tokens
                acts.append(_Open(demand.acts[-1], number, max(layer, ready[g]), last[g], False, False))
                continue
            for i, act in enumerate(demand.acts[p:]):
                first = max(first, ready[g]) if act.waits else first
                routable = demand.route and act.kind == "collect"
                acts.append(_Open(act, number, first, last[g] - (left - 1 - i), routable, i > 0))
                first += 1
        return acts

    def _ready(self, layer: int, counts: Counts) -> list[int]:
        """The first layer in which each demand can use what the others find."""
        done, ready = [layer - 1] * len(counts), [layer] * len(counts)
        for g, row in enumerate(counts):
            ready[g] = max((done[i] + 1 for i in self.before[g]), default=layer)
            for p, number in enumerate(row):
                if number:
                    acts = 1 if self.gated[g][p] else self.waiting_acts[g][p]
                    start = max(ready[g], layer + (0 if self.gated[g][p] else len(row) - p - acts))
                    done[g] = max(done[g], start + acts - 1 + self._rounds(number) - 1)
        return ready

    def _last(self, layer: int, counts: Counts) -> list[int]:
        """The last layer in which each demand can end."""
        last, start = [self.end] * len(counts), [self.end + 1] * len(counts)
        for g in reversed(range(len(counts))):
            last[g] = min((start[j] - 1 for j in self.then[g]), default=self.end)
            last[g] = min(last[g], self.end)
            for p, number in enumerate(counts[g]):
                if number:
                    acts = 1 if self.gated[g][p] else self.waiting_acts[g][p]
                    start[g] = min(start[g], last[g] - acts + 1 - (self._rounds(number) - 1))
        return last

    def _rounds(self, number: int) -> int:
        return 1 if self.bundle > 1 else -(-number // self.most)

    def _tokens_fit(self, layer: int, acts: list[_Open]) -> bool:
        there = [a for a in acts if a.act.at != "cls"]
        if not there:
            return True
        heads = all(_fits(layer, [(a.first, a.last, a.number) for a in there], self.heads))
        loads = [(a.first, a.last, a.number * a.act.load) for a in there]
        return heads and all(_fits(layer, loads, [self.room] * len(self.heads)))

    def _cls_fits(self, layer: int, acts: list[_Open]) -> bool:
        """Look-ups that can share a head are let through here; `_cls_heads` counts them."""
        alone = [a for a in acts if a.act.at != "tokens" and not (a.routable and self.bundle > 1)]
        return all(_fits(layer, [(a.first, a.last, a.number) for a in alone], self.heads))

    def _ends_fit(self, layer: int, acts: list[_Open]) -> bool:
        """Whether the class token can keep up: a look-up served at the tokens in layer a - 1 or later ends in a or
        later, so no more such acts fit there than heads at the class token are left from a on, each for a whole chain.
        A bundle made in the last layer is never fetched, so there routing makes no difference."""
        work = sum(a.number for a in acts if a.act.at == "tokens")
        for a in range(layer + 1 if self.bundle == 1 else max(layer + 1, self.end), self.end + 1):
            others = sum(o.number for o in acts if o.act.at != "tokens" and not o.follows and o.first >= a)
            late = max(0, sum(self.heads[a:]) - others) * (self.end - a + 1)
            if work > sum(self.heads[layer : a - 1]) + min(late, sum(self.heads[a - 1 : self.end])):
                return False
        return True

    def _cls_heads(self, layer: int, acts: list[_Open], bundles: int) -> int:
        """The least heads at the class token: one a look-up, or one a bundle where a token's head is free for it."""
        ends = [a for a in acts if a.act.at != "tokens"]
        shared = sum(a.number for a in ends if a.routable) if self.bundle > 1 else 0
        alone = sum(a.number for a in ends) - shared
        free = sum(self.heads[layer : self.end]) - sum(a.number for a in acts if a.act.at == "tokens")
        made = max(0, min(-(-shared // self.bundle), free, sum(self.heads[layer + 1 :])))
        return bundles + alone + max(made, shared - made * (self.bundle - 1))


def _waiting_acts(acts: tuple[Act, ...]) -> int:
    """How many acts there are from the first that waits for what other demands find."""
    return len(acts) - next((i for i, act in enumerate(acts) if act.waits), 0)


def _fits(layer: int, acts: list[tuple[int, int, int]], space: list[int]) -> Iterator[bool]:
    """Whether what must be done by each layer, and what cannot begin before it, fits into the space there."""
    for edge in range(layer, len(space)):
        yield sum(n for _, last, n in acts if last <= edge) <= sum(space[layer : edge + 1])
        yield sum(n for first, _, n in acts if first >= edge) <= sum(space[edge:])
