"""Tasks over letters: strings of numbers, and what is to be said where. Length is a property of the sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["LetterTask", "Lengths", "Strings"]

Lengths = tuple[int, int]
"""The smallest and the largest length to draw, both included."""


@dataclass(frozen=True, eq=False)
class Strings:
    """Strings padded to the longest: the letters read, the letter to say after each place, and where that is judged."""

    ids: Int[Tensor, "batch length"]
    targets: Int[Tensor, "batch length"]
    judged: Bool[Tensor, "batch length"]

    @classmethod
    def continued(cls, ids: Int[Tensor, "batch length"], answers: Bool[Tensor, "batch length"]) -> Strings:
        """Strings in which some letters are answers: each is to be said at the place before it.

        >>> Strings.continued(torch.tensor([[7, 1, 2]]), torch.tensor([[False, False, True]])).judged.tolist()
        [[False, True, False]]
        """
        targets, judged = ids.roll(-1, dims=1), answers.roll(-1, dims=1)
        judged[:, -1] = False
        return cls(ids, targets, judged)


@runtime_checkable
class LetterTask(Protocol):
    """A frozen value that draws strings of the lengths asked for.

    `vocab` counts every letter with its marks (begin, separator, end); `longest(n)` is the size of a string of length n
    with all its marks and answers.
    """

    @property
    def vocab(self) -> int: ...
    def longest(self, length: int) -> int: ...
    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings: ...
