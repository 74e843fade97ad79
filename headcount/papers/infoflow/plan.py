"""A plan layer by layer: which heads do what for which look-ups, and how the information sets grow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headcount.nets.architecture import Architecture
from headcount.papers.infoflow.analysis import Analysis
from headcount.papers.infoflow.costs import decoding_exponent
from headcount.papers.infoflow.prediction import KnownSet, Step
from headcount.papers.infoflow.schedule import Job
from headcount.structure import Structure


@dataclass
class _Heads:
    """Which heads of a layer are taken, at the tokens and at the class token."""

    tokens: int = 0
    cls: int = 0

    def take(self, number: int, at: str) -> tuple[int, int]:
        first = max(self.tokens if at != "cls" else 0, self.cls if at not in ("tokens", "positions") else 0) + 1
        if at != "cls":
            self.tokens = first + number - 1
        if at not in ("tokens", "positions"):
            self.cls = first + number - 1
        return first, first + number - 1


@dataclass
class _Writer:
    plan: Analysis
    structure: Structure
    arch: Architecture
    written: list[Step] = field(default_factory=list)

    def write(self) -> tuple[Step, ...]:
        gathered = 0
        for layer, jobs in enumerate(self.plan.layers, start=1):
            heads = _Heads()
            for bundle in _bundles(jobs):
                self._routed(layer, bundle, heads)
            for job in jobs:
                if job.demand < 0:
                    self._brought(layer, job, heads)
                elif job.way != "routed":
                    self._served(layer, job, heads)
            if layer == len(self.plan.layers) or self.arch.class_token == "every":
                gathered += self._gathered(layer, heads, gathered)
        return tuple(self.written)

    def _add(self, layer: int, heads: tuple[int, int], carries: int, **fields: Any) -> None:
        price = float(decoding_exponent(carries, self.arch.layers[layer - 1][1]))
        self.written.append(Step(layer=layer, heads=heads, carries=carries, **{"exponent": price, **fields}))

    def _served(self, layer: int, job: Job, heads: _Heads) -> None:
        demand = self.plan.demands[job.demand]
        act = demand.acts[job.act]
        # A token looks at what stands beside it first, then the way that the token wanted will be found from.
        aside = -demand.beside[job.act] if job.act < len(demand.beside) else demand.offset
        about = {"order": demand.order, "offset": aside, "positions": demand.positions, "after": demand.after}
        fields = {"retrieval": demand.name, "number": job.number, "rank": demand.rank, **about}
        if job.way == "gated":
            gate = {**fields, "rank": demand.rank_left(job.act)}
            self._add(layer, heads.take(job.heads, "cls"), 1, at="cls", mode="max", act="gate", **gate)
        elif job.way == "held":
            self._add(layer, heads.take(job.heads, "tokens"), act.load, at="tokens", mode="max", act="hold", **fields)
        else:
            taken = heads.take(job.heads, act.at)
            self._add(layer, taken, act.load, at=act.at, mode=act.mode, act=act.kind, **fields)

    def _routed(self, layer: int, bundle: list[Job], heads: _Heads) -> None:
        number = sum(job.number for job in bundle)
        names = ", ".join(dict.fromkeys(self.plan.demands[job.demand].name for job in bundle))
        taken = heads.take(1, "positions")
        self._add(layer, taken, number, at="positions", mode="max", act="route", retrieval=names, number=number)

    def _brought(self, layer: int, job: Job, heads: _Heads) -> None:
        fetched = job.way == "fetched"
        everyone = (1, self.arch.layers[layer - 1][0])
        self._add(
            layer,
            heads.take(1, "cls") if fetched else everyone,
            job.number,
            at="cls",
            mode="positions" if fetched else "max",
            act="fetch" if fetched else "ride",
            retrieval="what the positions hold" if fetched else "what the tokens hold",
            number=job.number,
            exponent=1.0,
        )

    def _gathered(self, layer: int, heads: _Heads, before: int) -> int:
        total, (all_heads, head_dim) = self.plan.channel, self.arch.layers[layer - 1]
        free = all_heads - heads.cls
        if not total or before >= total or free < 1:
            return 0
        number = min(free, -(-(total - before) // head_dim))
        everything = self.plan.gathered >= self.structure.length * self.structure.token_dim
        self._add(
            layer,
            heads.take(number, "cls"),
            -(-self.plan.gathered * head_dim // total),
            at="cls",
            mode="global" if everything or not self.arch.positions else "positions",
            act="gather",
            retrieval="everything" if everything else "what is read by place",
            number=1,
            positions=() if everything else tuple(sorted({p for r in self.structure.retrievals for p in r.positions})),
            gathered=self.plan.gathered,
            channel=total,
            exponent=float(decoding_exponent(self.plan.gathered, total)),
        )
        return number * head_dim


def steps(plan: Analysis, structure: Structure, arch: Architecture) -> tuple[Step, ...]:
    """The plan, line by line, layer by layer."""
    return _Writer(plan, structure, arch).write()


def knowledge(plan: Analysis, structure: Structure, arch: Architecture) -> tuple[KnownSet, ...]:
    """How the information sets grow: I(t, 0) = {t}, I(cls, 0) = {}, and a head adds the set of whom it attends to.

    Source: Yu et al. 2026 (InfoFlow), the information sets I(t, l).
    """
    token, cls, grown = 1, 0, [KnownSet(0, 1, 0)]
    for layer, jobs in enumerate(plan.layers, start=1):
        placed = [(job, "cls" if job.demand < 0 else plan.demands[job.demand].acts[job.act].at) for job in jobs]
        to_tokens = sum(_at_tokens(job, at) for job, at in placed)
        to_cls = sum(job.number for job, at in placed if job.way not in ("routed", "held") and at != "tokens")
        gathered = _tokens_gathered(plan, structure) if plan.channel and layer == len(plan.layers) else 0
        cls = min(structure.length, cls + to_cls * token + gathered)
        token = min(structure.length, token + to_tokens * token)
        grown.append(KnownSet(layer, token, cls))
    return tuple(grown)


def _tokens_gathered(plan: Analysis, structure: Structure) -> int:
    """How many tokens the gathered numbers come from: a sum over places comes from all of them."""
    summed = {p for r in structure.retrievals if r.summed for p in r.positions}
    return min(structure.length, max(-(-plan.gathered // structure.token_dim), len(summed) if plan.gathered else 0))


def _at_tokens(job: Job, at: str) -> int:
    if job.way == "routed":
        return job.heads
    return job.number if job.way == "held" or (job.way == "plain" and at != "cls") else 0


def _bundles(jobs: tuple[Job, ...]) -> Iterator[list[Job]]:
    bundle: list[Job] = []
    for job in jobs:
        if job.way != "routed":
            continue
        if job.heads and bundle:
            yield bundle
            bundle = []
        bundle.append(job)
    if bundle:
        yield bundle
