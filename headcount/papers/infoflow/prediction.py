"""What is known about one task and one architecture: cheap or costly, on what basis, the plan, the limit."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Literal

from headcount.nets.architecture import Architecture
from headcount.notebook import within_columns
from headcount.numerals import counted, power
from headcount.papers.infoflow.constructible import Blueprint
from headcount.papers.infoflow.explain import KnownSet, Statement, Step
from headcount.results import Basis, Bound, Claim, Hypothesis, Predicate
from headcount.sources import Source
from headcount.structure import Structure

BAG = Source("headcount", "A network without position features sees a bag")


@dataclass(frozen=True)
class Limit:
    """What sets the exponent: the kind of limit, and the numbers it is made of."""

    kind: Literal["score", "aggregation", "dimensions", "comparisons", "order of tokens"]
    exponent: float = 1.0
    numbers: int = 0
    dims: int = 0
    token_dim: int = 0
    whole: bool = False
    retrieval: str = ""
    order: int = 0
    needed: int = 0
    made: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "score":
                return "the features of a score: piecewise linear, eps^-1, whatever the length"
            case "aggregation":
                tokens = "the token" if self._tokens == 1 else f"all {counted(self._tokens, 'token')}"
                every = f"{tokens} of {counted(self.token_dim, 'number')}"
                one = "passes" if (self._tokens if self.whole else self.numbers) == 1 else "pass"
                what = every if self.whole else counted(self.numbers, "number")
                return f"{what} {one} through {counted(self.dims, 'dimension')} at the class token: {self._ratio}"
            case "dimensions":
                return f"what heads carry and states hold shares their dimensions: exponent {power(self.exponent)}"
            case "comparisons":
                return (
                    f"retrieval {self.retrieval!r} compares {self.order} tokens at a time: {self.needed:,} "
                    f"comparisons, and the heads make at most {self.made:,}; the read-out must make the rest from "
                    f"{counted(self.numbers, 'number')} in {counted(self.dims, 'dimension')}"
                )
            case _:
                return (
                    f"retrieval {self.retrieval!r} asks for tokens by place, and without position features a network "
                    f"sees its tokens as a bag"
                )

    @property
    def _tokens(self) -> int:
        return self.numbers // max(1, self.token_dim)

    @property
    def _ratio(self) -> str:
        ratio = self.numbers / max(1, self.dims)
        return f"{self.numbers:,}/{self.dims:,} = {power(ratio)} in each" + (", separated" if ratio <= 1 else "")


@dataclass(frozen=True)
class Fix:
    """A single change after which the shape is cheap: what changes, in which layer (0: in all), and the shape."""

    what: Literal["positions", "embedding", "heads", "layers", "head_dim", "embed_dim"]
    now: int
    wanted: int
    arch: Architecture
    layer: int = 0

    def __str__(self) -> str:
        match self.what:
            case "positions":
                return "position features (now none)"
            case "embedding":
                return "tokens that enter through a feed-forward, and may choose (now by one matrix)"
            case "heads" if self.layer:
                return f"{counted(self.wanted, 'head')} in layer {self.layer} (now {self.now})"
            case "heads":
                return f"{counted(self.wanted, 'head')} in every layer"
            case "layers":
                heads = self.arch.layers[-1][0]
                return f"{counted(self.wanted, 'layer')} of {counted(heads, 'head')} (now {self.now})"
            case "head_dim":
                return f"heads of dimension {self.wanted} in every layer (now {self.now})"
            case _:
                return f"a state of width {self.wanted} (now {self.now})"

    def as_row(self) -> dict[str, object]:
        """Ready for JSON."""
        fields = {"what": self.what, "layer": self.layer, "now": self.now, "wanted": self.wanted}
        return {**fields, "architecture": self.arch.as_dict(), "says": str(self)}


@dataclass(frozen=True)
class Caution:
    """Something the verdict leaves out of account."""

    name: Literal[
        "ties", "spaced leaders", "bag", "read-out", "rank of a score", "one map", "tokens choose", "sharing not tried"
    ]
    numbers: tuple[int, ...] = ()
    share: float = 0.0

    def __str__(self) -> str:
        match self.name:
            case "ties":
                return (
                    "without positions a winner knows itself by its value alone: on a tie both copies step back, and a "
                    "continuous network that is wrong on a tie is wrong near it"
                )
            case "spaced leaders":
                return "masking twice or more needs the leaders apart: a tie for the first place masks nobody"
            case "bag":
                return "memorising a bag of tokens in as many dimensions as it has numbers is possible, rarely trained"
            case "read-out":
                return (
                    f"what is looked up is left to the read-out, which has all {self.numbers[0]} numbers before it; "
                    f"the hidden units that takes are not counted"
                )
            case "tokens choose":
                heads, pairs, *_ = self.numbers
                missed = f"{self.share:.0e} of the variance" if self.share else "nothing"
                return (
                    f"{counted(heads, 'head')} of layer 1 {'serves' if heads == 1 else 'serve'} {pairs} look-ups: each "
                    f"token asks for the one it is likely to win; on the task's own samples{self._at} that misses "
                    f"{missed}, on others it may miss more"
                )
            case "sharing not tried":
                return f"whether tokens that choose could share heads was not tried for {self.numbers[0]} look-ups"
            case "one map":
                return f"the {self.numbers[0]} links of the chain are taken for one look-up, repeated"
            case _:
                short, full = self.numbers
                return (
                    f"a head of dimension {short} compares through a matrix of rank {short} < token_dim {full}; the "
                    f"paper leaves the rank out of account"
                )

    @property
    def _at(self) -> str:
        return f" at {self.numbers[2]:,} tokens" if len(self.numbers) > 2 else ""

    @property
    def condition(self) -> Hypothesis:
        """What must be so for the verdict to stand, for its sentence."""
        heads = f"an NMSE above {self.share:.0e}" if self.share else "tokens like the task's own"
        shortly = {
            "ties": "leaders apart",
            "spaced leaders": "leaders apart",
            "bag": "a memorised bag",
            "read-out": "a read-out that looks up among all numbers",
            "tokens choose": heads,
            "one map": "one map for all links",
            "sharing not tried": "no shared heads",
        }
        return Hypothesis(str(self), short=shortly.get(self.name, "scores of low rank"))


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
        return f"at least eps^-{power(self.lower.value, 'lower')}{more}"

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
            built = self.construction
            return f"{built.construction} builds a certified network of {built.name} and state width {built.embed_dim}"
        if self.lower is not None and self.warrant == "proved":
            return self.lower.meaning or f"at least eps^-{power(self.lower.value, 'lower')} feed-forward parameters"
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

    @property
    def rows(self) -> list[dict[str, object]]:
        """The plan, a row for each step."""
        return [step.as_row() for step in self.plan]

    def files(self, out: Path, title: str = "") -> list[Path]:
        """The plan as a picture, and everything for programs."""
        from headcount.papers.infoflow.flow_picture import write_flow

        return write_flow(out, "prediction.json", self.as_row(), self, title)

    def as_row(self) -> dict[str, object]:
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
