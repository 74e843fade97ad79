"""The counting programs of the letter tasks: retrieval and copying by pairs of letters, runs by nested counts."""

from __future__ import annotations

from collections.abc import Callable

from headcount.tasks.counting import AllOf, AnyOf, AtLeast, Before, Condition, CountingProgram, Is, Negation, seen


def retrieval(side: str, letters: int, *, first: bool = False) -> CountingProgram:
    """Say t after a query q if a copy of q, with `first` the first one, has t beside it.

    pick_q(j) = [x_j = q], with `first` also #{k <= j: x_k = q} = 1. Right: #{j: x_j = t, pick_q(j - 1)} >= 1; left:
    #{j: pick_q(j), x_{j-1} = t} >= 1. At place j the query is not known yet, so this is counted for every letter, and
    the last place chooses.

    >>> import numpy as np
    >>> retrieval("left", 3).said(np.array([[3, 2, 0, 1, 4, 0]]))[0, -1]  # BOS c a b SEP a: before a stood c
    np.int64(2)
    """

    def pick(q: int) -> Condition:
        once = AllOf((seen(Is(q)), Negation(seen(Is(q), 2))))
        return AllOf((Is(q), once)) if first else Is(q)

    def pair(q: int, t: int) -> Condition:
        return AllOf((Is(t), Before(pick(q)))) if side == "right" else AllOf((pick(q), Before(Is(t))))

    return _by_query(range(letters), range(letters), pair)


def copying(letters: int, *, backward: bool = False) -> CountingProgram:
    """Say after a letter of the copy what stands beside it in the source: after it, or `backward` before it.

    Marks are BOS = letters, SEP = letters + 1, EOS = letters + 2, as in `Copy`. Forwards SEP asks for the follower of
    BOS, and who is followed by SEP is followed by EOS in the copy. Backwards SEP asks for the letter before it, who
    has BOS before it is the last, and pairs are counted up to SEP alone: in the copy they stand the other way round.
    """
    bos, sep, eos = letters, letters + 1, letters + 2
    in_source = Negation(seen(Is(sep)))

    def forward(q: int, t: int) -> Condition:
        return AllOf((Is(sep if t == eos else t), Before(Is(bos if q == sep else q))))

    def reverse(q: int, t: int) -> Condition:
        pair = (Is(q), Before(Is(bos if t == eos else t)))
        return AllOf(pair if q == sep else (*pair, in_source))

    queries, answers = (*range(letters), sep), (*range(letters), eos)
    return _by_query(queries, answers, reverse if backward else forward)


def last_block(blocks: int) -> CountingProgram:
    """Of the prefixes of words of L_k, which are in L_k: p_2 = [x = b], p_j = [x = letter of block j, #p_{j-1} >= 1].

    k - 2 counts, each inside the next, all thresholds 1.

    >>> last_block(5).depth
    3
    """
    inside: Condition = Is((blocks - 1) % 2 if blocks < 3 else 1)
    for block in range(3, blocks + 1):
        inside = AllOf((Is((block - 1) % 2), AtLeast(((1, inside),), 1)))
    return CountingProgram(((2, Negation(inside)), (3, inside)))


def _by_query(queries: range | tuple[int, ...], answers: range | tuple[int, ...], pair: Pair) -> CountingProgram:
    conditions = []
    for t in answers:
        parts = tuple(AllOf((Is(q), seen(pair(q, t)))) for q in queries)
        conditions.append((t, AnyOf(parts)))
    return CountingProgram(tuple(conditions))


Pair = Callable[[int, int], Condition]
