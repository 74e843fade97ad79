"""Copying letters, forwards or reversed, all of them distinct or with repeats."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.sources import Source
from headcount.tasks.bigram_programs import copying
from headcount.tasks.counting import CountingProgram, LengthVerdict
from headcount.tasks.letters import Lengths, Strings

SOURCE = Source("jobanputra2025born", "the table of tasks in C-RASP[pos]")


@dataclass(frozen=True)
class Copy:
    """`BOS source SEP target EOS`: the target is the source, or the source reversed, and EOS is an answer too.

    With `distinct` no letter of a source repeats. Otherwise letters are drawn from `letters`, or, where `ambiguous` is
    given, from as many of them (up to `letters`) as make the expected share of places whose letter has come before
    near it, at every length alike.
    Source: Jobanputra et al. 2025 (Born a Transformer), the four copying tasks.
    Departs: in the published strings with repeats, ambiguous bigrams jump from 0.30 to 0.97 of them between lengths
    20 and 30, so that a fall of accuracy there says little about length; `ambiguous` keeps the share.

    >>> strings = Copy(backward=True, letters=9).strings(1, (3, 3), generator=torch.Generator().manual_seed(0))
    >>> source = strings.ids[0, 1:4]
    >>> torch.equal(strings.ids[0, 5:8], source.flip(0)), int(strings.judged.sum())
    (True, 4)
    """

    backward: bool = False
    distinct: bool = True
    letters: int = 150
    ambiguous: float | None = None

    def __post_init__(self) -> None:
        if self.letters < 2:
            raise ValueError(f"letters must be at least 2, got {self.letters}")
        if self.ambiguous is not None and (self.distinct or not 0 < self.ambiguous < 1):
            raise ValueError(f"ambiguous is a share in (0, 1) of letters that repeat, got {self.ambiguous}")

    @property
    def length_verdict(self) -> LengthVerdict:
        """Proved where letters are distinct, so that neighbours tell the copy; with repeats, no guarantee."""
        if self.distinct:
            return LengthVerdict(
                True, SOURCE, "a counting program copies by pairs of letters, at every length that the alphabet allows"
            )
        return LengthVerdict(None, SOURCE, "no counting program copies repeats, which predicts nothing")

    def program(self) -> CountingProgram | None:
        """The counting program of the task; None where there is none. It has letters^2 counts."""
        return copying(self.letters, backward=self.backward) if self.distinct else None

    @property
    def vocab(self) -> int:
        """The letters, and the marks BOS, SEP and EOS after them."""
        return self.letters + 3

    def longest(self, length: int) -> int:
        """Source, target and three marks."""
        return 2 * length + 3

    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings:
        """Sources of uniform length, each with its copy."""
        low, high = lengths
        if not 1 <= low <= high:
            raise ValueError(f"sources have lengths from 1 on, smallest first, got {low} to {high}")
        if self.distinct and high > self.letters:
            raise ValueError(f"{high} distinct letters asked for, and there are {self.letters}")
        device = generator.device if generator is not None else None
        size = torch.randint(low, high + 1, (batch, 1), generator=generator, device=device)
        source = self._sources(batch, high, size, generator)
        places = torch.arange(self.longest(high), device=source.device).expand(batch, -1)
        inside = (places > size + 1) & (places < 2 * size + 2)
        steps = places - size - 2  # of the target
        whence = torch.where(inside, size - 1 - steps if self.backward else steps, places - 1)
        ids = source.gather(1, whence.clamp(0, high - 1))
        ids = torch.where(places == 0, self.letters, ids)
        ids = torch.where(places == size + 1, self.letters + 1, ids)
        ids = torch.where(places > 2 * size + 1, self.letters + 2, ids)
        return Strings.continued(ids, (places > size + 1) & (places <= 2 * size + 2))

    def _sources(
        self, batch: int, longest: int, size: Tensor, generator: torch.Generator | None
    ) -> Int[Tensor, "batch longest"]:
        device = generator.device if generator is not None else None
        drawn: Float[Tensor, "batch letters"] = torch.rand((batch, self.letters), generator=generator, device=device)
        if self.distinct:
            return drawn.argsort(dim=1)[:, :longest]
        uniform = torch.rand((batch, longest), generator=generator, device=device)
        if self.ambiguous is None:
            return (uniform * self.letters).long()
        chosen = drawn.argsort(dim=1)  # which letters a string uses: its first few
        return chosen.gather(1, (uniform * self._used(size)).long())

    def _used(self, size: Tensor) -> Tensor:
        """How many letters make the expected share of repeats nearest to `ambiguous` at each length.

        A letter of a string of n is the first of its kind with expected share k (1 - (1 - 1/k)^n) / n.
        """
        k = torch.arange(1, self.letters + 1, device=size.device, dtype=torch.float64)
        repeats = 1 - k * (1 - (1 - 1 / k) ** size) / size
        return ((repeats - (self.ambiguous or 0.0)).abs().argmin(dim=1, keepdim=True) + 1).double()
