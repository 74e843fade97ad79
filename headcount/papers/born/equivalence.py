"""Do two counting programs say the same? Every short string, then random longer ones; a difference is a string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from jaxtyping import Int

from headcount.tasks.counting import CountingProgram

EXHAUSTED = 20_000  # strings of one length that are all looked at


def difference(
    one: CountingProgram,
    two: CountingProgram,
    *,
    alphabet: Sequence[int] | None = None,
    samples: int = 2000,
    longest: int = 40,
    seed: int = 0,
) -> Int[np.ndarray, " length"] | None:
    """A string after some prefix of which the programs say otherwise, a shortest one where it is short; None if none
    was found.

    All strings over `alphabet` are looked at while there are at most 20,000 of a length, then `samples` random ones of
    up to `longest` letters. None is no proof for longer strings: equivalence of counting programs is undecidable in
    general.

    >>> from headcount.tasks.counting_text import parse_program as parse
    >>> often, once = parse("say 1 if #[x = 0] >= 2"), parse("say 1 if #[x = 0] >= 1")
    >>> difference(often, once, alphabet=(0, 1)).tolist()
    [0]
    >>> difference(once, parse("say 1 if not (-#[x = 0] >= 0)"), alphabet=(0, 1)) is None
    True
    """
    letters = [letter for letter, _ in one.answers]
    if sorted(letters) != sorted(letter for letter, _ in two.answers):
        raise ValueError("the programs answer with different letters, so no string is needed to tell them apart")
    order = [[letter for letter, _ in two.answers].index(letter) for letter in letters]
    known = tuple(sorted({*one.letters, *two.letters})) or (0,)
    for ids in _strings(tuple(alphabet or (*known, max(known) + 1)), samples, longest, seed):
        apart = (one(ids) != two(ids)[..., order]).any(axis=(1, 2))
        if apart.any():
            return ids[apart.argmax()]
    return None


def _strings(alphabet: tuple[int, ...], samples: int, longest: int, seed: int) -> Iterator[np.ndarray]:
    for length in range(1, longest + 1):
        if len(alphabet) ** length > EXHAUSTED:
            break
        yield np.array(list(product(alphabet, repeat=length)))
    draw = np.random.default_rng(seed)
    for length in np.unique(draw.integers(1, longest + 1, 16)):
        yield draw.choice(alphabet, (max(1, samples // 16), int(length)))
        skewed = draw.dirichlet(np.full(len(alphabet), 0.5))  # rare letters: counts far from each other
        yield draw.choice(alphabet, (max(1, samples // 16), int(length)), p=skewed)
