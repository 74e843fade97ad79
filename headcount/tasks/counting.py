"""Counting programs: letters, counts over the past, comparisons, Boolean combinations, and one place before.

The language in which it is stated what transformers of every length can do (C-RASP with the relation "one place
before"). A program is a frozen value; `truth` interprets it on many strings at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from headcount.sources import Source


@dataclass(frozen=True)
class Is:
    """The letter here is `letter`."""

    letter: int

    def __str__(self) -> str:
        return f"x = {self.letter}"


@dataclass(frozen=True)
class Negation:
    """Not so."""

    of: Condition

    def __str__(self) -> str:
        return f"not {_tight(self.of)}"


@dataclass(frozen=True)
class AllOf:
    """Every one of two or more."""

    of: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _several(self.of, "and")

    def __str__(self) -> str:
        return " and ".join(_tight(part) for part in self.of)


@dataclass(frozen=True)
class AnyOf:
    """One of two or more."""

    of: tuple[Condition, ...]

    def __post_init__(self) -> None:
        _several(self.of, "or")

    def __str__(self) -> str:
        return " or ".join(_tight(part) for part in self.of)


@dataclass(frozen=True)
class Before:
    """So one place before; nowhere at the first place."""

    of: Condition

    def __str__(self) -> str:
        return f"before({self.of})"


LARGEST = 10**12  # of a weight: its sums over a million letters are exact in 64-bit integers


@dataclass(frozen=True)
class AtLeast:
    """A sum of counts over the past with whole weights is at least `least`: sum_k w_k #{j <= i: p_k(j)} >= least."""

    terms: tuple[tuple[int, Condition], ...]
    least: int

    def __post_init__(self) -> None:
        if not self.terms or any(weight == 0 for weight, _ in self.terms):
            raise ValueError("a comparison needs at least one count, and no weight may be 0")
        if max(abs(self.least), *(abs(weight) for weight, _ in self.terms)) > LARGEST:
            raise ValueError(f"weights and thresholds of a count are whole numbers up to {LARGEST:.0e} in size")

    def __str__(self) -> str:
        first, *rest = self.terms
        words = ["-" * (first[0] < 0) + _count(*first)]
        words += [f"{'-' if weight < 0 else '+'} {_count(weight, of)}" for weight, of in rest]
        return f"{' '.join(words)} >= {self.least}"


Condition = Is | Negation | AllOf | AnyOf | Before | AtLeast


def seen(condition: Condition, times: int = 1) -> AtLeast:
    """So at least so often, here included.

    >>> str(seen(Is(1)))
    '#[x = 1] >= 1'
    """
    return AtLeast(((1, condition),), times)


@dataclass(frozen=True)
class CountingProgram:
    """What to say after each place: a letter with the condition under which it is said.

    >>> a_then_b = CountingProgram(((1, AllOf((Is(1), seen(Is(0))))),))  # b here, and an a so far
    >>> a_then_b(np.array([[1, 0, 1]]))[..., 0].tolist()
    [[False, False, True]]
    >>> a_then_b.depth, a_then_b.counts
    (1, 1)
    """

    answers: tuple[tuple[int, Condition], ...]

    def __post_init__(self) -> None:
        letters = [letter for letter, _ in self.answers]
        if not letters or len(set(letters)) < len(letters):
            raise ValueError(f"a program needs answers, each letter once; got {letters}")
        try:
            _ = self.parts
        except RecursionError:
            raise ValueError("conditions of the program stand too deep inside each other") from None

    @cached_property
    def parts(self) -> tuple[Condition, ...]:
        """Every condition of the program once, parts before wholes."""
        ordered: dict[Condition, None] = {}
        for _, condition in self.answers:
            _collect(condition, ordered)
        return tuple(ordered)

    @property
    def depth(self) -> int:
        """How deep counts stand inside counts."""
        deep: dict[Condition, int] = {}
        for part in self.parts:
            deep[part] = isinstance(part, AtLeast) + max((deep[inner] for inner in _inside(part)), default=0)
        return max(deep.values())

    @property
    def counts(self) -> int:
        """The number of different counts."""
        return len({inner for part in self.parts if isinstance(part, AtLeast) for _, inner in part.terms})

    @property
    def letters(self) -> tuple[int, ...]:
        """The letters that the program reads."""
        return tuple(sorted({part.letter for part in self.parts if isinstance(part, Is)}))

    def __call__(self, ids: Int[np.ndarray, "batch length"]) -> Bool[np.ndarray, "batch length answers"]:
        """Which answers hold after each place."""
        known: dict[Condition, np.ndarray] = {}
        for part in self.parts:
            known[part] = _truth(part, ids, known)
        return np.stack([known[condition] for _, condition in self.answers], axis=-1)

    def said(self, ids: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, "batch length"]:
        """The letter said after each place; -1 where no answer holds, -2 where several do."""
        holds = self(ids)
        letters = np.array([letter for letter, _ in self.answers])
        number = holds.sum(axis=-1)
        return np.where(number == 1, letters[holds.argmax(axis=-1)], np.where(number == 0, -1, -2))

    def __str__(self) -> str:
        return "\n".join(f"say {letter} if {condition}" for letter, condition in self.answers)


@dataclass(frozen=True)
class LengthVerdict:
    """Whether a proof says that networks trained on short strings are right on long ones.

    `proved` is True where a counting program exists: then length generalisation is guaranteed in the limit of the
    training length (Huang et al. 2025, for absolute positions). It is None where no guarantee is known: that is no
    prediction of failure.
    """

    proved: bool | None
    source: Source
    why: str

    def __post_init__(self) -> None:
        if self.proved is False:
            raise ValueError("a missing program predicts nothing: give True where there is one, else None, got False")

    def __str__(self) -> str:
        return f"{'proved' if self.proved else 'no guarantee'}: {self.why} ({self.source})"


def _truth(part: Condition, ids: np.ndarray, known: dict[Condition, np.ndarray]) -> np.ndarray:
    if isinstance(part, Is):
        return ids == part.letter
    if isinstance(part, Negation):
        return ~known[part.of]
    if isinstance(part, AllOf):
        return np.logical_and.reduce([known[inner] for inner in part.of])
    if isinstance(part, AnyOf):
        return np.logical_or.reduce([known[inner] for inner in part.of])
    if isinstance(part, Before):
        return np.concatenate([np.zeros_like(known[part.of][:, :1]), known[part.of][:, :-1]], axis=1)
    return np.sum([weight * known[of].cumsum(axis=1) for weight, of in part.terms], axis=0) >= part.least


def _inside(part: Condition) -> tuple[Condition, ...]:
    if isinstance(part, Is):
        return ()
    if isinstance(part, AtLeast):
        return tuple(of for _, of in part.terms)
    return part.of if isinstance(part, AllOf | AnyOf) else (part.of,)


def _collect(condition: Condition, ordered: dict[Condition, None]) -> None:
    if condition not in ordered:
        for inner in _inside(condition):
            _collect(inner, ordered)
        ordered[condition] = None


def _several(parts: tuple[Condition, ...], word: str) -> None:
    if len(parts) < 2:
        raise ValueError(f"{word} joins two or more conditions, got {len(parts)}")


def _tight(condition: Condition) -> str:
    loose = isinstance(condition, AllOf | AnyOf | AtLeast)
    return f"({condition})" if loose else str(condition)


def _count(weight: int, of: Condition) -> str:
    size = abs(weight)
    return f"{f'{size} ' if size > 1 else ''}#[{of}]"
