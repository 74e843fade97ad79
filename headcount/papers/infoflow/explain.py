"""How a prediction is explained: a plan line by line, in words, how information sets grow, the statements used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from headcount.nets.architecture import Architecture
from headcount.numerals import counted, power
from headcount.papers.infoflow.analysis import Analysis
from headcount.papers.infoflow.costs import decoding_exponent
from headcount.papers.infoflow.schedule import Job
from headcount.sources import Source
from headcount.structure import Structure

Status = Literal["proved", "claimed", "conjectured", "reconstructed"]
Deed = Literal[
    "shift", "read", "partner", "choose", "mask", "jump", "collect", "hold", "ride", "route", "fetch", "gate", "gather"
]
ORDINAL = {1: "largest", 2: "second largest", 3: "third largest"}
PLACES = {"tokens": "every token", "cls": "the class token", "both": "every token and the class token"}


@dataclass(frozen=True)
class Step:
    """One line of a plan: in this layer, these heads, at this place, do this for `number` look-ups.

    `exponent` e: the step costs eps^-e feed-forward parameters. `carries`: how many numbers each head brings. The
    fields after it say what the act is about; `attends`, `score` and `knows` are made from them.
    """

    layer: int
    heads: tuple[int, int]
    at: Literal["tokens", "cls", "both", "positions"]
    mode: Literal["max", "positions", "global"]
    act: Deed
    retrieval: str
    number: int
    carries: int
    exponent: float
    order: int = 1
    rank: int = 1
    offset: int = 0
    positions: tuple[int, ...] = ()
    after: tuple[str, ...] = ()
    gathered: int = 0
    channel: int = 0

    @property
    def who(self) -> str:
        """The heads by number."""
        first, last = self.heads
        return f"head {first}" if first == last else f"heads {first}-{last}"

    @property
    def place(self) -> str:
        """Who attends, in words."""
        return _range(self.number) if self.at == "positions" else PLACES[self.at]

    @property
    def attends(self) -> str:
        """Whom it attends to, in words."""
        return SAID[self.act].attends.format_map(_words(self))

    @property
    def score(self) -> str:
        """By which score, in words."""
        return SAID[self.act].score.format_map(_words(self))

    @property
    def knows(self) -> str:
        """What is known afterwards, in words."""
        return SAID[self.act].knows.format_map(_words(self))

    def __str__(self) -> str:
        head = f"layer {self.layer}, {self.who} at {self.place}"
        return f"{head}: {self.attends}; {self.knows} (eps^-{power(self.exponent)})"

    def as_row(self) -> dict[str, object]:
        """The fields, and the sentences made from them."""
        words = {name: getattr(self, name) for name in ("place", "attends", "score", "knows")}
        return {**asdict(self), **words}


class _Said(NamedTuple):
    """What a kind of step says: whom it attends to, by which score, and what is known afterwards."""

    attends: str
    score: str
    knows: str


SAID: dict[Deed, _Said] = {
    "shift": _Said("to {neighbour}", "position alone", "every token knows what its neighbour is"),
    "read": _Said("reads {places}", "position alone", "it is known where later scores need it"),
    "partner": _Said(
        "each token t to its best partner s", "joint in (x_t, x_s)", "every token knows its partner and their score"
    ),
    "choose": _Said(
        "each token t to its best partner s in the look-up that it chooses",
        "joint in (x_t, x_s)",
        "of each look-up, tokens know their partners and scores",
    ),
    "mask": _Said("to the largest token not yet masked", "{own_score}", "the winner sees itself and steps back"),
    "jump": _Said(
        "to where the links known so far lead, to read as many again",
        "the place of a finding, or a match with it",
        "every token knows twice as many links, and one more",
    ),
    "collect": _Said("to {winner}", "{own_score}", "{collected}"),
    "hold": _Said("every token to {winner}", "{own_score}", "every token holds the same finding"),
    "ride": _Said(
        "what every token holds comes along: {numbers}",
        "whatever the head is used for",
        "the class token knows what the tokens held",
    ),
    "route": _Said(
        "position i asks for the token with the largest i-th score",
        "the position chooses one of {number} keys (query e_i)",
        "position i holds look-up i",
    ),
    "fetch": _Said("reads {span}", "position alone", "the class token holds all {number} findings"),
    "gate": _Said(
        "each to the largest token among the positions of one colour, {each} heads per look-up",
        "the token's own score, gated by position",
        "the {ordinal} is the largest, over paintings, of the least maximum",
    ),
    "gather": _Said("gathers {what}", "{one_for_all}", "the class token holds {held}"),
}


def _words(step: Step) -> dict[str, str]:
    """What the sentences of a step are made of."""
    names, first, last = " and ".join(step.after), *step.heads
    named = f"position{'s' if len(step.positions) > 1 else ''} {_listed(step.positions)}"
    ordinal = ORDINAL.get(step.rank, f"{step.rank}-th largest")
    everything = step.mode == "global"
    largest = "the largest left unmasked" if step.rank > 1 else "the token with the largest score"
    pair = step.order == 2
    return {
        "neighbour": _neighbour(step.offset),
        "places": named,
        "span": _range(step.number),
        "number": str(step.number),
        "numbers": counted(step.number, "number"),
        "each": str((last - first + 1) // step.number),
        "ordinal": ordinal,
        "what": "the whole sequence" if everything else named if step.positions else "tokens by their positions",
        "one_for_all": "the same for all" if everything else "position alone",
        "held": f"{counted(step.gathered, 'number')} in {counted(step.channel, 'dimension')}",
        **({
            "winner": f"the token that matches {names}",
            "own_score": f"joint with what {names} found",
            "collected": "the match is known",
        } if step.after else {
            "winner": "the token whose pair scores highest" if pair else largest,
            "own_score": "the pair's score" if pair else "the token's own score",
            "collected": f"the class token knows the {'best pair' if pair else ordinal}",
        }),
    }  # fmt: skip


def _neighbour(offset: int) -> str:
    if abs(offset) == 1:
        return "the previous token" if offset > 0 else "the next token"
    return f"the token {abs(offset)} {'before' if offset > 0 else 'after'}"


def _range(number: int) -> str:
    return f"positions 0..{number - 1}" if number > 1 else "position 0"


def _listed(places: tuple[int, ...]) -> str:
    return ", ".join([*map(str, places[:6]), *(["..."] if len(places) > 6 else [])])


@dataclass(frozen=True)
class KnownSet:
    """How many input tokens a state can depend on after a layer: at a token, and at the class token."""

    layer: int
    token: int
    cls: int


@dataclass(frozen=True)
class Statement:
    """What the prediction rests on: its name, the sentence, how well it is known, and where it is from."""

    name: str
    says: str
    status: Status
    source: Source


INFOFLOW, HEADS, HERE = "yu2026infoflow", "yu2025heads", "headcount"

ENOUGH = Statement(
    "enough",
    "D heads in one layer solve D retrievals at a rate free of the length",
    "proved",
    Source(HEADS, "Theorem 2(1)"),
)
FEWER = Statement(
    "fewer",
    "fewer heads than retrievals in one layer cost an exponent linear in the length",
    "proved",
    Source(HEADS, "Theorem 2(2)"),
)
FEWER_LINEAR = Statement(
    "fewer linear",
    "fewer heads than distinct rays in one layer cost a sum of linear maxima an exponent linear in the length",
    "proved",
    Source(HERE, "Few heads on linear maxima (after Theorem 2(2))"),
)
DEEPER = Statement(
    "deeper", "L layers of h heads without positions need L h >= D", "conjectured", Source(HEADS, "Conjecture 1")
)
PLACED = Statement(
    "placed",
    "with positions two layers of one head solve D retrievals when head_dim >= D",
    "reconstructed",
    Source(HERE, "retrievals collected by position"),
)
RIDING = Statement(
    "riding",
    "what tokens found can ride along: L layers of h heads carry (2L - 1) h retrievals without positions",
    "reconstructed",
    Source(HERE, "(2L - 1) h retrievals without positions"),
)
MAXIMUM = Statement(
    "maximum",
    "one head fetches the token of largest score, at no price in the length",
    "claimed",
    Source(INFOFLOW, "max-position retrieval"),
)
PAIRS = Statement(
    "pairs",
    "two layers of one head solve the pair task with eps^-1 parameters; one layer needs eps^-k, k linear in T",
    "claimed",
    Source(INFOFLOW, "the abstract (depth separation)"),
)
ONE_LAYER = Statement(
    "pairs in one layer",
    "one layer pays an exponent linear in the length for the most opposite pair, with bounded weights",
    "proved",
    Source(INFOFLOW, "depth separation (one layer)"),
)
PAIR_LAYERS = Statement(
    "pair layers",
    "two layers of D heads solve D pair retrievals; what one layer needs depends on the form",
    "reconstructed",
    Source(INFOFLOW, "the intrinsic-dimension prediction (D heads in both layers)"),
)
PAIR_HEADS = Statement(
    "pair heads",
    "D pair retrievals need D heads in both layers (not in the first where tokens choose, as is derived here)",
    "claimed",
    Source(INFOFLOW, "the intrinsic-dimension prediction"),
)
RANKS = Statement(
    "ranks",
    "the k-th largest is costly for one layer of fewer heads than k, counted from the nearer end, with bounded weights",
    "proved",
    Source(INFOFLOW, "Theorem 2 (k-th largest)"),
)
MASKING = Statement(
    "masking",
    "each further layer can mask the winner: k layers of one head find the k-th largest",
    "reconstructed",
    Source(HERE, "k-th largest by masking"),
)
GATES = Statement(
    "gates",
    "gated heads find the second largest in one layer of 2 ceil(log2 T) heads",
    "reconstructed",
    Source(HERE, "k-th largest in one layer by gated heads"),
)
TRIPLES = Statement(
    "triples",
    "comparing three tokens at a time outgrows the comparisons of fixed depth and heads as the length grows",
    "claimed",
    Source(INFOFLOW, "the triangle-centre prediction"),
)
DECODING = Statement(
    "decoding",
    "reading |I| tokens of dimension d out of E numbers costs eps^-(|I| d / E)",
    "claimed",
    Source(INFOFLOW, "the decoding law"),
)
FIXED = Statement(
    "fixed",
    "positions let a head read fixed places whatever stands there",
    "claimed",
    Source(INFOFLOW, "specific-position aggregation"),
)
INDUCTION = Statement(
    "induction",
    "an induction head needs two layers",
    "claimed",
    Source(INFOFLOW, "recovered results (Sanford et al. 2024)"),
)
DOUBLING = Statement(
    "doubling",
    "k equal links of a chain take floor(log2 k) + 2 layers of one head",
    "claimed",
    Source(INFOFLOW, "recovered results (Sanford et al. 2024)"),
)
BAG = Statement(
    "bag",
    "without positions the output does not depend on the order of the tokens",
    "proved",
    Source(HERE, "permutation symmetry of attention"),
)


@dataclass
class _Heads:
    """Which heads of a layer are taken, at the tokens and at the class token.

    Tokens take the first ones; the class token the last where tokens have any of their own, so that a head serves both
    only where there is no other, and before those the `both` that do. Who reads by place reads by one head.
    """

    total: int
    both: int = 0
    shared: bool = False  # whether tokens have heads of their own in this layer
    tokens: int = 0
    cls: int = 0
    served: int = 0
    raw: list[int] = field(default_factory=list)

    def take(self, number: int, at: str, raw: bool = False) -> tuple[int, int]:
        if at == "both":
            self.served += number
            last = self.total - self.both + self.served if self.shared else self.served
            return last - number + 1, last
        if at == "cls":
            return self._cls(number, raw)
        first, self.tokens = self.tokens + 1, self.tokens + number
        self.raw += range(first, first + number) if raw else []
        return first, self.tokens

    def _cls(self, number: int, raw: bool) -> tuple[int, int]:
        if raw and len(self.raw) >= number:
            taken, self.raw = self.raw[:number], self.raw[number:]
            self.cls += number
            return taken[0], taken[-1]
        self.cls += number
        if not self.shared:
            return self.served + self.cls - number + 1, self.served + self.cls
        last = self.total - self.both - self.cls + number
        return last - number + 1, last


@dataclass
class _Writer:
    plan: Analysis
    structure: Structure
    arch: Architecture
    written: list[Step] = field(default_factory=list)

    def write(self) -> tuple[Step, ...]:
        for layer, jobs in enumerate(self.plan.layers, start=1):
            own = [(job, self.plan.demands[job.demand].acts[job.act].at) for job in jobs if job.demand >= 0]
            plain = [(job, at) for job, at in own if job.way == "plain"]
            tokens = any(job.way in ("held", "routed") for job, _ in own) or any(at == "tokens" for _, at in plain)
            both = sum(job.heads for job, at in plain if at == "both")
            heads = _Heads(self.arch.layers[layer - 1][0], both, shared=tokens)
            for bundle in _bundles(jobs):
                self._routed(layer, bundle, heads)
            for job in sorted(jobs, key=self._burden):
                if job.demand < 0:
                    self._brought(layer, job, heads)
                elif job.way != "routed":
                    self._served(layer, job, heads)
        self._gathered()
        return tuple(sorted(self.written, key=lambda step: step.layer))

    def _burden(self, job: Job) -> tuple[bool, int]:
        """The heaviest first, tokens that read by place before all: where heads must be shared, light duties meet."""
        if job.demand < 0:
            return True, -job.number
        act = self.plan.demands[job.demand].acts[job.act]
        return not (act.mode == "positions" and act.at == "tokens"), -1 if job.way == "gated" else -act.load

    def _add(self, layer: int, heads: tuple[int, int], carries: int, **fields: Any) -> None:
        price = float(decoding_exponent(carries, self.arch.layers[layer - 1][1]))
        self.written.append(Step(layer=layer, heads=heads, carries=carries, **{"exponent": price, **fields}))

    def _served(self, layer: int, job: Job, heads: _Heads) -> None:
        demand = self.plan.demands[job.demand]
        act = demand.acts[job.act]
        # A token looks at what stands beside it first, then the way that the token wanted will be found from.
        offset = -demand.beside[job.act] if job.act < len(demand.beside) else demand.offset
        about = {"order": demand.order, "offset": offset, "positions": demand.positions, "after": demand.after}
        fields = {"retrieval": demand.name, "number": job.number, "rank": demand.rank, **about}
        if job.way == "gated":
            gate = {**fields, "rank": demand.rank_left(job.act)}
            self._add(layer, heads.take(job.heads, "cls"), 1, at="cls", mode="max", act="gate", **gate)
        elif job.way == "held":
            self._add(layer, heads.take(job.heads, "tokens"), act.load, at="tokens", mode="max", act="hold", **fields)
        else:
            taken = heads.take(job.heads, act.at, raw=act.mode == "positions" and self.arch.layers[layer - 1][1] > 1)
            carried = -(-act.load * job.number // job.heads)  # a part of it, where several heads look there
            self._add(layer, taken, carried, at=act.at, mode=act.mode, act=act.kind, **fields)

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

    def _gathered(self) -> None:
        """Heads that the class token leaves idle gather, those with no other duty first, until they hold enough."""
        total, gathered = self.plan.channel, 0
        chosen: list[tuple[int, int, int]] = []
        for _, layer, head, spare in sorted(self._idle()):
            if gathered < total:
                chosen.append((layer, head, spare))
                gathered += spare
        for (layer, spare), own in groupby(sorted(chosen, key=itemgetter(0, 2, 1)), key=itemgetter(0, 2)):
            for first, last in _runs([head for _, head, _ in own]):
                self._gather(layer, (first, last), -(-self.plan.gathered * spare // total))

    def _idle(self) -> Iterator[tuple[bool, int, int, int]]:
        """(at work for tokens, layer, head, dimensions left) where the class token attends and leaves the head idle."""
        for layer, (heads, head_dim) in enumerate(self.arch.layers, start=1):
            if layer < self.arch.depth and self.arch.class_token != "every":
                continue
            own = [step for step in self.written if step.layer == layer and step.act != "ride"]
            for head in range(1, heads + 1):
                on_head = [step for step in own if step.heads[0] <= head <= step.heads[1]]
                left = head_dim - sum(step.carries for step in on_head)
                if left > 0 and all(step.at in ("tokens", "positions") for step in on_head):
                    yield left < head_dim, layer, head, left

    def _gather(self, layer: int, heads: tuple[int, int], carries: int) -> None:
        everything = _all_tokens(self.plan, self.structure)
        places = () if everything else tuple(sorted({p for r in self.structure.retrievals for p in r.positions}))
        self._add(
            layer,
            heads,
            carries,
            at="cls",
            mode="global" if everything or not self.arch.positions else "positions",
            act="gather",
            retrieval="everything" if everything else "what is read by place",
            number=1,
            positions=places,
            gathered=self.plan.gathered,
            channel=self.plan.channel,
            exponent=float(decoding_exponent(self.plan.gathered, self.plan.channel)),
        )


def _runs(heads: list[int]) -> Iterator[tuple[int, int]]:
    """Numbers in a row, as first and last.

    >>> list(_runs([1, 2, 4]))
    [(1, 2), (4, 4)]
    """
    first = last = heads[0]
    for head in heads[1:]:
        if head > last + 1:
            yield first, last
            first = head
        last = head
    yield first, last


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


def _all_tokens(plan: Analysis, structure: Structure) -> bool:
    """Whether every token is gathered: all its numbers, or its scores where look-ups over all tokens need no more."""
    every = plan.whole and any(r.order and r.window in (None, structure.length) for r in structure.retrievals)
    return every or plan.gathered >= structure.length * structure.token_dim


def _tokens_gathered(plan: Analysis, structure: Structure) -> int:
    """How many tokens the gathered numbers come from: a sum over places comes from all of them."""
    if _all_tokens(plan, structure):
        return structure.length
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


def statements_for(structure: Structure, arch: Architecture, plan: Analysis | None) -> tuple[Statement, ...]:
    """What the prediction rests on, in the order of its weight."""
    if plan is None:
        return (BAG,)
    chosen: list[Statement] = []
    one = arch.depth == 1
    compared = [r for r in structure.retrievals if r.order]
    if structure.order > 2:
        chosen.append(TRIPLES)
    if any(r.order == 2 for r in compared):
        known = {r.score for r in compared if r.order == 2} <= {"", "opposite"}
        opposite = one and any(r.score == "opposite" for r in compared)
        chosen += [ONE_LAYER] if opposite else []
        chosen += [PAIRS if known else PAIR_LAYERS, PAIR_HEADS]
    if any(r.order == 1 and r.rank > 1 for r in compared):
        chosen += [RANKS, GATES if _used(plan, "gated") else MASKING]
    if any(r.order == 1 and r.rank == 1 and not r.after for r in compared):
        chosen += _heads(structure, arch, plan.whole) if one else [RIDING, DEEPER]
        if _used(plan, "routed"):
            chosen.append(PLACED)
    if any(r.offset for r in compared):
        chosen.append(INDUCTION)
    if any(d.links > 1 for d in plan.demands):
        chosen.append(DOUBLING)
    if arch.positions and any(r.positions for r in structure.retrievals):
        chosen.append(FIXED)
    if plan.demands and not (one and chosen):
        chosen.append(MAXIMUM)
    if plan.gathered or plan.cost.features > 1:
        chosen.append(DECODING)
    return tuple(dict.fromkeys(chosen))


def _heads(structure: Structure, arch: Architecture, all_tokens: bool) -> list[Statement]:
    """What is proved about the heads of one layer and scores of this kind; nothing is said where nothing is proved."""
    scores = {r.score for r in structure.retrievals if r.order}
    if not all_tokens:
        return [ENOUGH] if arch.layers[0][1] >= 2 else []
    return [FEWER_LINEAR] if scores == {"linear"} else [FEWER] if scores <= {"", "wells"} else []


def _used(plan: Analysis, way: str) -> bool:
    return any(job.way == way for jobs in plan.layers for job in jobs)
