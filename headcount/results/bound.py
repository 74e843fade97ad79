"""A number that a theorem promises, with its side, its hypotheses and its source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from headcount.sources import Source

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """What a theorem says about one quantity at given sizes.

    `side` tells on which side of `value` the quantity lies: `"lower"` (at least), `"upper"` (at most) or
    `"exact"`. A bound that says nothing at these sizes is `vacuous`.

    >>> b = Bound("exponent", 6.0, "lower", Source("yu2025heads", "Theorem 2(2)"), hypotheses=("heads < retrievals",))
    >>> print(b)
    exponent >= 6, by Theorem 2(2) of Yu et al. 2025 (heads)
    """

    quantity: str
    value: float
    side: Literal["lower", "upper", "exact"]
    source: Source
    hypotheses: tuple[str, ...] = ()
    vacuous: bool = False
    meaning: str = ""
    sizes: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        sign = {"lower": ">=", "upper": "<=", "exact": "="}[self.side]
        note = " (says nothing here)" if self.vacuous else ""
        return f"{self.quantity} {sign} {self.value:.6g}{note}, by {self.source}"

    def as_row(self) -> dict[str, Any]:
        """The bound as one flat machine-readable row."""
        return {
            "quantity": self.quantity,
            "value": self.value,
            "side": self.side,
            "vacuous": self.vacuous,
            "source": str(self.source),
            "hypotheses": list(self.hypotheses),
            "meaning": self.meaning,
            **self.sizes,
        }
