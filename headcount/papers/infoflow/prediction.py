"""What is known about one task and one architecture: cheap or costly, by what warrant, the plan, the limit."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

from headcount.nets.architecture import Architecture
from headcount.notebook import within_columns
from headcount.numerals import power
from headcount.papers.infoflow import wording
from headcount.papers.infoflow.constructible import Blueprint
from headcount.papers.infoflow.remarks import Caution, Fix, Limit
from headcount.results import Basis, Bound, Claim, Hypothesis, Predicate
from headcount.sources import Source
from headcount.structure import Structure

Status = Literal["proved", "claimed", "conjectured", "reconstructed"]
BAG = Source("headcount", "A network without position features sees a bag")
Deed = Literal[
    "shift", "read", "partner", "choose", "mask", "jump", "collect", "hold", "ride", "route", "fetch", "gate", "gather"
]


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
        return wording.place(self)

    @property
    def attends(self) -> str:
        """Whom it attends to, in words."""
        return wording.attends(self)

    @property
    def score(self) -> str:
        """By which score, in words."""
        return wording.score(self)

    @property
    def knows(self) -> str:
        """What is known afterwards, in words."""
        return wording.knows(self)

    def __str__(self) -> str:
        head = f"layer {self.layer}, {self.who} at {self.place}"
        return f"{head}: {self.attends}; {self.knows} (eps^-{power(self.exponent)})"

    def as_row(self) -> dict[str, Any]:
        """The fields, and the sentences made from them."""
        words = {name: getattr(self, name) for name in ("place", "attends", "score", "knows")}
        return {**asdict(self), **words}


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


@dataclass(frozen=True, repr=False)
class Prediction:
    """The answer to: can a network of this shape compute this target without paying for the length?

    `basis` says how it is known: "constructed" (cheap: `construction` is a certified network of this shape, and
    `build(task, eps, arch=...)` returns it), "proved" (costly: `lower` bounds the exponent and the task meets its
    hypotheses, or the target depends on an order that the network cannot see), "calculus" (InfoFlow's counting, no
    proof either way). `claim()` is the verdict with its conditions; `outside` what networks do that leave them.
    `exponent` e: the best plan costs eps^-e feed-forward parameters for error eps (infinity: no
    network of this shape computes the target); a proof that a shape is costly often shows less, `lower.value`.
    `limit`: what sets the exponent. `fixes`: what would make a costly shape cheap, each with the shape that does.
    """

    structure: Structure
    arch: Architecture
    cheap: bool
    exponent: float
    basis: Basis
    limit: Limit
    plan: tuple[Step, ...]
    known: tuple[KnownSet, ...]
    statements: tuple[Statement, ...]
    fixes: tuple[Fix, ...] = ()
    cautions: tuple[Caution, ...] = ()
    lower: Bound | None = None
    construction: Blueprint | None = None
    conditions: tuple[Hypothesis, ...] = ()
    outside: Bound | None = None

    @property
    def warrant(self) -> str:
        """The basis in one word, as rows keep it."""
        return self.basis.kind

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        return self.arch.layers

    @property
    def feasible(self) -> bool:
        """Whether a network of this shape computes the target at any price."""
        return math.isfinite(self.exponent)

    @property
    def verdict(self) -> str:
        """In one word."""
        return "cheap" if self.cheap else "costly" if self.feasible else "infeasible"

    @property
    def cost(self) -> str:
        """The price in the usual notation; what is proved and what the calculus says are told apart."""
        if not self.feasible:
            return "beyond any price"
        if self.warrant != "proved" or self.lower is None:
            return f"eps^-{power(self.exponent)}"
        more = f", eps^-{power(self.exponent)} by the calculus" if self.exponent > self.lower.value else ""
        return f"at least eps^-{power(self.lower.value)}{more}"

    @property
    def limiting(self) -> str:
        """What sets the exponent, in words."""
        return str(self.limit)

    @property
    def sentence(self) -> str:
        """The verdict with its basis and conditions, and why, in one sentence."""
        return self.claim().said

    def claim(self, subject: str = "") -> Claim:
        """The verdict as a claim, with the conditions of what it rests on."""
        proved = self.basis.kind == "proved"
        value = self.lower if proved else None
        source = (BAG if value is None else value.source) if proved else None
        word = Predicate(self.verdict)
        return Claim(subject, word, value, self.basis, source, self.conditions, reason=self._why)

    @property
    def _why(self) -> str:
        if self.construction is not None:
            made = self.construction
            return f"{made.construction} builds a certified network of {made.name} and state width {made.embed_dim}"
        if self.lower is not None and self.warrant == "proved":
            return self.lower.meaning or f"at least eps^-{power(self.lower.value)} feed-forward parameters"
        return self.limiting

    def __repr__(self) -> str:
        return within_columns(f"<Prediction {self.arch.name}: {self.verdict}, {self.warrant}, {self.cost}>")

    def __str__(self) -> str:
        lines = [f"{self.arch.name}: {self.sentence} ({self.cost})"]
        return "\n".join(lines + [f"  {step}" for step in self.plan])

    def _repr_html_(self) -> str:
        steps = "".join(f"<li>{escape(str(step))}</li>" for step in self.plan)
        head = f"<b>{escape(self.arch.name)}</b>: {escape(self.sentence)} ({escape(self.cost)})"
        from headcount.papers.infoflow.flow_picture import draw

        return f"<p>{head}</p>{f'<ol>{steps}</ol>' if steps else ''}{draw(self)}"

    def as_row(self) -> dict[str, Any]:
        """Everything, ready for JSON; an infinite exponent is null."""
        return {
            "verdict": self.verdict,
            "warrant": self.warrant,
            "why": self.sentence,
            "claim": self.claim().to_json(),
            "outside": None if self.outside is None else self.outside.as_row(),
            "cheap": self.cheap,
            "feasible": self.feasible,
            "exponent": self.exponent if self.feasible else None,
            "limiting": self.limiting,
            "limit": asdict(self.limit),
            "construction": None if self.construction is None else asdict(self.construction),
            "fixes": [fix.as_row() for fix in self.fixes],
            "cautions": [{"name": c.name, "says": str(c)} for c in self.cautions],
            "architecture": self.arch.as_dict(),
            "plan": [step.as_row() for step in self.plan],
            "known": [asdict(known) for known in self.known],
            "lower_bound": None if self.lower is None else self.lower.as_row(),
            "statements": [
                {"name": s.name, "says": s.says, "status": s.status, "source": str(s.source)} for s in self.statements
            ],
            "structure": self.structure.to_json(),
        }
