"""Retrieval among letters: the neighbour of an earlier copy of the query, to its right or left, first, last or only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.sources import Source
from headcount.structure import Retrieval, Structure
from headcount.tasks.bigram_programs import retrieval
from headcount.tasks.counting import CountingProgram, Is, LengthVerdict
from headcount.tasks.letters import Lengths, Strings

TRIES = 10_000
SOURCE = Source("jobanputra2025born", "the table of tasks in C-RASP[pos]")


@dataclass(frozen=True)
class Neighbour:
    """`BOS context SEP query answer EOS`: the letter beside the only, first or last copy of the query in the context.

    With `only` the query stands once in the context; otherwise at least twice. A context whose chosen copy has no
    neighbour on that side is drawn anew. As an ordinary task, the context and the query as last token are one-hot
    letters, `length` of them, and the target is the number of the letter over letters - 1.
    Source: Jobanputra et al. 2025 (Born a Transformer), the six retrieval tasks.
    Departs: the published generator of the left neighbour of the first copy takes the last letter of the context where
    that copy stands first, in a quarter of its samples; here such a context is no sample.

    >>> strings = Neighbour("right", "first").strings(4, (6, 6), generator=torch.Generator().manual_seed(0))
    >>> strings.ids.shape, strings.judged.sum(dim=1).tolist()
    (torch.Size([4, 11]), [1, 1, 1, 1])
    >>> task = Neighbour("left", "only", letters=3, length=4)
    >>> task(torch.eye(3)[torch.tensor([[2, 0, 1, 0]])])  # c a b, and asked for a: before it stands c
    tensor([1.])
    """

    side: str = "right"  # or "left"
    which: str = "only"  # or "first" or "last"
    letters: int = 5
    length: int = 16  # of the ordinary task; strings have the lengths asked for

    def __post_init__(self) -> None:
        if self.side not in ("right", "left") or self.which not in ("only", "first", "last"):
            raise ValueError(
                f"side is right or left and which is only, first or last; got {self.side!r}, {self.which!r}"
            )
        if self.letters < 2:
            raise ValueError(f"letters must be at least 2, got {self.letters}")
        if self.length < self._least + 1:
            raise ValueError(f"a context and its query need a length of at least {self._least + 1}, got {self.length}")

    @property
    def _other_letter(self) -> bool:
        """Whether the answer is the other of two letters: were it the same, it would be the copy that is asked for."""
        return self.letters == 2 and (self.side, self.which) in (("right", "last"), ("left", "first"))

    @property
    def length_verdict(self) -> LengthVerdict:
        """Proved for the only and the first copy, which a counting program finds; for the last, no guarantee."""
        if self._other_letter:
            return LengthVerdict(True, SOURCE, "of two letters the neighbour of that copy is always the other one")
        if self.which == "last":
            return LengthVerdict(None, SOURCE, "no counting program finds the last copy, which predicts nothing")
        return LengthVerdict(True, SOURCE, "a counting program finds the copy at every length")

    def program(self) -> CountingProgram | None:
        """The counting program of the task, on `BOS context SEP query`; None where there is none."""
        if self._other_letter:
            return CountingProgram(((0, Is(1)), (1, Is(0))))
        return None if self.which == "last" else retrieval(self.side, self.letters, first=self.which == "first")

    @property
    def token_dim(self) -> int:
        return self.letters

    @property
    def structure(self) -> Structure:
        last = Retrieval("last letter", positions=(self.length - 1,))
        copy = Retrieval("its copy", after=("last letter",), offset=self._step)
        return Structure(self.length, self.letters, (last, copy))

    @property
    def domain(self) -> str:
        times = "once" if self.which == "only" else "at least twice"
        return f"one-hot letters whose last one occurred {times} before, the {self.which} copy with a {self.side} side"

    def draws(self, x: Float[Tensor, "batch length token_dim"]) -> Bool[Tensor, " batch"]:
        """Which one-hot sequences the sampler could have drawn.

        >>> once_and_twice = torch.eye(2)[torch.tensor([[1, 0, 1, 0], [0, 0, 1, 0]])]
        >>> Neighbour("left", "only", letters=2, length=4).draws(once_and_twice)
        tensor([ True, False])
        """
        letters = x.argmax(dim=-1)
        one_hot = ((x == 0) | (x == 1)).flatten(1).all(dim=1) & (x.sum(dim=-1) == 1).all(dim=1)
        copies = letters[:, :-1] == letters[:, -1:]
        number, places = copies.sum(dim=1), torch.arange(copies.shape[1], device=x.device)
        last = torch.where(copies, places, -1).amax(dim=1)
        place = last if self.which == "last" else copies.int().argmax(dim=1)
        beside = place < copies.shape[1] - 1 if self.side == "right" else place > 0
        return one_hot & (number == 1 if self.which == "only" else number > 1) & beside

    def answer_letters(self, x: Float[Tensor, "batch length token_dim"]) -> Int[Tensor, " batch"]:
        """The letter wanted, as its number."""
        letters = x.argmax(dim=-1)
        copies = (letters[:, :-1] == letters[:, -1:]).int()
        place = copies.shape[1] - 1 - copies.flip(1).argmax(dim=1) if self.which == "last" else copies.argmax(dim=1)
        beside = (place + self._step).clamp(0, self.length - 1)
        return letters.gather(1, beside[:, None])[:, 0]

    def __call__(self, x: Float[Tensor, "batch length token_dim"]) -> Float[Tensor, " batch"]:
        return self.answer_letters(x).to(x.dtype) / (self.letters - 1)

    def sample(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[Float[Tensor, "batch length token_dim"], Float[Tensor, " batch"]]:
        size = self.length - 1
        context, _, place = self._contexts(batch, (size, size), generator)
        letters = torch.cat([context, context.gather(1, place[:, None])], dim=1)
        x = torch.nn.functional.one_hot(letters, self.letters).to(dtype)
        return x, self(x)

    @property
    def _step(self) -> int:
        return 1 if self.side == "right" else -1

    @property
    def _least(self) -> int:
        return 2 if self.which == "only" else 3

    @property
    def vocab(self) -> int:
        """The letters, and the marks BOS, SEP and EOS after them."""
        return self.letters + 3

    def longest(self, length: int) -> int:
        """Context, query, answer and three marks."""
        return length + 5

    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings:
        """Contexts of uniform length, with their query and answer."""
        low = max(lengths[0], self._least)
        if low > lengths[1]:
            raise ValueError(f"a context needs at least {low} letters here, got lengths up to {lengths[1]}")
        context, size, place = self._contexts(batch, (low, lengths[1]), generator)
        answer = place + self._step
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
        randint = _numbers(generator)
        size = randint(lengths[0], lengths[1] + 1, (batch,))
        place = (self.side == "left") + randint(0, 2**31, (batch,)) % (size - 1)
        query = randint(0, self.letters, (batch,))
        others = randint(0, self.letters - 1, (batch, lengths[1]))
        context = others + (others >= query[:, None])  # any letter but the query
        context[torch.arange(batch, device=context.device), place] = query
        return context, size, place, torch.ones_like(size, dtype=torch.bool)

    def _several(self, batch: int, lengths: Lengths, generator: torch.Generator | None) -> Drawn:
        randint = _numbers(generator)
        size = randint(lengths[0], lengths[1] + 1, (batch,))
        context = randint(0, self.letters, (batch, lengths[1]))
        rows = torch.arange(batch, device=context.device)
        query = context[rows, randint(0, 2**31, (batch,)) % size]
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
