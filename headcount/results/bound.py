"""A number that a theorem promises, with its side, its hypotheses and its source."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headcount.files import write_json
from headcount.notebook import AnswerInNotebook
from headcount.numerals import outward
from headcount.results.hypothesis import Hypothesis
from headcount.sources import Source, implementations

if TYPE_CHECKING:
    from headcount.results.claim import Claim

TRIVIAL = {"lower": 0.0, "upper": math.inf, "exact": math.nan}


@dataclass(frozen=True)
class Bound(AnswerInNotebook):
    """What a theorem says about one quantity at given sizes.

    `side` tells on which side of `value` the quantity lies: `"lower"` (at least), `"upper"` (at most) or
    `"exact"`. A bound that says nothing at these sizes is `vacuous`. A hypothesis given as text is assumed; where one
    fails nothing follows: `holds` is False, the bound is vacuous and its value the trivial one of its side.

    >>> b = Bound("exponent", 6.0, "lower", Source("yu2025heads", "Theorem 2(2)"), hypotheses=("Assumption 1",))
    >>> print(b)
    exponent >= 6, by Theorem 2(2) of Yu et al. 2025 (heads), if Assumption 1
    >>> few = Hypothesis.checked("heads < retrievals", False)
    >>> print(Bound("exponent", 6.0, "lower", Source("yu2025heads", "Theorem 2(2)"), hypotheses=(few,)))
    exponent: nothing follows by Theorem 2(2) of Yu et al. 2025 (heads), for it fails that heads < retrievals
    """

    quantity: str
    value: float
    side: Literal["lower", "upper", "exact"]
    source: Source
    hypotheses: Iterable[Hypothesis | str] = ()
    vacuous: bool = False
    meaning: str = ""
    sizes: dict[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        listed = tuple(Hypothesis(h) if isinstance(h, str) else h for h in self.hypotheses)
        object.__setattr__(self, "hypotheses", listed)
        if not self.holds:
            object.__setattr__(self, "vacuous", True)
            object.__setattr__(self, "value", TRIVIAL[self.side])

    @property
    def failed(self) -> tuple[str, ...]:
        """The hypotheses that were checked and do not hold."""
        return self._with("fails")

    @property
    def assumed(self) -> tuple[str, ...]:
        """The hypotheses that nothing at hand shows or denies."""
        return self._with("assumed")

    @property
    def holds(self) -> bool:
        """Whether no hypothesis was seen to fail."""
        return not self.failed

    def __str__(self) -> str:
        if self.failed:
            return f"{self.quantity}: nothing follows by {self.source}, for it fails that {'; '.join(self.failed)}"
        sign = {"lower": ">=", "upper": "<=", "exact": "="}[self.side]
        note = " (says nothing here)" if self.vacuous else ""
        condition = f", if {'; '.join(self.assumed)}" if self.assumed else ""
        return f"{self.quantity} {sign} {outward(self.value, 6, self.side):.6g}{note}, by {self.source}{condition}"

    @property
    def sentence(self) -> str:
        """What it says, with its hypotheses."""
        return str(self.claim())

    @property
    def rows(self) -> list[dict[str, str]]:
        """The hypotheses, each with what was seen of it."""
        return [{"hypothesis": h.says, "seen": h.status} for h in self.given]

    def files(self, out: Path) -> list[Path]:
        """The bound and its claim in `bound.json`."""
        return [write_json(out / "bound.json", {**self.as_row(), "claim": self.claim().to_json()})]

    @property
    def given(self) -> tuple[Hypothesis, ...]:
        """The hypotheses, each with what was seen of it."""
        return tuple(h for h in self.hypotheses if isinstance(h, Hypothesis))

    @property
    def proved(self) -> bool:
        """Whether the statement that it is of has a proof, in its paper or here (`sources.implements`)."""
        known = {r.status for r in implementations() if r.source == self.source}
        return bool(known) and known <= {"proved in the paper", "proved here"}

    def claim(self, subject: str = "") -> Claim:
        """What it says, as a claim of its quantity (or of `subject`), with every hypothesis.

        >>> print(Bound("the exponent", 6.0, "lower", Source("headcount", "x"), ("weights at most 1",)).claim())
        the exponent is at least 6 by the calculus, unproved, given weights at most 1
        """
        from headcount.results.claim import Claim
        from headcount.results.verdicts import Basis, Predicate

        side = {"lower": Predicate.AT_LEAST, "upper": Predicate.AT_MOST, "exact": Predicate.EQUALS}[self.side]
        basis = Basis("proved" if self.proved else "calculus")
        word = Predicate.NOTHING if self.vacuous else side
        return Claim(subject or self.quantity, word, self, basis, self.source, self.given, reason=self.meaning)

    def as_row(self) -> dict[str, object]:
        """The bound as one flat machine-readable row; a value that is not finite is null."""
        return {
            "quantity": self.quantity,
            "value": self.value if math.isfinite(self.value) else None,
            "side": self.side,
            "vacuous": self.vacuous,
            "holds": self.holds,
            "source": str(self.source),
            "hypotheses": [str(h) for h in self.hypotheses],
            "failed": list(self.failed),
            "assumed": list(self.assumed),
            "meaning": self.meaning,
            **self.sizes,
        }

    def _with(self, status: str) -> tuple[str, ...]:
        return tuple(h.says for h in self.hypotheses if isinstance(h, Hypothesis) and h.status == status)
