"""One rule for verdict words: what a claim rests on, and which word that allows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from headcount.results.claim import Claim

# Words that decide. They are written by `Claim.__str__` alone, from a predicate that `allowed` has looked at.
VERDICT_WORDS = ("proved", "by proof", "refuted", "holds", "matches", "same shape", "consistent", "worth it", "enough")
VERDICT_WORDS += ("never",)
_WORDS = re.compile(rf"\b({'|'.join(VERDICT_WORDS)})\b", re.IGNORECASE)


def has_verdict_word(text: str) -> bool:
    """Whether a text decides something.

    >>> has_verdict_word("four heads are enough"), has_verdict_word("four heads were tested")
    (True, False)
    """
    return _WORDS.search(text) is not None


class Predicate(StrEnum):
    """What is said of a subject."""

    CHEAP = "cheap"
    COSTLY = "costly"
    INFEASIBLE = "infeasible"
    AT_LEAST = "at least"
    AT_MOST = "at most"
    EQUALS = "equals"
    NOTHING = "nothing follows"
    WITHIN = "within"
    BROKEN = "broken"
    CONFUSED = "confused"
    ENOUGH = "enough"
    FALLS = "still falls"
    UNLEARNED = "unlearned"
    CONSISTENT = "consistent"
    REFUTED = "refuted"
    UNRESOLVED = "unresolved"
    MATCHES = "matches"
    SAME_SHAPE = "same shape"
    DIFFERS = "differs"
    UNDECIDED = "undecided"
    NOT_COMPARABLE = "not comparable"
    HOLDS = "holds"
    FAILS = "does not hold here"
    WORTH_IT = "worth it"
    NOT_WORTH_IT = "not worth it"
    CANNOT_SAY = "cannot say yet"
    NEVER = "never"


Kind = Literal["proved", "constructed", "calculus", "measured", "habit"]
PROVED: Kind = "proved"
PLACES = ("here", "elsewhere")
STRENGTH: tuple[Kind, ...] = ("proved", "constructed", "calculus", "measured", "habit")


@dataclass(frozen=True)
class Basis:
    """What a claim rests on: a proof, a network that was built, a counting without proof, a measurement, or habit.

    A measurement says where it was made and over how many (`n`).

    >>> Basis("proved") & Basis("calculus")
    Basis(kind='calculus', where='', n=0)
    >>> str(Basis("measured", "lengths 8 to 32", 4))
    'measured at lengths 8 to 32, n = 4'
    >>> (Basis("measured", "here") & Basis("measured", "elsewhere")).mark
    'measured elsewhere'
    """

    kind: Kind
    where: str = ""
    n: int = 0

    def __str__(self) -> str:
        if self.kind == "measured":
            return self.mark + (f", n = {self.n}" if self.n else "")
        named = {"proved": "by proof", "constructed": "by construction", "habit": "by habit"}
        return named.get(self.kind, "by the calculus, unproved")

    @property
    def mark(self) -> str:
        """Without the number: the kind, and where a measurement was made."""
        at = "" if not self.where else f" {self.where}" if self.where in PLACES else f" at {self.where}"
        return f"{self.kind}{at if self.kind == 'measured' else ''}"

    def __and__(self, other: Basis) -> Basis:
        """The weaker of two; what was measured elsewhere is weaker than what was measured here."""
        return max(self, other, key=lambda basis: (STRENGTH.index(basis.kind), basis.where == "elsewhere"))


# Of several, in a sentence that counts them.
PLURALS = {
    Predicate.NOT_COMPARABLE: "cannot be compared",
    Predicate.MATCHES: "match",
    Predicate.CONSISTENT: "are consistent",
    Predicate.SAME_SHAPE: "have the same shape",
    Predicate.DIFFERS: "differ",
    Predicate.UNDECIDED: "are undecided",
}


@dataclass(frozen=True)
class Comparison:
    """With what a claim compares, who stated that, and how many times the other's value ours is.

    `side`: printed by the paper, known from a summary of it, typed in by us (a formula of theirs or ours), ours, or
    asked by the user. `statement`: whether it is the authors' own.
    """

    against: str
    side: Literal["printed", "summary", "typed", "ours", "asked"]
    ratio: float | None = None
    statement: Literal["theirs", "ours"] = "theirs"


@dataclass(frozen=True)
class Evidence:
    """What was measured: runs planned, entered and diverged, the interval and its level, and where it lies.

    `at_edge`: the fit ends at the end of its box, or the optimum at the end of the grid. `settled`: seeds agree well
    enough for more training to leave the answer where it is. `sizes` names finite sizes that the claim does not
    go beyond, as "at these widths".
    """

    planned: int = 0
    entered: int = 0
    diverged: int = 0
    interval: tuple[float, float | None] | None = None
    level: float | None = None
    at_edge: bool = False
    settled: bool = True
    rows: int = 0
    sizes: str = ""

    @property
    def whole(self) -> bool:
        """Whether all that was planned entered."""
        return self.entered >= self.planned


class _Rule(NamedTuple):
    words: frozenset[Predicate]
    breaks: Callable[[Claim], bool]
    says: str


P = Predicate
ALL = frozenset(P)
DECIDING = frozenset({P.ENOUGH, P.CONSISTENT, P.REFUTED, P.MATCHES, P.SAME_SHAPE, P.HOLDS, P.WORTH_IT, P.NEVER})
DECIDING |= {P.NOT_WORTH_IT}
FINAL = frozenset({P.REFUTED, P.MATCHES, P.HOLDS, P.NEVER})
BESIDE = frozenset({P.MATCHES, P.SAME_SHAPE})
DENYING = frozenset({P.REFUTED, P.FAILS})


def _of(claim: Claim, kind: Kind) -> bool:
    return claim.basis.kind == kind


def _says_nothing(claim: Claim) -> bool:
    value = claim.value
    return _of(claim, "proved") and bool(getattr(value, "vacuous", False) or not getattr(value, "holds", True))


def _side(claim: Claim, *sides: str) -> bool:
    return claim.compared is not None and claim.compared.side in sides


def _mostly_diverged(claim: Claim) -> bool:
    e = claim.evidence
    return e is not None and 2 * e.diverged >= max(1, e.entered)


def _by_evidence(test: Callable[[Evidence], bool]) -> Callable[[Claim], bool]:
    return lambda claim: claim.evidence is not None and test(claim.evidence)


RULES = (
    _Rule(ALL, lambda c: has_verdict_word(c.subject) or has_verdict_word(c.reason), "words that decide are its own"),
    _Rule(ALL - {P.NOTHING}, lambda c: any(h.status == "fails" for h in c.conditions), "a condition fails"),
    _Rule(ALL - {P.NOTHING}, _says_nothing, "the bound says nothing here"),
    _Rule(ALL, lambda c: not c.carried <= set(c.conditions), "conditions of the value are left out"),
    _Rule(ALL - {P.NOTHING}, lambda c: _of(c, "proved") and c.source is None, "a proof has a source"),
    _Rule(ALL, lambda c: _of(c, "constructed") and not c.conditions, "a construction holds on a domain"),
    _Rule(FINAL | BESIDE, lambda c: _of(c, "calculus") or _of(c, "habit"), "neither proved nor measured"),
    _Rule(frozenset({P.NEVER}), lambda c: not _of(c, "proved") or bool(c.assumed), "assumed and not proved of all"),
    _Rule(DECIDING, lambda c: _of(c, "measured") and c.evidence is None, "measured without evidence"),
    _Rule(FINAL, _by_evidence(lambda e: not e.whole), "not all that was planned entered"),
    _Rule(DECIDING | DENYING, _by_evidence(lambda e: e.at_edge), "the fit lies at the end of what was tried"),
    _Rule(FINAL | DENYING, _by_evidence(lambda e: not e.settled), "training did not settle"),
    _Rule(DECIDING - {P.CONSISTENT, P.ENOUGH}, _mostly_diverged, "half of the runs or more diverged"),
    _Rule(DENYING, _by_evidence(lambda e: e.diverged > 0), "some of the runs diverged"),
    _Rule(BESIDE, lambda c: c.compared is None, "compared with nothing"),
    _Rule(BESIDE, lambda c: _side(c, "typed", "ours"), "what we typed in is no table of the paper"),
    _Rule(frozenset({P.REFUTED}), lambda c: _side(c, "typed", "ours"), "the statement is not the authors' own"),
    _Rule(frozenset({P.REFUTED}), lambda c: _side(c, "summary"), "the statement is known from a summary alone"),
    _Rule(
        frozenset({P.REFUTED}),
        _by_evidence(lambda e: bool(e.sizes)),
        "sizes are finite and the statement is of a limit",
    ),
    _Rule(
        frozenset({P.REFUTED}),
        lambda c: c.compared is not None and c.compared.statement == "ours",
        "the statement is not the authors' own",
    ),
    _Rule(
        frozenset({P.WORTH_IT}),
        _by_evidence(lambda e: e.interval is None or not e.interval[0] > 0),
        "the interval of the gain reaches nothing",
    ),
)


def objections(claim: Claim) -> list[str]:
    """Why the evidence of a claim does not carry its word; empty where it does."""
    return [rule.says for rule in RULES if claim.predicate in rule.words and rule.breaks(claim)]


def allowed(claim: Claim) -> None:
    """Refuse a claim whose word outruns its evidence, with the first reason."""
    for reason in objections(claim):
        raise ValueError(f"{claim.predicate.value!r} may not be said of {claim.subject or 'this'}: {reason}")


def withheld(word: Predicate, make: Callable[[Predicate], Claim]) -> str:
    """Why a claim may not use a word; empty where it may."""
    try:
        make(word)
    except ValueError as error:
        return str(error).rpartition(": ")[2]
    return ""


def strongest(words: Iterable[Predicate], make: Callable[[Predicate], Claim]) -> Claim:
    """The claim with the first of these words that its evidence allows."""
    problem = None
    for word in words:
        try:
            return make(word)
        except ValueError as error:
            problem = problem or error
    raise problem or ValueError("no word was offered")
