"""The alternation languages: runs of a and b, of which a word of L_k has k. A question about depth."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from headcount.results.bound import Bound
from headcount.sources import Source
from headcount.tasks.bigram_programs import last_block
from headcount.tasks.counting import AllOf, AtLeast, Before, CountingProgram, Is, LengthVerdict, Negation
from headcount.tasks.letters import Lengths, Strings

SOURCE = Source("yang2025kneedeep", "predicting alternation languages")


@dataclass(frozen=True)
class Alternation:
    """`BOS word`: after every letter of a word of L_k, is the word so far in L_k?

    L_k is k non-empty blocks of a, b, a, ...; a word's switches are drawn uniformly without repeats, and the answer
    is yes from the first letter of block k on. Letters are a = 0, b = 1; answers no = 2, yes = 3; BOS = 4.
    Source: Yang, Cadilhac, Chiang 2025 (Knee-Deep in C-RASP): predicting L_k takes depth k - 2 exactly.

    >>> strings = Alternation(blocks=3).strings(1, (4, 4), generator=torch.Generator().manual_seed(1))
    >>> strings.ids[0].tolist(), strings.targets[0].tolist()
    ([4, 0, 1, 1, 0], [4, 2, 2, 2, 3])
    """

    blocks: int

    vocab = 5

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise ValueError(f"blocks must be at least 1, got {self.blocks}")

    @property
    def depth(self) -> Bound:
        """How deep counts must stand inside counts to predict L_k, and layers in a network of fixed precision.

        Where nothing looks at the place before: with `before` a count of the changes of letter does every L_k at
        depth 1 (`by_changes`).

        >>> Alternation(5).depth.value
        3
        """
        words = "nested counts of a program, which are layers of a network that rounds to fixed precision"
        only = ("no condition looks at the place before, and there are no positions",)
        sizes = {"blocks": self.blocks}
        return Bound("depth", max(0, self.blocks - 2), "exact", SOURCE, only, meaning=words, sizes=sizes)

    @property
    def length_verdict(self) -> LengthVerdict:
        """Proved, for networks as deep as the program."""
        return LengthVerdict(True, SOURCE, f"a counting program of depth {self.depth.value:g} predicts it")

    def program(self) -> CountingProgram:
        """The counting program of the task, of depth k - 2."""
        return last_block(self.blocks)

    def by_changes(self) -> CountingProgram:
        """The same answers at depth 1, by counting changes of letter: it looks at the place before.

        >>> Alternation(9).by_changes().depth
        1
        """
        up, down = AllOf((Is(1), Before(Is(0)))), AllOf((Is(0), Before(Is(1))))
        enough = AtLeast(((1, up), (1, down)), self.blocks - 1)
        return CountingProgram(((2, Negation(enough)), (3, enough)))

    def longest(self, length: int) -> int:
        """A begin mark and the word."""
        return length + 1

    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings:
        """Words of uniform length with all k blocks, and their answers."""
        low, high = max(lengths[0], self.blocks), lengths[1]
        if low > high:
            raise ValueError(f"a word of {self.blocks} blocks has at least {low} letters, got lengths up to {high}")
        device = generator.device if generator is not None else None
        size = torch.randint(low, high + 1, (batch, 1), generator=generator, device=device)
        places = torch.arange(high, device=size.device).expand(batch, -1)
        # A switch stands before place 1, 2, ..., size - 1: the k - 1 smallest of random numbers there.
        drawn = torch.rand((batch, high), generator=generator, device=device)
        drawn = torch.where((places > 0) & (places < size), drawn, 2.0)
        switches = torch.zeros((batch, high), dtype=torch.int64, device=size.device)
        switches.scatter_(1, drawn.argsort(dim=1)[:, : self.blocks - 1], 1)
        block = switches.cumsum(dim=1)
        letters, replies = block % 2, 2 + (block == self.blocks - 1).long()
        ids = torch.full((batch, self.longest(high)), 4, dtype=torch.int64, device=size.device)
        targets, loss_mask = ids.clone(), torch.zeros_like(ids, dtype=torch.bool)
        ids[:, 1:], targets[:, 1:], loss_mask[:, 1:] = letters, replies, places < size
        return Strings(ids, targets, loss_mask)
