"""Tasks over letters: strings of numbers, and what is to be said where. Length is a property of the sampler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from headcount.structure import Structure

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
        targets, loss_mask = ids.roll(-1, dims=1), answers.roll(-1, dims=1)
        loss_mask[:, -1] = False
        return cls(ids, targets, loss_mask)


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


@dataclass(frozen=True)
class OnLengths:
    """A letter task to be learnt on strings of the lengths `train` and tested on others.

    With `offsets`, absolute places begin anywhere they fit in training, and at the first in tests. It answers as an
    ordinary task does: its length is the longest that is trained on, its tokens are letters.

    >>> from headcount.tasks import Neighbour
    >>> task = OnLengths(Neighbour("right", "only"), (4, 12), ((13, 24),))
    >>> task.length, task.token_dim, task.longest
    (12, 8, 29)
    """

    task: LetterTask
    train: Lengths
    tests: tuple[Lengths, ...] = ()
    offsets: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "train", _range(self.train))
        object.__setattr__(self, "tests", tuple(_range(lengths) for lengths in self.tests))

    @property
    def ranges(self) -> tuple[Lengths, ...]:
        """All ranges of lengths, the one to train on first."""
        return (self.train, *self.tests)

    @property
    def length(self) -> int:
        """The longest that is trained on."""
        return self.train[1]

    @property
    def token_dim(self) -> int:
        """Letters with their marks."""
        return self.task.vocab

    @property
    def longest(self) -> int:
        """Places of the longest string of any range."""
        return max(self.task.longest(high) for _, high in self.ranges)

    @property
    def name(self) -> str:
        """That of the letter task."""
        return getattr(self.task, "name", type(self.task).__name__)

    @property
    def structure(self) -> Structure:
        """What the letter task looks up."""
        return self.task.structure  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def domain(self) -> str:
        """Where the letter task is defined."""
        low, high = self.train
        return f"strings of {low} to {high} letters"


def _range(lengths: Lengths) -> Lengths:
    low, high = (int(n) for n in lengths)
    if not 1 <= low <= high:
        raise ValueError(f"lengths must be (smallest, largest) with 1 <= smallest <= largest, got {tuple(lengths)}")
    return low, high
