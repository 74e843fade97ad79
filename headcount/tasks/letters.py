"""Tasks over letters: strings of numbers in which some letters are answers. Length is a property of the sampler."""

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
    """Strings padded to the longest: the letters, and which of them are answers that the ones before must predict."""

    ids: Int[Tensor, "batch length"]
    answers: Bool[Tensor, "batch length"]

    def to(self, device: torch.device | str) -> Strings:
        """The same on a device."""
        return Strings(self.ids.to(device), self.answers.to(device))


@runtime_checkable
class LetterTask(Protocol):
    """A frozen value that draws strings of the lengths asked for.

    `vocab` counts every letter with its marks (begin, separator, end); `longest(n)` is the size of a string of length n
    with all marks and answers. Every string begins with a letter that is no answer.
    """

    @property
    def vocab(self) -> int: ...
    def longest(self, length: int) -> int: ...
    def strings(self, batch: int, lengths: Lengths, *, generator: torch.Generator | None = None) -> Strings: ...
