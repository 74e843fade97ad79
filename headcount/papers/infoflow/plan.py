"""A found plan in words: who attends to what, by which score, and what is known afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from headcount.papers.infoflow.analysis import Found
from headcount.papers.infoflow.costs import decoding_exponent
from headcount.papers.infoflow.demands import Act, Demand, Shape
from headcount.papers.infoflow.prediction import KnownSet, Step
from headcount.papers.infoflow.schedule import Job
from headcount.structure import Retrieval, Structure

__all__ = ["knowledge", "steps"]

ORDINAL = {1: "largest", 2: "second largest", 3: "third largest"}


@dataclass
class _Heads:
    """Which heads of a layer are taken, at the tokens and at the class token."""

    tokens: int = 0
    cls: int = 0

    def take(self, number: int, at: str) -> tuple[int, int]:
        first = max(self.tokens if at != "cls" else 0, self.cls if at != "tokens" else 0) + 1
        if at != "cls":
            self.tokens = first + number - 1
        if at != "tokens":
            self.cls = first + number - 1
        return first, first + number - 1


@dataclass
class _Writer:
    found: Found
    structure: Structure
    arch: Shape
    written: list[Step] = field(default_factory=list)

    def write(self) -> tuple[Step, ...]:
        gathered = 0
        for layer, jobs in enumerate(self.found.layers, start=1):
            heads = _Heads()
            for bundle in _bundles(jobs):
                self._routed(layer, bundle, heads)
            for job in jobs:
                if job.way == "fetched":
                    self._fetched(layer, job, heads)
                elif job.way != "routed":
                    self._served(layer, job, heads)
            gathered += self._gathered(layer, heads, gathered)
        return tuple(self.written)

    def _add(
        self, layer: int, heads: tuple[int, int], at: str, mode: str, words: tuple[str, str, str, str], carries: int
    ) -> None:
        retrieval, attends, score, knows = words
        head_dim = self.arch.layers[layer - 1][1]
        price = float(decoding_exponent(carries, head_dim))
        self.written.append(Step(layer, heads, at, mode, retrieval, attends, score, knows, carries, price))  # type: ignore[arg-type]

    def _served(self, layer: int, job: Job, heads: _Heads) -> None:
        demand = self.found.demands[job.demand]
        act = demand.acts[job.act]
        if job.way == "gated":
            words = _gated_words(demand, job)
            self._add(layer, heads.take(job.heads, "cls"), "the class token", "max", words, 1)
            return
        words = _words(demand, job, act, self._retrieval(demand))
        at = {"tokens": "every token", "cls": "the class token", "both": "every token and the class token"}[act.at]
        self._add(layer, heads.take(job.heads, act.at), at, act.mode, words, act.load)

    def _routed(self, layer: int, bundle: list[Job], heads: _Heads) -> None:
        number = sum(job.number for job in bundle)
        names = ", ".join(dict.fromkeys(self.found.demands[job.demand].name for job in bundle))
        words = (
            names,
            "position i asks for the token with the largest i-th score",
            f"the position chooses one of {number} keys (query e_i)",
            "position i holds look-up i",
        )
        self._add(layer, heads.take(1, "tokens"), f"positions 0..{number - 1}", "max", words, 1)

    def _fetched(self, layer: int, job: Job, heads: _Heads) -> None:
        words = (
            "what the positions hold",
            f"reads positions 0..{job.number - 1}",
            "position alone",
            f"the class token holds all {job.number} findings",
        )
        self._add(layer, heads.take(1, "cls"), "the class token", "positions", words, job.number)

    def _gathered(self, layer: int, heads: _Heads, before: int) -> int:
        total, (all_heads, head_dim) = self.found.channel, self.arch.layers[layer - 1]
        free = all_heads - heads.cls
        if not total or before >= total or free < 1:
            return 0
        number = min(free, -(-(total - before) // head_dim))
        d = self.structure.token_dim
        tokens = self.found.gathered // d
        everything = tokens == self.structure.length
        words = (
            "everything" if everything else "what is read by place",
            f"gathers {'the whole sequence' if everything else _places(self.structure, tokens)}",
            "the same for all" if everything else "position alone",
            f"the class token holds {tokens} tokens of {d} numbers in {total} dimensions",
        )
        self._add(
            layer, heads.take(number, "cls"), "the class token", "global" if everything else "positions", words, 1
        )
        price = float(decoding_exponent(self.found.gathered, total))
        last = self.written[-1]
        carries = -(-self.found.gathered * head_dim // total)
        self.written[-1] = Step(**{**last.__dict__, "exponent": price, "carries": carries})
        return number * head_dim

    def _retrieval(self, demand: Demand) -> Retrieval:
        first = demand.name.split(", ")[0]
        return next(r for r in self.structure.retrievals if first in (r.name, r.name.split(", ")[0]))


def steps(found: Found, structure: Structure, arch: Shape) -> tuple[Step, ...]:
    """The plan, line by line, layer by layer."""
    return _Writer(found, structure, arch).write()


def knowledge(found: Found, structure: Structure, arch: Shape) -> tuple[KnownSet, ...]:
    """How the information sets grow: I(t, 0) = {t}, I(cls, 0) = {}, and a head adds the set of whom it attends to.

    Source: Yu et al. 2026 (InfoFlow), the information sets I(t, l).
    """
    token, cls, grown = 1, 0, [KnownSet(0, 1, 0)]
    for layer, jobs in enumerate(found.layers, start=1):
        at = [(job, found.demands[job.demand].acts[job.act].at if job.demand >= 0 else "cls") for job in jobs]
        to_tokens = sum(job.number for job, place in at if job.way == "plain" and place != "cls")
        to_tokens += sum(job.heads for job, _ in at if job.way == "routed")
        to_cls = sum(job.number for job, place in at if job.way != "routed" and place != "tokens")
        gathered = found.gathered // structure.token_dim if found.channel and layer == len(found.layers) else 0
        cls = min(structure.length, cls + to_cls * token + gathered)
        token = min(structure.length, token + to_tokens * token)
        grown.append(KnownSet(layer, token, cls))
    return tuple(grown)


def _bundles(jobs: tuple[Job, ...]) -> list[list[Job]]:
    bundles: list[list[Job]] = []
    for job in jobs:
        if job.way == "routed" and job.heads:
            bundles.append([job])
        elif job.way == "routed":
            bundles[-1].append(job)
    return bundles


def _places(structure: Structure, tokens: int) -> str:
    places = sorted({p for r in structure.retrievals for p in r.positions})
    if len(places) == tokens:
        return f"position{'s' if tokens > 1 else ''} {_listed(places)}"
    return f"{tokens} tokens by their positions"


def _listed(places: list[int]) -> str:
    shown = ", ".join(map(str, places[:6]))
    return shown if len(places) <= 6 else f"{shown}, ..."


def _gated_words(demand: Demand, job: Job) -> tuple[str, str, str, str]:
    rank = demand.rank_left(job.act)
    return (
        demand.name,
        f"each to the largest token among the positions of one colour, {job.heads // job.number} heads a look-up",
        "the token's own score, gated by position",
        f"the {_ordinal(rank)} is the largest, over paintings, of the least maximum",
    )


def _ordinal(rank: int) -> str:
    return ORDINAL.get(rank, f"{rank}-th largest")


def _words(demand: Demand, job: Job, act: Act, r: Retrieval) -> tuple[str, str, str, str]:
    """(which retrieval, whom it attends to, by which score, what is known afterwards)."""
    many = f"{job.number} x {demand.name}" if demand.count > 1 else demand.name
    if act.kind == "shift":
        side, far = ("before" if r.offset > 0 else "after"), abs(r.offset)
        where = ("the previous token" if r.offset > 0 else "the next token") if far == 1 else f"the token {far} {side}"
        return many, f"to {where}", "position alone", "every token knows what its neighbour is"
    if act.kind == "read":
        return (
            many,
            f"reads position{'s' if len(r.positions) > 1 else ''} {_listed(list(r.positions))}",
            "position alone",
            "the class token knows it",
        )
    if act.kind == "partner":
        return (
            many,
            "each token t to its best partner s",
            "joint in (x_t, x_s)",
            "every token knows its partner and their score",
        )
    if act.kind == "mask":
        return (
            many,
            "to the largest token not yet masked",
            "the token's own score",
            "the winner sees itself and steps back",
        )
    return many, *_collect_words(demand)


def _collect_words(demand: Demand) -> tuple[str, str, str]:
    if demand.after:
        found = " and ".join(demand.after)
        return f"to the token that matches {found}", f"joint with what {found} found", "the class token knows the match"
    if demand.order == 2:
        return "to the token whose pair scores highest", "the pair's score", "the class token knows the best pair"
    if demand.rank > 1:
        left = "the largest left unmasked"
        return f"to {left}", "the token's own score", f"that is the {_ordinal(demand.rank)}"
    return "to the token with the largest score", "the token's own score", "the class token knows the largest"
