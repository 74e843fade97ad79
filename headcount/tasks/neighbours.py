"""Retrieval among letters: the neighbour of an earlier copy of the query, to its right or left, first, last or only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headcount.tasks.letters import Lengths, Strings

__all__ = ["Neighbour"]

TRIES = 10_000


@dataclass(frozen=True)
class Neighbour:
    """`BOS context SEP query answer EOS`: the letter beside the only, first or last copy of the query in the context.

    With `only` the query stands once in the context; otherwise at least twice. A context whose chosen copy has no
    neighbour on that side is drawn anew.
    Source: Jobanputra et al. 2025 (Born a Transformer), the six retrieval tasks.
    Departs: the published generator of the left neighbour of the first copy takes the last letter of the context where
    that copy stands first, in a quarter of its samples; here such a context is no sample.

    >>> strings = Neighbour("right", "first").strings(4, (6, 6), generator=torch.Generator().manual_seed(0))
    >>> strings.ids.shape, strings.judged.sum(dim=1).tolist()
    (torch.Size([4, 11]), [1, 1, 1, 1])
    """

    side: str = "right"  # or "left"
    which: str = "only"  # or "first" or "last"
    letters: int = 5

    def __post_init__(self) -> None:
        if self.side not in ("right", "left") or self.which not in ("only", "first", "last"):
            raise ValueError(
                f"side is right or left and which is only, first or last; got {self.side!r}, {self.which!r}"
            )
        if self.letters < 2:
            raise ValueError(f"letters must be at least 2, got {self.letters}")

    @property
    def vocab(self) -> int:
        """The letters, and the marks BOS, SEP and EOS after them."""
        return self.letters + 3

    def longest(self, length: int) -> int:
        """Context, query, answer and three marks."""
        return length + 5

    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings:
        """Contexts of uniform length, with their query and answer."""
        low = max(lengths[0], 2 if self.which == "only" else 3)
        if low > lengths[1]:
            raise ValueError(f"a context needs at least {low} letters here, got lengths up to {lengths[1]}")
        context, size, place = self._contexts(batch, (low, lengths[1]), generator)
        answer = place + (1 if self.side == "right" else -1)
        rows = torch.arange(batch, device=context.device)
        query, reply = context[rows, place], context[rows, answer]
        width = self.longest(lengths[1])
        ids = torch.full((batch, width), self.letters + 2, dtype=torch.int64, device=context.device)
        ids[:, 0] = self.letters
        places = torch.arange(lengths[1], device=context.device)
        inside = places < size[:, None]
        ids[:, 1 : lengths[1] + 1] = torch.where(inside, context, self.letters + 2)
        ids[rows, size + 1], ids[rows, size + 2], ids[rows, size + 3] = self.letters + 1, query, reply
        answers = torch.zeros_like(ids, dtype=torch.bool)
        answers[rows, size + 3] = True
        return Strings.continued(ids, answers)

    def _contexts(
        self, batch: int, lengths: Lengths, generator: torch.Generator | None
    ) -> tuple[Int[Tensor, "batch longest"], Int[Tensor, " batch"], Int[Tensor, " batch"]]:
        """Contexts, their lengths, and the place of the copy that is asked for."""
        draw = self._only if self.which == "only" else self._several
        context, size, place, good = draw(batch, lengths, generator)
        for _ in range(TRIES):
            bad = (~good).nonzero()[:, 0]
            if len(bad) == 0:
                return context, size, place
            context[bad], size[bad], place[bad], good[bad] = draw(len(bad), lengths, generator)
        raise ValueError(f"no context of {lengths} letters has the copy that {self} asks for")

    def _only(self, batch: int, lengths: Lengths, generator: torch.Generator | None) -> Drawn:
        whole = _numbers(generator)
        size = whole(lengths[0], lengths[1] + 1, (batch,))
        place = (self.side == "left") + whole(0, 2**31, (batch,)) % (size - 1)
        query = whole(0, self.letters, (batch,))
        others = whole(0, self.letters - 1, (batch, lengths[1]))
        context = others + (others >= query[:, None])  # any letter but the query
        context[torch.arange(batch, device=context.device), place] = query
        return context, size, place, torch.ones_like(size, dtype=torch.bool)

    def _several(self, batch: int, lengths: Lengths, generator: torch.Generator | None) -> Drawn:
        whole = _numbers(generator)
        size = whole(lengths[0], lengths[1] + 1, (batch,))
        context = whole(0, self.letters, (batch, lengths[1]))
        rows = torch.arange(batch, device=context.device)
        query = context[rows, whole(0, 2**31, (batch,)) % size]
        places = torch.arange(lengths[1], device=context.device)
        copies = (context == query[:, None]) & (places < size[:, None])
        first = copies.int().argmax(dim=1)
        last = lengths[1] - 1 - copies.int().flip(1).argmax(dim=1)
        place = first if self.which == "first" else last
        beside = place < size - 1 if self.side == "right" else place > 0
        return context, size, place, (copies.sum(dim=1) > 1) & beside


Drawn = tuple[Tensor, Tensor, Tensor, Bool[Tensor, " batch"]]


def _numbers(generator: torch.Generator | None) -> Callable[[int, int, tuple[int, ...]], Tensor]:
    device = generator.device if generator is not None else None
    return lambda low, high, size: torch.randint(low, high, size, generator=generator, device=device)
