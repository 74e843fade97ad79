"""Who a network attends to, as numbers that travel: how often each head looks at what each retrieval finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from headcount.files import write_json
from headcount.notebook import AnswerInNotebook
from headcount.numerals import counted, spelt

HIT = 0.5  # a retrieval is looked up where some head finds it in more than half of the sequences


@dataclass(frozen=True)
class AttentionMap:
    """One input: the weight of every head on every position, and the position that each retrieval finds."""

    weights: tuple[tuple[float, ...], ...]
    wanted: tuple[int, ...]
    target: float
    answer: float


@dataclass(frozen=True)
class AttentionRecord(AnswerInNotebook):
    """A network's class token in one layer: `hits[head][retrieval]` is the share of sequences in which the head's
    largest weight lies on the token that the retrieval finds; `chance` is that of a guess.

    >>> record = AttentionRecord("LinearMax", "2x4", 8, 1e-4, ("max 1", "max 2"), ((0.9, 0.1), (0.1, 0.3)), 0.125, 500)
    >>> record.found, record.sentence
    (('max 1',), 'one of 2 retrievals is looked up by a head of its own (2 heads)')
    """

    task: str
    layers: str
    length: int
    nmse: float
    retrievals: tuple[str, ...]
    hits: tuple[tuple[float, ...], ...]
    chance: float
    samples: int
    maps: tuple[AttentionMap, ...] = ()
    run: str = ""

    @property
    def heads(self) -> int:
        """How many heads there are."""
        return len(self.hits)

    @property
    def best(self) -> tuple[tuple[int, float], ...]:
        """For each retrieval, the head that finds it most often, and how often."""
        columns = (tuple(row[i] for row in self.hits) for i in range(len(self.retrievals)))
        return tuple((max(range(len(column)), key=column.__getitem__), max(column)) for column in columns)

    @property
    def found(self) -> tuple[str, ...]:
        """The retrievals that a head of their own finds: each head counts for the one that it finds most often."""
        hit_rates = {max(range(len(row)), key=row.__getitem__): max(row) for row in sorted(self.hits, key=max)}
        return tuple(name for i, name in enumerate(self.retrievals) if hit_rates.get(i, 0.0) > HIT)

    @property
    def sentence(self) -> str:
        """How many retrievals have a head."""
        of = f"{spelt(len(self.found))} of {counted(len(self.retrievals), 'retrieval')}"
        own = "is looked up by a head of its own" if len(self.found) == 1 else "are looked up by a head of their own"
        return f"{of} {own} ({counted(self.heads, 'head')})"

    @property
    def rows(self) -> list[dict[str, float]]:
        """A row for each head: how often it finds each retrieval."""
        return [{"head": i + 1, **dict(zip(self.retrievals, row, strict=True))} for i, row in enumerate(self.hits)]

    def files(self, out: Path) -> list[Path]:
        """All of it in `attention.json`."""
        return [write_json(out / "attention.json", self.to_json())]

    def to_json(self) -> dict[str, object]:
        """The fields, ready for JSON."""
        return {**asdict(self), "found": list(self.found)}
