"""Formal languages as letter tasks: is the word so far in the language? Built-in ones, a program's, and your own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headcount.sources import Source
from headcount.tasks.counting import AllOf, AtLeast, Before, CountingProgram, Is, LengthVerdict, Negation
from headcount.tasks.counting_text import parse_program
from headcount.tasks.letters import Lengths, LetterTask, Strings

FRAMEWORK = Source("huang2025framework", "length generalisation and C-RASP")
OWN = Source("headcount", "a language of one's own")


@runtime_checkable
class Language(Protocol):
    """A set of words over the letters 0, 1, .., `letters` - 1: a frozen value that answers `word in language`.

    It may also have `words(batch, length, generator)`, which draws words to learn from, `program()`, a counting program
    that says yes (letter `letters` + 1) or no (`letters`), and `length_verdict`.
    """

    @property
    def letters(self) -> int: ...
    def __contains__(self, word: tuple[int, ...]) -> bool: ...


@dataclass(frozen=True)
class Recognition:
    """`BOS word`: after every letter of a word, is the word so far in the language?

    Letters are 0, 1, ..; then come the answers no and yes, or those of a program, and BOS. Without `words` of its own
    the letters of a word are drawn alike in one half of the words, and with chances of their own in the other.

    >>> strings = Recognition(Parity()).strings(1, (4, 4), generator=torch.Generator().manual_seed(0))
    >>> strings.ids[0].tolist(), strings.targets[0].tolist()  # an odd number of ones: yes = 3
    ([4, 0, 0, 1, 0], [4, 2, 2, 3, 3])
    """

    language: Any

    @property
    def name(self) -> str:
        """The name of the language."""
        return type(self.language).__name__

    @property
    def replies(self) -> int:
        """How many different answers there are: no and yes, unless the language says otherwise."""
        return getattr(self.language, "replies", 2)

    @property
    def vocab(self) -> int:
        """Letters, answers and BOS."""
        return self.language.letters + self.replies + 1

    @property
    def length_verdict(self) -> LengthVerdict:
        """What is proved of the language: what it states, or that it has a counting program; else nothing."""
        known = getattr(self.language, "length_verdict", None)
        if known is not None:
            return known
        if self.program() is not None:
            return LengthVerdict(True, FRAMEWORK, "it is a counting program")
        return LengthVerdict(None, OWN, "no counting program of it is known, which predicts nothing")

    def program(self) -> CountingProgram | None:
        """The counting program of the language, where it states one."""
        return self.language.program() if hasattr(self.language, "program") else None

    def longest(self, length: int) -> int:
        """A begin mark and the word."""
        return length + 1

    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings:
        """Words of uniform length, with the answer after each letter."""
        low, high = lengths
        if not 1 <= low <= high:
            raise ValueError(f"words have lengths from 1 on, smallest first, got {low} to {high}")
        device = generator.device if generator is not None else None
        size = torch.randint(low, high + 1, (batch, 1), generator=generator, device=device)
        words = self._words(batch, high, generator)
        first = self.language.letters
        answers = torch.from_numpy(answered(self.language, words.cpu().numpy())).to(words.device) + first
        ids = torch.full((batch, high + 1), self.vocab - 1, dtype=torch.int64, device=words.device)
        targets, loss_mask = ids.clone(), torch.zeros_like(ids, dtype=torch.bool)
        ids[:, 1:], targets[:, 1:] = words, answers
        loss_mask[:, 1:] = torch.arange(high, device=words.device) < size
        return Strings(ids, targets, loss_mask)

    def _words(self, batch: int, length: int, generator: torch.Generator | None) -> Int[Tensor, "batch length"]:
        own = getattr(self.language, "words", None)
        if own is None:
            return skewed_words(self.language.letters, batch, length, generator)
        words = torch.as_tensor(own(batch, length, generator)).long()
        top = self.language.letters
        if words.shape != (batch, length) or words.min() < 0 or words.max() >= top:
            raise ValueError(f"{self.name}.words must give ({batch}, {length}) letters below {top}")
        return words


def answered(language: Any, words: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, "batch length"]:
    """The number of the answer after every letter: by the language's own `answers` of many words, or word by word.

    >>> answered(Majority(), np.array([[1, 0, 1, 1]])).tolist()
    [[1, 0, 1, 1]]
    """
    if hasattr(language, "answers"):
        return np.asarray(language.answers(words)).astype(np.int64)
    rows = words.tolist()
    return np.array([[tuple(row[:n]) in language for n in range(1, len(row) + 1)] for row in rows], dtype=np.int64)


def skewed_words(
    letters: int, batch: int, length: int, generator: torch.Generator | None = None
) -> Int[Tensor, "batch length"]:
    """Random words: letters alike in the first half, with chances drawn for every word in the second."""
    device = generator.device if generator is not None else None
    chances = torch.rand((batch, letters), generator=generator, device=device) ** 2 + 1e-3
    chances[: (batch + 1) // 2] = 1.0
    ends = (chances / chances.sum(dim=1, keepdim=True)).cumsum(dim=1)
    drawn = torch.rand((batch, length), generator=generator, device=device)
    return torch.searchsorted(ends, drawn).clamp(max=letters - 1)


@dataclass(frozen=True)
class Majority:
    """More ones than zeros."""

    letters = 2
    length_verdict = LengthVerdict(True, FRAMEWORK, "a counting program of depth 1 decides the majority")

    def __contains__(self, word: tuple[int, ...]) -> bool:
        return 2 * sum(word) > len(word)

    def answers(self, words: Int[np.ndarray, "batch length"]) -> Bool[np.ndarray, "batch length"]:
        """The same for every prefix."""
        return (2 * words - 1).cumsum(axis=1) > 0

    def program(self) -> CountingProgram:
        """One comparison of two counts.

        >>> print(Majority().program())
        say 2 if not (#[x = 1] - #[x = 0] >= 1)
        say 3 if #[x = 1] - #[x = 0] >= 1
        """
        return _yes_no(AtLeast(((1, Is(1)), (-1, Is(0))), 1))


@dataclass(frozen=True)
class Dyck:
    """Well-bracketed words of one kind of brackets: 0 opens, 1 closes, and nothing closes that was not opened."""

    letters = 2
    length_verdict = LengthVerdict(True, FRAMEWORK, "a counting program of depth 2 decides well-bracketed words")

    def __contains__(self, word: tuple[int, ...]) -> bool:
        return bool(self.answers(np.array([word]))[0, -1])

    def answers(self, words: Int[np.ndarray, "batch length"]) -> Bool[np.ndarray, "batch length"]:
        """Open brackets are none at the end, and were never fewer."""
        open_ = (1 - 2 * words).cumsum(axis=1)
        return (open_ == 0) & (np.minimum.accumulate(open_, axis=1) >= 0)

    def words(self, batch: int, length: int, generator: torch.Generator | None = None) -> Int[Tensor, "batch length"]:
        """Prefixes of well-bracketed words, in every second word with one bracket turned round.

        >>> words = Dyck().words(400, 12, torch.Generator().manual_seed(0))
        >>> 0.7 < ((1 - 2 * words).cumsum(1).amin(1) >= 0).double().mean() < 0.9
        tensor(True)
        """
        device = generator.device if generator is not None else None
        closes = torch.rand((batch, length), generator=generator, device=device) < 0.5
        brackets, open_ = (
            torch.zeros((batch, length), dtype=torch.int64, device=device),
            torch.zeros(batch, device=device),
        )
        for place in range(length):
            brackets[:, place] = closes[:, place] & (open_ > 0)
            open_ += 1 - 2 * brackets[:, place]
        at = torch.randint(length, (batch,), generator=generator, device=device)
        flipped = torch.arange(0, batch, 2, device=device)
        brackets[flipped, at[flipped]] = 1 - brackets[flipped, at[flipped]]
        return brackets

    def program(self) -> CountingProgram:
        """As many close as open, and at no place so far more.

        >>> Dyck().program().depth
        2
        """
        more = AtLeast(((1, Is(1)), (-1, Is(0))), 1)
        left_open = AtLeast(((1, Is(0)), (-1, Is(1))), 1)
        return _yes_no(AllOf((Negation(left_open), Negation(AtLeast(((1, more),), 1)))))


@dataclass(frozen=True)
class Parity:
    """An odd number of ones."""

    letters = 2
    length_verdict = LengthVerdict(None, FRAMEWORK, "no counting program decides the parity, which predicts nothing")

    def __contains__(self, word: tuple[int, ...]) -> bool:
        return sum(word) % 2 == 1

    def answers(self, words: Int[np.ndarray, "batch length"]) -> Bool[np.ndarray, "batch length"]:
        """The same for every prefix."""
        return words.cumsum(axis=1) % 2 == 1


@dataclass(frozen=True)
class Spoken:
    """What a counting program says after each letter, the program given as text.

    With one answer, no and yes; with several, the number of the one that holds, and one more where none or several do.

    >>> Spoken("say 1 if #[x = 1] >= 2").answers(np.array([[1, 0, 1]])).tolist()
    [[0, 0, 1]]
    """

    text: str

    def __post_init__(self) -> None:
        if not self.stated.letters:
            raise ValueError("the program reads no letter, so there is nothing to learn")

    @cached_property
    def stated(self) -> CountingProgram:
        """The program that the text states."""
        return parse_program(self.text)

    @property
    def letters(self) -> int:
        """The letters that the program reads, two at least."""
        return max(2, max(self.stated.letters) + 1)

    @property
    def replies(self) -> int:
        """No and yes, or the answers and none of them."""
        return len(self.stated.answers) + 1

    def __contains__(self, word: tuple[int, ...]) -> bool:
        return bool(self.answers(np.array([word]))[0, -1])

    def answers(self, words: Int[np.ndarray, "batch length"]) -> Int[np.ndarray, "batch length"]:
        """The number of the answer after every letter."""
        holds = self.stated(words)
        if holds.shape[-1] == 1:
            return holds[..., 0].astype(np.int64)
        return np.where(holds.sum(axis=-1) == 1, holds.argmax(axis=-1), holds.shape[-1])

    def program(self) -> CountingProgram:
        """The program itself, of words without a begin mark."""
        return self.stated

    @property
    def length_verdict(self) -> LengthVerdict:
        """Proved: it is a program."""
        near = any(isinstance(part, Before) for part in self.stated.parts)
        place = ", which looks at the place before," if near else ""
        return LengthVerdict(True, FRAMEWORK, f"a counting program of depth {self.stated.depth}{place} states it")


def letter_task_of(value: Any, name: str = "") -> LetterTask:
    """A letter task as it is, a language as the task of recognising it; anything else is refused.

    >>> letter_task_of(Majority()).vocab
    5
    """
    if isinstance(value, LetterTask):
        return value
    if not (dataclasses.is_dataclass(value) and isinstance(value, Language)):
        raise ValueError(
            f"{name or type(value).__name__} is no language: a frozen dataclass with letters and `word in language`, "
            "or a letter task with vocab, longest and strings"
        )
    if not (isinstance(value.letters, int) and 1 <= value.letters <= 1000):
        raise ValueError(f"letters of {name or type(value).__name__} must be 1 to 1000, got {value.letters!r}")
    return Recognition(value)


def _yes_no(condition: Any) -> CountingProgram:
    return CountingProgram(((2, Negation(condition)), (3, condition)))
