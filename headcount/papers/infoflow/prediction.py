"""What the calculus says about one task and one architecture: cheap or costly, the plan, the limit, and how we know."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from headcount.results import Bound
from headcount.sources import Source
from headcount.structure import Structure

__all__ = ["KnownSet", "Prediction", "Statement", "Step"]

Status = Literal["proved", "claimed", "conjectured", "reconstructed"]


@dataclass(frozen=True)
class Step:
    """One line of a plan: in this layer, these heads, at this place, attend so, and then this is known.

    `exponent` e: the step costs eps^-e feed-forward parameters. `carries`: how many numbers each head brings.
    """

    layer: int
    heads: tuple[int, int]
    at: str
    mode: Literal["max", "positions", "global"]
    retrieval: str
    attends: str
    score: str
    knows: str
    carries: int
    exponent: float

    @property
    def who(self) -> str:
        """The heads by number."""
        first, last = self.heads
        return f"head {first}" if first == last else f"heads {first}-{last}"

    def __str__(self) -> str:
        return f"layer {self.layer}, {self.who} at {self.at}: {self.attends}; {self.knows} (eps^-{self.exponent:.3g})"


@dataclass(frozen=True)
class KnownSet:
    """How many input tokens a state can depend on after a layer: at a token, and at the class token."""

    layer: int
    token: int
    cls: int


@dataclass(frozen=True)
class Statement:
    """What the prediction rests on: the sentence, how well it is known, and where it is from."""

    says: str
    status: Status
    source: Source


@dataclass(frozen=True)
class Prediction:
    """The answer to: can a network of this shape compute this target without paying for the length?

    `exponent` e: the best plan costs eps^-e feed-forward parameters for error eps (infinity: no fixed exponent, as no
    network of this shape computes the target). `cheap`: every step's exponent is one that does not grow with the
    length. `limiting`: the step that sets the exponent. `fixes`: what would make a costly shape cheap.
    """

    structure: Structure
    layers: tuple[tuple[int, int], ...]
    positions: int
    embed_dim: int
    cheap: bool
    exponent: float
    limiting: str
    plan: tuple[Step, ...]
    known: tuple[KnownSet, ...]
    statements: tuple[Statement, ...]
    fixes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    lower: Bound | None = None

    @property
    def feasible(self) -> bool:
        """Whether a network of this shape computes the target at any price."""
        return math.isfinite(self.exponent)

    @property
    def verdict(self) -> str:
        """In one word."""
        return "cheap" if self.cheap else "costly" if self.feasible else "infeasible"

    def __str__(self) -> str:
        name = "+".join(f"{h}x{n}" for h, n in self.layers)
        cost = f"eps^-{self.exponent:.3g}" if self.feasible else "no fixed exponent"
        lines = [f"{name}: {self.verdict} ({cost})", f"  {self.limiting}"]
        return "\n".join(lines + [f"  {step}" for step in self.plan])

    def as_row(self) -> dict[str, Any]:
        """Everything, ready for JSON; an infinite exponent is null."""
        return {
            "verdict": self.verdict,
            "cheap": self.cheap,
            "feasible": self.feasible,
            "exponent": self.exponent if self.feasible else None,
            "limiting": self.limiting,
            "fixes": list(self.fixes),
            "cautions": list(self.cautions),
            "architecture": {"layers": self.layers, "positions": self.positions, "embed_dim": self.embed_dim},
            "plan": [asdict(step) for step in self.plan],
            "known": [asdict(known) for known in self.known],
            "lower_bound": None if self.lower is None else self.lower.as_row(),
            "statements": [{"says": s.says, "status": s.status, "source": str(s.source)} for s in self.statements],
            "structure": self.structure.to_json(),
        }
