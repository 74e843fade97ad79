"""A claim as a value: what is said, of what, on what basis, under which conditions. Its text is made here alone."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from headcount.numerals import Side, outward, percent, power, short, spelt
from headcount.results.hypothesis import Hypothesis
from headcount.results.verdicts import Basis, Comparison, Evidence, Predicate, allowed
from headcount.sources import Source

MOST_WORDS = 40  # of the first sentence, with its conditions in short form

# {of}: basis and conditions; {why}: the reason, in the first sentence where it fits.
SENTENCES: dict[Predicate, str] = {
    Predicate.CHEAP: "{subject} is cheap {of}{why}",
    Predicate.COSTLY: "{subject} is costly {of}{why}",
    Predicate.INFEASIBLE: "{subject} is infeasible {of}{why}",
    Predicate.AT_LEAST: "{subject} is at least {value} {of}{why}",
    Predicate.AT_MOST: "{subject} is at most {value} {of}{why}",
    Predicate.EQUALS: "{subject} is {value} {of}{why}",
    Predicate.NOTHING: "nothing follows for {subject}{why}",
    Predicate.WITHIN: "{subject} {be} within {value} of the target {of}{why}",
    Predicate.BROKEN: "the promise of {subject} is BROKEN{why}",
    Predicate.CONFUSED: "{subject} needs at least {value} hidden units {of}{why}",
    Predicate.ENOUGH: "{subject} {be} enough{interval}{given}{why}",
    Predicate.FALLS: "the error still falls at {subject}, the most tested{interval}{given}{why}",
    Predicate.UNLEARNED: "no head count tested up to {subject} explains half of the variance{given}{why}",
    Predicate.HOLDS: "{subject} holds{given}{why}",
    Predicate.FAILS: "{subject} does not hold here{given}{why}",
    Predicate.WORTH_IT: "{subject} is worth it{interval}{given}{why}",
    Predicate.NOT_WORTH_IT: "{subject} is not worth it{given}{why}",
    Predicate.CANNOT_SAY: "cannot say yet whether {subject} is worth it{given}{why}",
    Predicate.NEVER: "{subject} never does {of}{why}",
}
# On which side of its number a claim stays when it is rounded.
SIDES: dict[Predicate, Side] = {
    Predicate.AT_LEAST: "lower",
    Predicate.CONFUSED: "lower",
    Predicate.AT_MOST: "upper",
    Predicate.WITHIN: "upper",
}
JUDGED = "{subject}: {word}{given}{why}"  # every other word stands after a colon


@runtime_checkable
class Promise(Protocol):
    """A number that carries what it was promised under, as a bound does."""

    @property
    def value(self) -> float: ...
    @property
    def given(self) -> tuple[Hypothesis, ...]: ...
    def as_row(self) -> dict[str, object]: ...


@dataclass(frozen=True)
class Claim:
    """A sentence with a verdict, as its parts. A word that outruns the evidence is refused (`verdicts.allowed`).

    `conditions` are copied from the value, and a claim that leaves one of them out cannot be made. `reason` says why,
    in words that decide nothing. The text is the first sentence, of at most 40 words with the conditions in short
    form; `lines` adds the long form.

    >>> from headcount.results import Bound
    >>> from headcount.sources import Source
    >>> bound = Bound("exponent", 6.0, "lower", Source("yu2025heads", "Theorem 2(2)"), ("Assumption 1",))
    >>> claim = Claim("the task by 1x2", Predicate.COSTLY, bound, Basis("proved"), bound.source, bound.hypotheses)
    >>> print(claim)
    the task by 1x2 is costly by proof, given Assumption 1
    >>> Claim("the task by 1x2", Predicate.COSTLY, bound, Basis("proved"), bound.source)
    Traceback (most recent call last):
    ...
    ValueError: 'costly' may not be said of the task by 1x2: conditions of the value are left out
    """

    subject: str
    predicate: Predicate
    value: Any = None
    basis: Basis = field(default_factory=lambda: Basis("calculus"))
    source: Source | None = None
    conditions: tuple[Hypothesis, ...] = ()
    compared: Comparison | None = None
    evidence: Evidence | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "conditions", tuple(dict.fromkeys(self.conditions)))
        allowed(self)

    @property
    def carried(self) -> set[Hypothesis]:
        """The conditions that the value itself carries."""
        return set(self.value.given) if isinstance(self.value, Promise) else set()

    @property
    def assumed(self) -> tuple[Hypothesis, ...]:
        """The conditions that nothing at hand shows."""
        return tuple(h for h in self.conditions if h.status == "assumed")

    def __str__(self) -> str:
        return self._said(self.subject)

    @property
    def said(self) -> str:
        """The first sentence without its subject."""
        return self._said("").removeprefix(" is ").strip()

    @property
    def lines(self) -> tuple[str, ...]:
        """The first sentence, then what it rests on in long form."""
        sentence = str(self)
        long = [f"because: {self.reason}"] if self.reason and self.reason not in sentence else []
        long += [f"by {self.source}"] if self.source else []
        long += [f"{'checked' if h.status == 'holds' else h.status}: {h.says}" for h in self.conditions]
        long += self._measured()
        return (sentence, *long)

    @property
    def word(self) -> str:
        """The verdict word alone, for programs."""
        return self.predicate.value

    def cell(self, notes: list[str]) -> str:
        """The word for a narrow cell, with the number of the footnote that holds the conditions.

        >>> notes = []
        >>> Claim("x", Predicate.COSTLY, conditions=(Hypothesis("weights at most 1"),)).cell(notes), notes
        ('costly (1)', ['given weights at most 1'])
        """
        if not self.assumed:
            return self.word
        note = self._given().removeprefix(", ")
        notes += [] if note in notes else [note]
        return f"{self.word} ({notes.index(note) + 1})"

    @property
    def headline(self) -> str:
        """What the interval allows to be said of a count in a headline, and no more; its conditions stand below it.

        >>> seen = Evidence(interval=(3, 4), level=0.95)
        >>> Claim("3 heads", Predicate.ENOUGH, (3, 4), Basis("measured"), evidence=seen).headline
        'Between three and four heads are enough'
        """
        if self.predicate is Predicate.UNLEARNED:
            return "Nothing was learned at any head count"
        inside, (low, high) = tuple(self.value), (self.evidence and self.evidence.interval) or (1, None)
        if high is None:
            return "The seeds do not decide" if low == 1 else f"At least {spelt(int(low))} heads are needed"
        if len(inside) > 1:
            return f"Between {spelt(inside[0])} and {spelt(inside[-1])} heads are enough"
        return "One head is enough" if high == 1 else f"{spelt(int(high)).capitalize()} heads are enough"

    def to_json(self) -> dict[str, object]:
        """The same fields, and the sentence."""
        value = self.value.as_row() if isinstance(self.value, Promise) else self.value
        return {
            "subject": self.subject,
            "predicate": self.word,
            "value": value if not isinstance(value, float) or math.isfinite(value) else None,
            "basis": asdict(self.basis),
            "source": str(self.source) if self.source else None,
            "conditions": [asdict(h) for h in self.conditions],
            "compared": asdict(self.compared) if self.compared else None,
            "evidence": asdict(self.evidence) if self.evidence else None,
            "reason": self.reason,
            "sentence": str(self),
        }

    def __and__(self, other: Claim) -> Claim:
        """Both at once: conditions united, the weaker basis."""
        if self.predicate != other.predicate:
            raise ValueError(f"one claim says {self.word!r} and the other {other.word!r}: they make no single sentence")
        return replace(
            self,
            subject=f"{self.subject} and {other.subject}",
            value=self.value if self.value == other.value else None,
            basis=self.basis & other.basis,
            conditions=(*self.conditions, *other.conditions),
            compared=self.compared if self.compared == other.compared else None,
            evidence=self.evidence if self.evidence == other.evidence else _joined(self.evidence, other.evidence),
            reason="; ".join(dict.fromkeys(filter(None, (self.reason, other.reason)))),
        )

    def _said(self, subject: str) -> str:
        why = f": {self.reason}" if self.predicate in SENTENCES else f", {self.reason}"
        sentence = self._filled(subject, why if self.reason else "")
        return sentence if len(sentence.split()) <= MOST_WORDS else self._filled(subject, "")

    def _filled(self, subject: str, why: str) -> str:
        condition = self._given()
        one = subject.lower().startswith(("1 ", "one ")) or not subject[:1].isdigit()
        return SENTENCES.get(self.predicate, JUDGED).format(
            subject=subject,
            word=self.word,
            value=self._number(),
            of=f"{self.basis}{condition}",
            given=condition,
            interval=self._interval(),
            be="is" if one else "are",
            why=why,
        )

    def _given(self) -> str:
        named = list(dict.fromkeys(h.brief for h in self.assumed))
        named += [] if self.evidence is None or self.evidence.whole else [_short_of(self.evidence)]
        named += [self.evidence.sizes] if self.evidence is not None and self.evidence.sizes else []
        return f", given {_and(named)}" if named else ""

    def _number(self) -> str:
        value = self.value.value if isinstance(self.value, Promise) else self.value
        if isinstance(value, int):
            return f"{value:,}"
        if not isinstance(value, float) or not math.isfinite(value):
            return str(value)
        if self.predicate is Predicate.CONFUSED and value < 1e9:
            return f"{math.ceil(value):,}"  # units are whole
        side = SIDES.get(self.predicate, "exact")
        return power(value, side) if 1000 <= value < 1e9 else short(outward(value, 4, side), 4)

    def _interval(self) -> str:
        if self.evidence is None or self.evidence.interval is None:
            return ""
        low, high = self.evidence.interval
        ends = f"[{low:.4g}, {high:.4g}]" if high is not None else f"[{low:.4g}, ...)"
        return f" ({percent(self.evidence.level)} interval {ends})" if self.evidence.level else f" {ends}"

    def _measured(self) -> list[str]:
        e, lines = self.evidence, []
        if self.compared is not None:
            times = f", {short(self.compared.ratio, 2)} times it" if self.compared.ratio else ""
            lines.append(f"compared with {self.compared.against} ({self.compared.side}{times})")
        if e is not None:
            lines.append(f"{self.basis}: {e.entered} of {e.planned} runs entered, {e.diverged} diverged")
        return lines


def _short_of(evidence: Evidence) -> str:
    return f"{evidence.entered} of {evidence.planned} runs"


def _and(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _joined(one: Evidence | None, other: Evidence | None) -> Evidence | None:
    """The evidence of both: runs added, an edge of either, no interval of its own."""
    if one is None or other is None:
        return one or other
    return Evidence(
        planned=one.planned + other.planned,
        entered=one.entered + other.entered,
        diverged=one.diverged + other.diverged,
        at_edge=one.at_edge or other.at_edge,
        settled=one.settled and other.settled,
        rows=one.rows + other.rows,
        sizes=" and ".join(dict.fromkeys(filter(None, (one.sizes, other.sizes)))),
    )


def conclusion(said: Claim | str) -> str:
    """The sentence in which a command or a page comes to its end.

    >>> conclusion("three heads do")
    'So: three heads do.'
    """
    return f"So: {str(said).rstrip('.')}."
