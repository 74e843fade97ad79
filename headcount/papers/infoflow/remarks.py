"""What limits a plan, what would mend it and what to beware of: values with fields, and their sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from headcount.nets.architecture import Architecture
from headcount.numerals import counted, power
from headcount.results import Hypothesis


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
        share = self.numbers / max(1, self.dims)
        return f"{self.numbers:,}/{self.dims:,} = {power(share)} in each" + (", separated" if share <= 1 else "")


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

    def as_row(self) -> dict[str, Any]:
        """Ready for JSON."""
        fields = {"what": self.what, "layer": self.layer, "now": self.now, "wanted": self.wanted}
        return {**fields, "architecture": self.arch.as_dict(), "says": str(self)}


@dataclass(frozen=True)
class Caution:
    """Something the verdict leaves out of account."""

    name: Literal["ties", "spaced leaders", "bag", "rank of a score", "one map", "tokens choose", "sharing not tried"]
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
            "tokens choose": heads,
            "one map": "one map for all links",
            "sharing not tried": "no shared heads",
        }
        return Hypothesis(str(self), short=shortly.get(self.name, "scores of low rank"))
