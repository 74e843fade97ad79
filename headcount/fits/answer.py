"""What a measurement says, as one value: the headline, the advice and the row marked in the table are made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headcount.fits.verdict import Estimate
from headcount.numerals import counted, spelt

__all__ = ["Answer", "AttentionWorth", "Finding", "Worth"]

Finding = Literal["nothing", "little", "any", "enough", "more", "undecided"]

LEARNED = 0.95  # a level above this is the constant predictor's but for noise


@dataclass(frozen=True)
class Worth:
    """Another number of heads against the advised one: the factor by which the level changes, with its interval."""

    heads: int
    factor: Estimate

    @property
    def tells(self) -> bool:
        """Whether the seeds agree that there is a difference."""
        return not self.factor.low <= 1 <= self.factor.high


@dataclass(frozen=True)
class AttentionWorth:
    """The best head count against the best baseline.

    Attention is worth something when it lowers the baseline's level by more than the share `lead`: a twentieth, or
    1 / sqrt(validation samples) where so few tell no finer.

    >>> AttentionWorth("linear, flattened", 0.2, heads=3, level=0.1, lead=0.05).sentence
    'Attention is worth it here: its error is 50% below that of the best baseline (linear, flattened: 0.2)'
    """

    baseline: str
    without: float
    heads: int
    level: float
    lead: float

    @property
    def pays(self) -> bool:
        """Whether attention is worth anything."""
        return self.level < LEARNED and self.level < (1 - self.lead) * self.without

    @property
    def learnable(self) -> bool:
        """Whether anything beats a constant."""
        return min(self.level, self.without) <= LEARNED

    @property
    def sentence(self) -> str:
        """The answer, without a full stop."""
        if not self.learnable:
            return "There is nothing to learn here: neither a baseline nor attention predicts better than a constant"
        if self.pays:
            saved = f"its error is {1 - self.level / self.without:.0%} below that of the best baseline"
            return f"Attention is worth it here: {saved} ({self.baseline}: {self.without:.3g})"
        reached = f"{self.baseline} reaches {self.without:.3g} without it, the best network {self.level:.3g}"
        return f"Attention is worth nothing measurable here: {reached} with {counted(self.heads, 'head')}"


@dataclass(frozen=True)
class Answer:
    """How many heads, and what is said about it.

    `heads` is the count that is advised, `inside` are the counts tested that the interval holds, and `open` says that
    nothing bounds it from above. `apart` is how many times apart the seeds lie there, where training did not settle.

    >>> print(Answer("enough", 3, (3,), False, most=5, best=1e-3).headline)
    Three heads are enough
    """

    finding: Finding
    heads: int
    inside: tuple[int, ...]
    open: bool
    most: int
    best: float
    fewer: Worth | None = None
    more: Worth | None = None
    better: Worth | None = None
    attention: AttentionWorth | None = None
    apart: float | None = None

    @property
    def decided(self) -> bool:
        """Whether a number of heads is said without asking for more training or more counts."""
        return self.finding in ("any", "enough") and self.apart is None

    @property
    def headline(self) -> str:
        """The answer as a title."""
        if self.attention is not None and not self.attention.learnable:
            return "Nothing to learn here"
        if self.attention is not None and not self.attention.pays:
            return f"No attention needed: {self.attention.baseline} does as well"
        if self.finding in ("nothing", "little"):
            nothing = "Nothing was learned at any head count"
            return nothing if self.finding == "nothing" else "Too little was learned to count heads"
        return f"{self._counted}, but training did not settle" if self.apart is not None else self._counted

    @property
    def _counted(self) -> str:
        if self.open:
            low = self.inside[0]
            return "The seeds do not decide" if low == 1 else f"At least {spelt(low)} heads are needed"
        if len(self.inside) > 1:
            return f"Between {spelt(self.inside[0])} and {spelt(self.inside[-1])} heads are enough"
        few = "One head is enough" if self.heads == 1 else f"{spelt(self.heads).capitalize()} heads are enough"
        return f"{few} for most of it; {spelt(self.better.heads)} do better" if self.better is not None else few

    @property
    def advice(self) -> str:
        """What to do: first whether attention is worth anything, then how many heads."""
        if self.attention is None:
            return self._use
        if not self.attention.learnable:
            return f"{self.attention.sentence}."
        if self.attention.pays:
            return f"{self.attention.sentence}. {self._use}"
        return f"{self.attention.sentence}. With it all the same: {self._use[:1].lower()}{self._use[1:]}"

    @property
    def _use(self) -> str:
        if self.apart is None or self.finding in ("nothing", "little"):
            return self._heads_advised
        seeds = f"the seeds at {counted(self.heads, 'head')} lie a factor {self.apart:.2g} apart"
        return f"{self._heads_advised} Training did not settle: {seeds}, so measure again with more steps or seeds."

    @property
    def _heads_advised(self) -> str:
        if self.finding == "nothing":
            return f"No head count up to {self.most} predicts better than a constant: heads are not what is missing."
        if self.finding == "little":
            return (
                f"No head count up to {self.most} explains half of the target (the best leaves {self.best:.0%}), "
                "so the data do not say how many are needed."
            )
        if self.finding == "more":
            falls = "the error still falls at the most that was tested, so test more"
            return f"Use at least {counted(self.most, 'head')}: {falls}."
        if self.finding == "undecided":
            use = f"Use {counted(self.heads, 'head')}, but measure again with more seeds"
            return f"{use}: these do not rule out that {counted(self.most, 'head')} or more help."
        return self._wide or self._one

    @property
    def _wide(self) -> str:
        """Where the interval holds several counts: which, and what would tell."""
        if len(self.inside) < 2:
            return ""
        least, last = self.inside[0], self.inside[-1]
        also = f", or {self.better.heads} for {1 - self.better.factor.value:.0%} less error" if self.better else ""
        wide = f"these seeds do not decide between {least} and {last}; more would"
        return f"Use {counted(self.heads, 'head')}{also}: {wide}."

    @property
    def _one(self) -> str:
        if self.finding == "any":
            return f"Use one head: more bring {_brings(self.more)}."
        if self.better is not None:
            saved = 1 - self.better.factor.value
            also = f"Use {counted(self.heads, 'head')}, or {self.better.heads} for {saved:.0%} less error"
            return f"{also}: {_costs(self.fewer)}." if self.fewer else f"{also}."
        why = ", and ".join(filter(None, (_costs(self.fewer), _gains(self.more))))
        return f"Use {counted(self.heads, 'head')}: {why}."


def _costs(worth: Worth | None) -> str:
    if worth is None:
        return ""
    if not worth.tells:
        return f"{worth.heads} may do as well"
    return f"with {worth.heads} the error is {_times(worth.factor.value)}"


def _gains(worth: Worth | None) -> str:
    return f"{worth.heads} bring {_brings(worth)}" if worth else "more were not tested"


def _brings(worth: Worth | None) -> str:
    if worth is None or not worth.tells:
        return "nothing that can be measured"
    better = worth.factor.value < 1
    return f"only {1 - worth.factor.value:.0%} less error" if better else f"{worth.factor.value - 1:.0%} more error"


def _times(factor: float) -> str:
    """A factor as one says it.

    >>> _times(1.31), _times(10.2), _times(113.0)
    ('31% larger', '10 times as large', '110 times as large')
    """
    return f"{factor - 1:.0%} larger" if factor < 2 else f"{float(f'{factor:.2g}'):,g} times as large"
