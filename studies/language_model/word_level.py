"""Texts as a word-level corpus writes them (WikiText-2 is one): signs apart from words, rare words unknown, headings.

A model that is judged on such a text should have been taught on some: what is taught is other text, in that form.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

UNKNOWN = "<unk>"
RAREST = 3  # a word seen less often is unknown
HEADED = 4  # paragraphs under one heading
HEADING = 3  # words of it
INSIDE = re.compile(r"(?<=\w)-(?=\w)")
POINT = re.compile(r"(?<=\d)([.,])(?=\d)")
APART = re.compile(r"@[-.,]@|<unk>|\w+(?:\.\w+)+\.?|\w+|'s\b|\.\.\.|[^\w\s]")


def _words(text: str) -> list[str]:
    """Words and signs.

    >>> _words("It weighs 1.5 kg (about), a well-known lobster's mass.")
    ['It', 'weighs', '1', '@.@', '5', 'kg', '(', 'about', ')', ',', 'a', 'well', '@-@', 'known', 'lobster', "'s", \
'mass', '.']
    """
    return APART.findall(POINT.sub(r" @\1@ ", INSIDE.sub(" @-@ ", text)))


def common_words(texts: Iterable[str]) -> frozenset[str]:
    """The words that are seen often enough to be known."""
    counts = Counter(word for text in texts for word in _words(text))
    return frozenset(word for word, count in counts.items() if count >= RAREST)


def word_level(text: str, known: frozenset[str]) -> str:
    """A text of many paragraphs in that form.

    >>> word_level("A crab, seen.", frozenset({"A", ",", "seen", "."}))
    ' \\n = A <unk> , = \\n \\n A <unk> , seen . \\n'
    """
    lines = []
    for number, paragraph in enumerate(p for p in text.split("\n") if p.strip()):
        words = [word if word in known else UNKNOWN for word in _words(paragraph)]
        if number % HEADED == 0:
            sign = "=" if number % (HEADED * HEADED) == 0 else "= ="
            lines += [" ", f" {sign} {' '.join(words[:HEADING])} {sign} ", " "]
        lines.append(f" {' '.join(words)} ")
    return "\n".join(lines).removesuffix(" ") + " \n" if lines else ""
