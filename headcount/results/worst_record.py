"""The worst error of one network as numbers that travel: what was drawn, attacked, met and proved, and where."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headcount.files import write_json
from headcount.notebook import AnswerInNotebook
from headcount.numerals import counted
from headcount.results.claim import Claim
from headcount.results.hypothesis import Hypothesis
from headcount.results.verdicts import PROVED, Basis, Predicate
from headcount.sources import Source

SEARCH = Source("headcount", "Worst error by branch and bound")


def worst_claim(known: WorstRecord | Any, domain: str, subject: str = "the worst error of the network") -> Claim:
    """A worst error as a claim on its domain: at most its upper end, and what was met from below."""
    conditions = [Hypothesis(domain)]
    conditions += [Hypothesis(f"{known.arithmetic} arithmetic", "holds")] if known.arithmetic else []
    left = f", and {counted(known.open, 'box', 'boxes')} left open" if known.open else ""
    met = f"{known.lower:.4g} was met{_times(known)}{left}"
    return Claim(subject, Predicate.AT_MOST, known.upper, Basis("proved"), SEARCH, tuple(conditions), reason=met)


def worst_sentence(known: WorstRecord | Any) -> str:
    """Both ends of a worst error, how often the root mean square that is, and what was left open."""
    left = f"; {counted(known.open, 'box', 'boxes')} left open" if known.open else ""
    return f"the worst error is between {known.lower:.4g} (met) and {known.upper:.4g} ({PROVED}){_times(known)}{left}"


def error_rows(known: WorstRecord | Any, samples: int, attacked: float | None = None) -> list[dict[str, str | float]]:
    """The errors side by side: of samples, of an attack where there was one, met, and proved."""
    tried = [] if attacked is None else [("largest attacked", attacked, "gradient ascent from samples")]
    errors = [
        ("root mean square", known.rms, f"{samples:,} samples"),
        ("largest drawn", known.sampled, f"{samples:,} samples"),
        *tried,
        ("largest met", known.lower, "seen at the input below"),
        ("worst, at most", known.upper, f"{PROVED} on {known.boxes:,} boxes"),
    ]
    return [dict(zip(("error", "size", "basis"), one, strict=True)) for one in errors]


def _times(known: WorstRecord | Any) -> str:
    return f", at least {known.lower / known.rms:,.0f} times the root mean square" if known.rms > 0 else ""


@dataclass(frozen=True)
class WorstRecord(AnswerInNotebook):
    """A network on a domain: the root mean square error, the worst of samples, of an attack, met, and proved.

    `where` is the input at which `lower` is met, token by token; `along` is (share of the way, |error|) on the straight
    line from a typical input to it.

    >>> sizes = dict(task="Wells", layers="1x4", length=2, low=0.0, high=1.0)
    >>> errors = dict(rms=0.001, sampled=0.01, attacked=0.02, lower=0.1, upper=0.11)
    >>> WorstRecord(**sizes, **errors, ratio=1.1, boxes=99, open=0, seconds=0.5, where=((0.0,), (1.0,))).sentence
    'the worst error is between 0.1 (met) and 0.11 (proved), at least 100 times the root mean square'
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
        return worst_sentence(self)

    def claim(self, subject: str = "the worst error of the network") -> Claim:
        """The upper end as a claim on the domain, with what was met from below.

        >>> sizes = dict(task="Wells", layers="1x4", length=2, low=0.0, high=1.0, ratio=1.1, boxes=99, open=0)
        >>> errors = dict(rms=0.001, sampled=0.01, attacked=0.02, lower=0.1, upper=0.11)
        >>> print(WorstRecord(**sizes, **errors, seconds=0.5, where=((0.0,), (1.0,))).claim())  # doctest: +ELLIPSIS
        the worst error of the network is at most 0.11 by proof, given tokens in [0, 1]: 0.1 was met, at least ...
        """
        return worst_claim(self, f"tokens in [{self.low:g}, {self.high:g}]", subject)

    @property
    def rows(self) -> list[dict[str, str | float]]:
        """The errors side by side."""
        return error_rows(self, self.samples, self.attacked)

    def files(self, out: Path) -> list[Path]:
        """All of it in `worst.json`."""
        return [write_json(out / "worst.json", self.to_json())]

    def to_json(self) -> dict[str, object]:
        """A JSON-ready dictionary."""
        return asdict(self)
