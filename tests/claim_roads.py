"""Second roads to a claim of the calculus: its plan carried out on numbers, or every assignment tried.

`python -m tests.claim_roads 500` counts claims by verdict, basis and road, and leaves with the number of false ones.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from headcount.nets import Architecture
from headcount.papers.infoflow.analysis import is_cheap
from headcount.papers.infoflow.prediction import Prediction, Step
from headcount.structure import Retrieval, Structure
from tests.exhaustive import exhaustive_cost

MOST_UNITS, MOST_WORK = 12, 10**10  # what `exhaustive_cost`, which sees every state once, finishes in seconds


@dataclass
class Unit:
    """One look-up of a target made for the test: its scores, what is left to do for it, what was found."""

    r: Retrieval
    x: np.ndarray
    rng: np.random.Generator
    before: list[Unit]
    masked: set[int] = field(default_factory=set)
    found: float | None = None

    def __post_init__(self) -> None:
        length, d = self.x.shape
        self.linear, self.form = self.rng.standard_normal(d), self.rng.standard_normal((d, d))
        self.beside = [self.rng.standard_normal(d) for _ in self.r.beside]
        rank = self.r.rank
        self.nearer = min(rank, (self.r.window or length) - rank + 1)
        self.sign = 1.0 if self.nearer == rank else -1.0
        self.todo = ["shift"] * (len(self.r.beside) + bool(self.r.offset))
        self.todo += ["partner"] if self.r.order == 2 else ["mask"] * (self.nearer - 1)
        self.todo += ["read"] if self.r.positions else ["collect"]

    def scores(self) -> np.ndarray:
        """The score of every token, as its state and what earlier look-ups found give it."""
        own = self.x @ self.linear + sum(unit.truth() * (self.x @ self.form[0]) for unit in self.before)
        for place, weights in zip(self.r.beside, self.beside, strict=True):
            own = own + np.roll(self.x, -place, 0) @ weights
        if self.r.order == 2:
            own = (self.x @ self.form @ self.x.T).max(1)
        own = self.sign * own
        own[self.r.window or len(own) :] = -np.inf
        return own

    def truth(self) -> float:
        """The number that is looked up, by its definition."""
        if self.r.positions:
            return float(self.x[list(self.r.positions)].sum())
        own = self.sign * self.scores()
        own = own[: self.r.window or len(own)]
        place = int(np.argsort(-own, kind="stable")[self.r.rank - 1])
        return float(self.x[(place + self.r.offset) % len(own)].sum() if self.r.offset else own[place])

    def largest(self, rank: int = 1) -> float:
        """What a head finds that attends to the largest score left unmasked, or gated ones the rank-th."""
        own = self.scores()
        own[list(self.masked)] = -np.inf
        place = int(np.argsort(-own, kind="stable")[rank - 1])
        return float(self.x[(place + self.r.offset) % len(own)].sum() if self.r.offset else self.sign * own[place])


class Replay:
    """A plan carried out layer by layer: what is done in a layer sees what was known before it."""

    def __init__(self, structure: Structure, arch: Architecture, seed: int, first: int = -1) -> None:
        rng, self.first = np.random.default_rng(seed), first  # -1: of equal look-ups those with most left to do first
        self.structure, self.arch = structure, arch
        x = rng.standard_normal((structure.length, structure.token_dim))
        self.units: list[Unit] = []
        for r in structure.retrievals:
            before = [u for u in self.units if u.r.name in r.after]
            self.units += [Unit(r, x, rng, before) for _ in range(r.count)]
        self.held: list[Unit] = []
        self.bundles: list[list[Unit]] = []
        self.done: list[Any] = []
        self.taken: set[int] = set()  # look-ups that something is done for in this layer, or that wait to be fetched

    def right(self, plan: tuple[Step, ...]) -> bool | None:
        """Whether every look-up is known at the end, by its definition; None for acts that are not carried out here."""
        if not plan or any(step.act in ("jump", "choose") for step in plan):
            return None
        for layer in range(1, self.arch.depth + 1):
            own = [step for step in plan if step.layer == layer]
            if not self._heads_do(own):
                return False
            waiting = [*self.held, *(u for bundle in self.bundles for u in bundle)]
            self.done, self.taken = [], {id(u) for u in waiting}
            ready = {id(u) for u in self.units if all(v.found is not None for v in u.before)}
            if not all(self._act(step, ready) for step in own if step.act != "gather"):
                return False
            for act in self.done:
                act()
        gathering = [step for step in plan if step.act == "gather"]
        if gathering and not self._gathered(gathering[-1]):
            return False
        return all(u.found is not None and np.isclose(u.found, u.truth()) for u in self.units)

    def _heads_do(self, steps: list[Step]) -> bool:
        """No head has two duties at one place, and one with two carries no more than it has dimensions."""
        heads, head_dim = self.arch.layers[steps[0].layer - 1] if steps else (0, 0)
        duties: dict[tuple[str, int], Step] = {}
        for step in steps:
            places = {"tokens": ("tokens",), "positions": ("tokens",), "cls": ("cls",), "both": ("tokens", "cls")}
            for key in ((p, h) for p in places[step.at] for h in range(step.heads[0], step.heads[1] + 1)):
                if step.act == "ride":
                    continue
                if key in duties or key[1] > heads:
                    return False
                duties[key] = step
        twice = ((duties[p, h], duties["cls", h]) for p, h in duties if p == "tokens" and ("cls", h) in duties)
        return all(
            a is b or (max if a.mode == b.mode == "positions" else sum)((a.carries, b.carries)) <= head_dim
            for a, b in twice
        )

    def _waiting(self, step: Step, kind: str, ready: set[int]) -> list[Unit]:
        names = step.retrieval.split(", ")
        mine = [u for u in self.units if u.r.name in names and u.found is None and u.todo and u.todo[0] == kind]
        mine = [u for u in mine if (kind == "shift" or id(u) in ready) and id(u) not in self.taken]
        return self._take(step, mine)

    def _take(self, step: Step, mine: list[Unit]) -> list[Unit]:
        """As many as the step serves, in one order; nothing else is done for them in this layer."""
        own = sorted(mine, key=lambda u: self.first * len(u.todo))[: step.number]
        self.taken |= {id(u) for u in own}
        return own

    def _act(self, step: Step, ready: set[int]) -> bool:
        match step.act:
            case "shift" | "mask" | "partner":
                own = self._waiting(step, step.act, ready)
                self.done += [lambda u=u: self._advance(u, step.act) for u in own]
            case "collect" | "hold":
                own = self._waiting(step, "collect", ready)
                self.done += [lambda u=u: self._find(u, hold=step.act == "hold") for u in own]
            case "read":
                wanted = [u for u in self.units if u.r.name in step.retrieval.split(", ")]
                self.done += [lambda u=u: setattr(u, "found", u.truth()) for u in wanted]
                return sum(len(u.r.positions) for u in wanted) >= step.number
            case "gate":
                named = [u for u in self.units if u.r.name in step.retrieval.split(", ") and u.found is None]
                left = [u for u in named if id(u) not in self.taken and u.nearer - len(u.masked) == step.rank]
                own = self._take(step, left)
                self.done += [lambda u=u: setattr(u, "found", u.largest(u.nearer - len(u.masked))) for u in own]
            case "route":
                own = self._waiting(step, "collect", ready)
                self.done.append(lambda: self.bundles.append(own))
            case "fetch":
                bundle = next((b for b in self.bundles if len(b) == step.number), None)
                if bundle is None:
                    return False
                self.bundles.remove(bundle)
                own, _ = bundle, [setattr(u, "found", u.largest()) for u in bundle]
            case _:  # what the tokens held before this layer rides along
                own = self.held[: step.number]
                del self.held[: step.number]
                for u in own:
                    u.found = u.largest()
        return len(own) == step.number

    def _advance(self, u: Unit, kind: str) -> None:
        u.todo.pop(0)
        if kind == "mask":
            own = u.scores()
            own[list(u.masked)] = -np.inf
            u.masked.add(int(own.argmax()))

    def _find(self, u: Unit, *, hold: bool) -> None:
        u.todo.pop(0)
        if hold:
            self.held.append(u)
        else:
            u.found = u.largest()

    def _gathered(self, step: Step) -> bool:
        """What is left is computed from the numbers gathered, as many as it stands on, in dimensions that hold them."""
        left, d = [u for u in self.units if u.found is None], self.structure.token_dim
        read = {place for u in left if not u.r.summed for place in u.r.positions}
        used = {name for r in self.structure.retrievals for name in r.after}
        searched = [u for u in left if not u.r.positions]
        # A score of a token's own is one number of it; pairs and neighbours, and tokens that are used, need all.
        own = [u for u in searched if u.r.order == 1 and not (u.before or u.r.offset or u.r.name in used)]
        own = [u for u in own if not u.r.beside or u.r.summed]
        whole = {u.r for u in searched} - {u.r for u in own}
        tokens = len(read) + sum((r.window or self.structure.length) * (1 + len(r.beside)) for r in whole)
        each = {r: (1 + len(r.beside) * r.summed) * sum(u.r is r for u in own) for r in {u.r for u in own}}
        scores = sum((r.window or self.structure.length) * min(d, numbers) for r, numbers in each.items())
        sums = sum(min(u.r.summed, len(u.r.positions) * d) for u in left if u.r.positions and u.r.summed)
        needed = min(self.structure.length * d, min(self.structure.length, tokens) * d + scores) + sums
        for u in left:
            u.found = u.truth()
        return (min(needed, self.structure.length * d) <= step.gathered or not left) and step.gathered <= step.channel


def replayed(p: Prediction, seeds: int = 3) -> bool | None:
    """Whether a cheap plan, carried out on random numbers, finds all that it says; None where it is not carried out."""
    answers = [
        [Replay(p.structure, p.arch, seed, first).right(p.plan) for seed in range(seeds)] for first in (-1, 1)
    ]  # a step does not say which of equal look-ups it serves
    return None if None in answers[0] else any(map(all, answers))


def enumerated(p: Prediction) -> bool | None:
    """Whether the least cost over all assignments is cheap or not as claimed; None where there are too many."""
    units = sum(len(r.positions) or r.count for r in p.structure.retrievals)
    work = prod((2 + h) ** units for h, _ in p.arch.layers)
    if units > MOST_UNITS or work > MOST_WORK:
        return None
    return exhaustive_cost(p.structure, p.arch).cheap == p.cheap


def smaller(arch: Architecture) -> list[Architecture]:
    """The shape with a layer, a head or half of a head's dimensions less, or a narrower state."""
    found = []
    for i, (h, n) in enumerate(arch.layers):
        rest = (arch.layers[:i], arch.layers[i + 1 :])
        keeps = arch.class_token == "every" or rest[1]  # a class token of the last layer keeps that layer
        found += [replace(arch, layers=rest[0] + rest[1])] if arch.depth > 1 and keeps else []
        found += [replace(arch, layers=(*rest[0], (h - 1, n), *rest[1]))] if h > 1 else []
        found += [replace(arch, layers=(*rest[0], (h, n // 2), *rest[1]))] if n > 1 else []
    return found


def bracketed(p: Prediction) -> bool | None:
    """Of a costly shape: no smaller one has a plan, and a named fix has one that can be carried out."""
    import headcount as hc

    if any(is_cheap(p.structure, arch) for arch in smaller(p.arch)):
        return False
    fixes = [replayed(hc.predict(p.structure, fix.arch)) for fix in p.fixes]
    return None if not any(fixes) else all(done is not False for done in fixes)


def road(p: Prediction) -> tuple[str, bool | None]:
    """The first second road that a claim of the calculus has, and what it says."""
    for name, way in (("replayed", replayed), ("enumerated", enumerated)) if p.cheap else (("enumerated", enumerated),):
        answer = way(p)
        if answer is not None:
            return name, answer
    return ("none", None) if p.cheap else ("bracketed", bracketed(p))


def counted(cases: int, seed: int) -> tuple[Counter[tuple[str, str, str]], list[Any]]:
    """How many claims have which verdict, basis and road; and the false ones."""
    from tests.test_results_claim import random_claims

    table: Counter[tuple[str, str, str]] = Counter()
    wrong = []
    for task, p in random_claims(cases, seed):
        name, answer = road(p) if p.warrant == "calculus" else ("its own", True)
        table[p.verdict, p.warrant, "none" if answer is None else name] += 1
        wrong += [(task, p, name)] if answer is False else []
    return table, wrong


if __name__ == "__main__":
    random.seed(0)
    table, false = counted(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    sys.stdout.writelines(f"{n:4} {' '.join(key)}\n" for key, n in sorted(table.items()))
    sys.stdout.writelines(f"FALSE by {name}: {p.structure} {p.arch}\n" for _, p, name in false[:8])
    sys.exit(min(100, len(false)))
