"""Who competes: predictors without attention, and one standard block at every head count and depth."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from headcount.measuring.sequences import Sequences
from headcount.numerals import counted


@dataclass(frozen=True)
class Contestant:
    """A predictor by name; a network has `heads` for each layer, where 0 stands for the even mean of all tokens.

    >>> network(2, layers=2).name, ZERO_HEADS.attends, FIRST_FED.standard
    ('2 heads, 2 layers', False, False)
    """

    name: str
    heads: tuple[int, ...] = ()

    @property
    def attends(self) -> bool:
        """Whether it can look anything up."""
        return any(self.heads)

    @property
    def standard(self) -> bool:
        """Whether it is the block with so many heads in every layer."""
        return self.attends and len(set(self.heads)) == 1


@dataclass(frozen=True)
class KeptNetwork:
    """A trained network by the address of its row: whose it is, of which split, and its error on the inner part."""

    run: str
    contestant: Contestant
    split: int
    inner: float


def network(heads: int, layers: int = 1) -> Contestant:
    """The standard block with as many heads in each of its layers."""
    depth = "" if layers == 1 else f", {counted(layers, 'layer')}"
    return Contestant(f"{counted(heads, 'head')}{depth}", (heads,) * layers)


CONSTANT = Contestant("constant")
LAST_VALUE = Contestant("last value")
POOLED, FLATTENED = Contestant("linear, pooled"), Contestant("linear, flattened")
BOOSTING = Contestant("gradient boosting")
ZERO_HEADS = Contestant("zero heads", (0,))  # a feed-forward for every token, the mean of all, a feed-forward of that
FIRST_FED = Contestant("feed-forward, then 1 head", (0, 1))
WITHOUT = (CONSTANT, POOLED, FLATTENED, BOOSTING)


def without_attention(data: Sequences) -> tuple[Contestant, ...]:
    """Everything without a network that these data and this installation allow.

    The last value is for windows whose features hold the target; boosting is scikit-learn's, for one target.
    """
    last = (LAST_VALUE,) if data.past is not None and not data.classes else ()
    one = bool(data.classes) or data.y.shape[1] == 1
    boosting = (BOOSTING,) if one and find_spec("sklearn") is not None else ()
    return (CONSTANT, *last, POOLED, FLATTENED, *boosting)
