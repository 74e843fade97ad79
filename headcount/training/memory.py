"""How much memory a bank takes, so that one that does not fit can be split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from headcount.nets import Architecture, parameters
from headcount.training.backends.tiles import lanes, power
from headcount.training.member import Member, Recipe

__all__ = ["ROOM", "Padded", "bank_bytes"]

EVALUATED = 4  # batches at once when nobody needs gradients
# What a bank may take: on a CPU its activations should stay near the cores' caches, on a GPU everything must fit.
ROOM = {"cpu": 256 * 2**20, "cuda": 48 * 2**30}


def bank_bytes(members: Sequence[Member], recipe: Recipe, kind: str) -> int:
    """Bytes of a bank: on a CPU the activations of a step, on a GPU all that is resident.

    >>> from headcount.tasks import KthLargest
    >>> member = Member(KthLargest(rank=1, length=32), Architecture(layers=((4, 8),), width=32))
    >>> grown = [bank_bytes([member] * k, Recipe(), "cuda") for k in (1, 2, 3)]
    >>> grown[2] - grown[1] == grown[1] - grown[0] < 2**22
    True
    """
    return reduce(Padded.plus, members[1:], Padded.of(members[0])).bytes(recipe, kind)


@dataclass(frozen=True)
class Padded:
    """What members are padded to when they share a bank, and what they would hold alone; grows member by member.

    `numbers` are held for one token of one sample, the largest of any member; `alone` is the sum of all members'.
    """

    count: int
    arch: Architecture
    token_dim: int
    longest: int
    numbers: int
    alone: int
    sets: frozenset[tuple[object, int]]  # task and data seed

    @classmethod
    def of(cls, member: Member) -> Padded:
        """One member: nothing is padded but its layers, all to the widest."""
        arch, numbers = member.arch, _numbers_a_token(member)
        widest = max(h for h, _ in arch.layers), max(n for _, n in arch.layers)
        arch = Architecture((widest,) * arch.depth, arch.width, arch.positions, arch.embed_dim)
        sets: frozenset[tuple[object, int]] = frozenset({(member.task, member.data_seed)})
        return cls(1, arch, member.task.token_dim, member.task.length, numbers, numbers, sets)

    def plus(self, member: Member) -> Padded:
        """The same bank with one member more."""
        one, mine = Padded.of(member), self.arch
        (heads, head_dim), (more, larger) = mine.layers[0], one.arch.layers[0]
        layers = ((max(heads, more), max(head_dim, larger)),) * mine.depth
        width, embed_dim = max(mine.width, one.arch.width), max(mine.embed_dim, one.arch.embed_dim)
        return Padded(
            self.count + 1,
            Architecture(layers, width, mine.positions, embed_dim),
            self.token_dim,
            max(self.longest, one.longest),
            max(self.numbers, one.numbers),
            self.alone + one.alone,
            self.sets | one.sets,
        )

    def wastes(self, factor: float) -> bool:
        """Whether padding makes more than `factor` times of what the members would hold alone."""
        return self.count * self.numbers > factor * self.alone

    def bytes(self, recipe: Recipe, kind: str) -> int:
        """See `bank_bytes`."""
        number = 8 if recipe.dtype == "float64" else 4
        activations = number * self.count * self.numbers * recipe.batch * self.longest
        if kind == "cpu":
            return activations
        deep = self.arch.depth > 1
        return (
            self._data(recipe, number)
            + self._state(number)
            + (activations if deep else self._between_kernels(recipe, number))
        )

    def _data(self, recipe: Recipe, number: int) -> int:
        """Every set's tokens as they are and packed, and each member's order."""
        features = self.token_dim + self.arch.positions
        tokens = len(self.sets) * (recipe.samples + recipe.validation) * self.longest
        return tokens * (number * features + 2 * lanes(features)) + 8 * self.count * recipe.samples

    def _state(self, number: int) -> int:
        """Parameters: values, two moments, gradient, best."""
        return 5 * number * self.count * parameters(self.arch, self.token_dim).total

    def _between_kernels(self, recipe: Recipe, number: int) -> int:
        """One vector a head and sample, there and back or an evaluation's, and the programs' shares of gradients."""
        (heads, head_dim), width = self.arch.layers[0], self.arch.width
        passed = EVALUATED * recipe.batch * heads * (3 * width + 2 * head_dim)
        shares = heads * power(width) ** 2 * -(-recipe.batch // 128)
        return self.count * number * (passed + shares)


def _numbers_a_token(member: Member) -> int:
    """Hidden activations, scores and states, layer by layer."""
    arch = member.arch
    deep = sum(member.task.length * heads + 4 * arch.embed_dim for heads, _ in arch.layers[:-1])
    return 2 * arch.width + 2 * arch.layers[-1][0] + deep
