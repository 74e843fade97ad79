"""The table of what was measured about heads elsewhere and here: rows with their source, read and checked. No torch."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal

from headcount.frozen import decode

LOSSES = ("loss", "ppl")
FILES = ("evidence.toml", "own_rows.toml")  # what others measured; what a study here has entered


@dataclass(frozen=True)
class EvidenceRow:
    """One measurement: what was changed, from what to what, at which size, by whom, and where the number stands.

    `steps` counts the unit of its kind of change; `error` is a standard error in percent where the source gives one;
    `digits` how many decimals its numbers were printed with, where they do not show it themselves.

    >>> row = EvidenceRow("x", "halve key-value heads", "4 (4) x 128", "4 (1) x 128", "somebody", "thread", "quoted",
    ...                   metric="loss", base=2.0, value=2.02, steps=2)
    >>> round(row.percent, 3), round(row.per_step, 4)
    (0.995, 0.4975)
    """

    id: str
    change: str
    before: str
    after: str
    source: str
    kind: Literal["paper", "thread", "repository", "ours"]
    checked: Literal["quoted", "second-hand", "memory"]
    where: str = ""
    metric: str = "words"
    base: float | None = None
    value: float | None = None
    steps: float = 1.0
    size: str = ""
    seeds: int = 1
    held: str = ""
    domain: str = "language"
    says: str = ""
    note: str = ""
    error: float | None = None
    digits: int | None = None

    def __post_init__(self) -> None:
        if self.metric in LOSSES and (self.base is None or self.value is None):
            raise ValueError(f"row {self.id} has a {self.metric} but not its numbers before and after")
        if not self.steps > 0:
            raise ValueError(f"row {self.id}: steps must be above 0, got {self.steps:g}")

    @property
    def percent(self) -> float | None:
        """100 ln(loss after / loss before), a perplexity by its logarithm; None where no loss was measured."""
        if self.metric not in LOSSES or self.base is None or self.value is None:
            return None
        before, after = (math.log(self.base), math.log(self.value)) if self.metric == "ppl" else (self.base, self.value)
        return 100 * math.log(after / before)

    @property
    def rounding(self) -> float:
        """What printing to so many decimals hides of the percentage: uniform errors of half a digit in both."""
        if self.percent is None or self.base is None or self.value is None:
            return 0.0
        shown = max(_decimals(self.base), _decimals(self.value)) if self.digits is None else self.digits
        hidden = 10.0**-shown / math.sqrt(12)
        slopes = [1 / (v * math.log(v)) if self.metric == "ppl" else 1 / v for v in (self.base, self.value)]
        return 100 * hidden * math.hypot(*slopes)

    @property
    def per_step(self) -> float | None:
        """The change for one step of its kind."""
        return None if self.percent is None else self.percent / self.steps

    @property
    def fits(self) -> bool:
        """Whether the row may enter a fit: a loss on language, read in the source's own text."""
        return self.percent is not None and self.checked == "quoted" and self.domain == "language"

    def as_row(self) -> dict[str, object]:
        """The row for people and programs: a flat mapping."""
        return {
            "change": self.change,
            "from": self.before,
            "to": self.after,
            "size": self.size,
            "seeds": self.seeds,
            "metric": self.metric,
            "base": self.base,
            "value": self.value,
            "percent": self.percent,
            "per step": self.per_step,
            "held": self.held,
            "domain": self.domain,
            "says": self.says,
            "note": self.note,
            "source": self.source,
            "where": self.where,
            "kind": self.kind,
            "checked": self.checked,
            "in fit": self.fits,
            "id": self.id,
        }


@dataclass(frozen=True)
class SeedNoise:
    """The standard deviation of the final loss over seeds of one model, in percent of it."""

    source: str
    where: str
    deviation: float
    seeds: int


@dataclass(frozen=True)
class EvidenceTable:
    """All rows, and how far seeds lie apart where somebody said."""

    rows: tuple[EvidenceRow, ...]
    noise: tuple[SeedNoise, ...] = ()
    paired: dict[str, float] = field(default_factory=dict, hash=False)  # of our own grid: deviation and free

    @property
    def changes(self) -> tuple[str, ...]:
        """The kinds of change, in the order of the table."""
        return tuple(dict.fromkeys(row.change for row in self.rows))

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.source for row in self.rows))

    @property
    def assumed_noise(self) -> float:
        """The loudest deviation of one run that others report, in percent: what a row without an error is given."""
        if not self.noise:
            raise ValueError("the table says nothing about seeds: it has no [[noise]]")
        return max(noise.deviation for noise in self.noise)

    def of(self, change: str) -> tuple[EvidenceRow, ...]:
        return tuple(row for row in self.rows if row.change == change)

    def error(self, row: EvidenceRow) -> float:
        """The standard error of a row's percentage: its own, or two runs' noise over its seeds and their rounding."""
        if row.error is not None:
            return row.error
        return math.hypot(self.assumed_noise * math.sqrt(2 / max(row.seeds, 1)), row.rounding)


def _decimals(number: float) -> int:
    """How many decimals a number was written with.

    >>> _decimals(4.92), _decimals(30.2)
    (2, 1)
    """
    return len(str(number).partition(".")[2])


@cache
def evidence_table() -> EvidenceTable:
    """The table that the package carries."""
    texts = [files("headcount.sizing") / name for name in FILES]
    return parsed([text.read_text(encoding="utf-8") for text in texts if text.is_file()])


def parsed(texts: Iterable[str]) -> EvidenceTable:
    """The table that TOML texts describe; a misspelt key or an id used twice is refused."""
    rows: list[EvidenceRow] = []
    noise: list[SeedNoise] = []
    paired: dict[str, float] = {}
    for text in texts:
        table = tomllib.loads(text)
        rows += [_row(entry) for entry in table.get("row", [])]
        noise += [decode(SeedNoise, entry, "[[noise]]") for entry in table.get("noise", [])]
        paired |= table.get("paired", {})
    twice = [row.id for row in rows if sum(other.id == row.id for other in rows) > 1]
    if twice:
        raise ValueError(f"two rows of the evidence are called {twice[0]!r}")
    return EvidenceTable(tuple(rows), tuple(noise), paired)


def _row(entry: dict[str, object]) -> EvidenceRow:
    renamed = {{"from": "before", "to": "after"}.get(key, key): value for key, value in entry.items()}
    return decode(EvidenceRow, renamed, f"row {entry.get('id', '?')}")
