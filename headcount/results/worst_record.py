"""The worst error of one network as numbers that travel: what was drawn, attacked, met and proved, and where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from headcount.numerals import counted

__all__ = ["WorstRecord"]


@dataclass(frozen=True)
class WorstRecord:
    """A network on a domain: the root mean square error, the worst of samples, of an attack, met, and proved.

    `where` is the input at which `lower` is met, token by token; `along` is (share of the way, |error|) on the straight
    line from a typical input to it.

    >>> sizes = dict(task="Wells", layers="1x4", length=2, low=0.0, high=1.0)
    >>> errors = dict(rms=0.001, sampled=0.01, attacked=0.02, lower=0.1, upper=0.11)
    >>> WorstRecord(**sizes, **errors, ratio=1.1, boxes=99, open=0, seconds=0.5, where=((0.0,), (1.0,))).sentence
    'the worst error is between 0.1 (met) and 0.11 (proved), 100 times the root mean square'
    """

    task: str
    layers: str
    length: int
    low: float
    high: float
    rms: float
    sampled: float
    attacked: float
    lower: float
    upper: float
    ratio: float
    boxes: int
    open: int
    seconds: float
    where: tuple[tuple[float, ...], ...]
    along: tuple[tuple[float, float], ...] = ()
    road: str = ""
    arithmetic: str = ""
    samples: int = 20_000

    @property
    def sentence(self) -> str:
        """What it comes to."""
        times = f", {self.lower / self.rms:,.0f} times the root mean square" if self.rms > 0 else ""
        left = f"; {counted(self.open, 'box', 'boxes')} left open" if self.open else ""
        return f"the worst error is between {self.lower:.4g} (met) and {self.upper:.4g} (proved){times}{left}"

    def rows(self) -> list[dict[str, Any]]:
        """The errors side by side."""
        return [
            {"error": "root mean square", "size": self.rms, "basis": f"{self.samples:,} samples"},
            {"error": "largest drawn", "size": self.sampled, "basis": f"{self.samples:,} samples"},
            {"error": "largest attacked", "size": self.attacked, "basis": "gradient ascent from samples"},
            {"error": "largest met", "size": self.lower, "basis": "seen at the input below"},
            {"error": "worst, at most", "size": self.upper, "basis": f"proved on {self.boxes:,} boxes"},
        ]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary."""
        return asdict(self)
