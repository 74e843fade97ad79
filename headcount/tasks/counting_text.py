"""Counting programs from text: the inverse of `str(program)`."""

from __future__ import annotations

import re

from headcount.tasks.counting import AllOf, AnyOf, AtLeast, Before, Condition, CountingProgram, Is, Negation

TOKEN = re.compile(r"\s*(#\[|\]|\(|\)|>=|=|\+|-|\d+|[a-z]+)")


def parse_program(text: str) -> CountingProgram:
    """The program that a text states, a line `say LETTER if CONDITION` for each answer.

    >>> program = parse_program("say 3 if x = 0 and (2 #[x = 1] - #[before(x = 0)] >= 1)")
    >>> parse_program(str(program)) == program
    True
    """
    answers = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        match = re.fullmatch(r"say (\d+) if (.*)", line)
        if match is None:
            raise ValueError(f"a line of a program reads `say LETTER if CONDITION`, got {line!r}")
        try:
            answers.append((int(match[1]), parse_condition(match[2])))
        except RecursionError:
            raise ValueError(f"conditions stand too deep inside each other in {line[:40]!r}..") from None
    return CountingProgram(tuple(answers))


def parse_condition(text: str) -> Condition:
    """One condition: `x = 3`, `not C`, `C and C`, `C or C`, `before(C)`, `2 #[C] - #[C] >= 1`; brackets where mixed.

    >>> parse_condition("x = 1 and x = 2 or x = 3")
    Traceback (most recent call last):
    ...
    ValueError: and, or need brackets between them, at 'or x = 3' of 'x = 1 and x = 2 or x = 3'
    """
    reader = _Reader(text)
    condition = reader.condition()
    if reader.ahead:
        reader.refuse("nothing more was expected")
    return condition


class _Reader:
    """Reads a condition from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.words: list[tuple[str, int]] = []
        while self.at < len(text.rstrip()):
            match = TOKEN.match(text, self.at)
            if match is None:
                raise ValueError(f"no word of the language at {text[self.at :].strip()!r} of {text!r}")
            self.words.append((match[1], match.start(1)))
            self.at = match.end()
        self.place = 0

    @property
    def ahead(self) -> str:
        return self.words[self.place][0] if self.place < len(self.words) else ""

    def take(self, wanted: str = "") -> str:
        word = self.ahead
        if not word or (wanted and word != wanted):
            self.refuse(f"{wanted or 'a word'} was expected")
        self.place += 1
        return word

    def number(self) -> int:
        sign = -1 if self.ahead == "-" and self.take() else 1
        if not self.ahead.isdigit():
            self.refuse("a whole number was expected")
        return sign * int(self.take())

    def refuse(self, why: str) -> None:
        rest = self.text[self.words[self.place][1] :] if self.place < len(self.words) else "the end"
        raise ValueError(f"{why}, at {rest!r} of {self.text!r}")

    def condition(self) -> Condition:
        parts = [self.single()]
        joint = self.ahead
        while self.ahead in ("and", "or"):
            if self.ahead != joint:
                self.refuse("and, or need brackets between them")
            self.take()
            parts.append(self.single())
        if len(parts) == 1:
            return parts[0]
        return AllOf(tuple(parts)) if joint == "and" else AnyOf(tuple(parts))

    def single(self) -> Condition:
        if self.ahead == "not":
            self.take()
            return Negation(self.single())
        if self.ahead == "x":
            self.take()
            self.take("=")
            return Is(self.number())
        if self.ahead == "(":
            return self.bracketed()
        if self.ahead == "before":
            self.take()
            return Before(self.bracketed())
        return self.comparison()

    def bracketed(self) -> Condition:
        self.take("(")
        condition = self.condition()
        self.take(")")
        return condition

    def comparison(self) -> AtLeast:
        terms = [self.term(-1 if self.ahead == "-" and self.take() else 1)]
        while self.ahead in ("+", "-"):
            terms.append(self.term(-1 if self.take() == "-" else 1))
        self.take(">=")
        return AtLeast(tuple(terms), self.number())

    def term(self, sign: int) -> tuple[int, Condition]:
        weight = self.number() if self.ahead.isdigit() else 1
        self.take("#[")
        condition = self.condition()
        self.take("]")
        return sign * weight, condition
