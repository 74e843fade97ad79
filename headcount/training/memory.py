"""How much memory a bank takes: data, parameters and activations. One that does not fit is split or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch

from headcount.kernels.tiles import lanes, power
from headcount.limits import memory_limit
from headcount.nets import Architecture, parameters
from headcount.nets.causal import DecoderShape
from headcount.numerals import spoken_bytes
from headcount.training.member import Given, Member, Recipe
from headcount.training.strings import CHUNK

EVALUATED = 4  # batches at once when nobody needs gradients
# What a bank may take: on a CPU what a step touches should stay near the cores' caches, on a GPU everything must fit.
MOST = {"cpu": 256 * 2**20, "cuda": 48 * 2**30}


@dataclass(frozen=True)
class BankMemory:
    """Bytes of a bank by what they hold. `drawing` is there before training only: the samples on their way."""

    data: int
    drawing: int
    state: int
    activations: int

    @property
    def total(self) -> int:
        """The peak: the samples stay, and either more of them are on their way or the bank is in training.

        >>> BankMemory(data=1, drawing=5, state=2, activations=2).total
        6
        """
        return self.data + max(self.drawing, self.state + self.activations)

    def __str__(self) -> str:
        rest, what = max((self.drawing, "to draw it"), (self.state + self.activations, "to train"))
        return f"{spoken_bytes(self.total)} ({spoken_bytes(self.data)} for data, {spoken_bytes(rest)} {what})"


def bank_memory(members: Sequence[Member], recipe: Recipe, kind: str) -> BankMemory:
    """What a bank of these members holds on a kind of device.

    >>> from headcount.tasks import KthLargest
    >>> member = Member(KthLargest(rank=1, length=32), Architecture(layers=((4, 8),), width=32))
    >>> few, many = (bank_memory([member], Recipe(samples=n), "cpu").data for n in (1000, 2000))
    >>> many - few == 1000 * (4 * 32 + 8)  # a number of 4 bytes per token, and the place of the sample in the order
    True
    """
    return reduce(Padded.plus, members[1:], Padded.of(members[0])).memory(recipe, kind)


def capacity(device: torch.device | str) -> int:
    """Bytes that a device has in all: a GPU's own, or the machine's memory as far as this process may use it."""
    if torch.device(device).type == "cuda":
        return min(MOST["cuda"], torch.cuda.get_device_properties(device).total_memory)
    return memory_limit()[0]


def refuse_what_cannot_fit(members: Sequence[Member], recipe: Recipe, device: torch.device | str) -> None:
    """Refuse, before anything is trained, the first network that alone takes more memory than there is."""
    there, kind = capacity(device), torch.device(device).type
    for task, net in dict.fromkeys((member.task, member.net) for member in members):
        needed = Padded.of(Member(task, net)).memory(recipe, kind)
        if needed.total > there:
            raise ValueError(
                f"{net.name} at length {task.length} takes {needed}, and {device} has {spoken_bytes(there)}; "
                "take fewer samples, a smaller batch or a shorter length"
            )


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
    letters: int = 0  # parameters of a network over letters, whose strings are drawn step by step

    @classmethod
    def of(cls, member: Member) -> Padded:
        """One member: nothing is padded but its layers, all to the widest."""
        shape, numbers, letters = member.shape, _numbers_per_token(member), 0
        widest = max(h for h, _ in shape.layers), max(n for _, n in shape.layers)
        known = member.row(Recipe())
        sizes = (known["width"], known["positions"], known["embed_dim"])
        arch = Architecture((widest,) * len(shape.layers), *sizes)
        sets: frozenset[tuple[object, int]] = frozenset({(member.task, member.data_seed)})
        if not isinstance(member.net, Architecture):
            letters = known["parameters"]
        return cls(1, arch, member.task.token_dim, member.task.length, numbers, numbers, sets, letters)

    def plus(self, member: Member) -> Padded:
        """The same bank with one member more."""
        added, arch = Padded.of(member), self.arch
        (heads, head_dim), (more, larger) = arch.layers[0], added.arch.layers[0]
        layers = ((max(heads, more), max(head_dim, larger)),) * arch.depth
        width, embed_dim = max(arch.width, added.arch.width), max(arch.embed_dim, added.arch.embed_dim)
        return Padded(
            self.count + 1,
            Architecture(layers, width, arch.positions, embed_dim),
            self.token_dim,
            max(self.longest, added.longest),
            max(self.numbers, added.numbers),
            self.alone + added.alone,
            self.sets | added.sets,
            max(self.letters, added.letters),
        )

    def wastes(self, factor: float) -> bool:
        """Whether padding makes more than `factor` times of what the members would hold alone."""
        return self.count * self.numbers > factor * self.alone

    def touched(self, recipe: Recipe) -> int:
        """Bytes that a step goes over again and again: what should stay near the cores."""
        return _bytes_per_number(recipe) * self.count * self.numbers * recipe.batch * self.longest

    def memory(self, recipe: Recipe, kind: str) -> BankMemory:
        """See `bank_memory`."""
        number = _bytes_per_number(recipe)
        if self.letters:
            strings = 17 * CHUNK * self.count * recipe.batch * self.longest  # a letter, its answer, whether it counts
            return BankMemory(strings, 0, 5 * number * self.count * self.letters, self.touched(recipe))
        if kind == "cpu":
            return BankMemory(
                self._samples(recipe, number),
                self._drawing(recipe, number),
                self._state(number),
                self._activations(recipe, number),
            )
        deep = self.arch.depth > 1
        activations = self.touched(recipe) if deep else self._between_kernels(recipe, number)
        return BankMemory(self._data(recipe, number), 0, self._state(number), activations)

    @property
    def _features(self) -> int:
        return self.token_dim + self.arch.positions

    def _tokens(self, recipe: Recipe) -> int:
        return len(self.sets) * (recipe.samples + recipe.validation) * self.longest

    def _samples(self, recipe: Recipe, number: int) -> int:
        """Every set's tokens, and each member's order."""
        return number * self._features * self._tokens(recipe) + 8 * self.count * recipe.samples

    def _drawing(self, recipe: Recipe, number: int) -> int:
        """Tokens as they come, with their positions, and stacked: in float64 where they are drawn."""
        from_data = any(isinstance(task, Given) for task, _ in self.sets)
        return (number if from_data else 8) * (self.token_dim + 2 * self._features) * self._tokens(recipe)

    def _activations(self, recipe: Recipe, number: int) -> int:
        """The larger of a step with what its gradient needs and an evaluation of several batches without.

        Per token: hidden units and scores, and in every layer but the last the scores against all tokens. How often
        each is held was read off measured peaks (tests/test_training_memory.py).
        """
        (heads, _), arch, deep = self.arch.layers[0], self.arch, self.arch.depth - 1
        scores, state = self.longest * heads, arch.embed_dim
        trained = self._features + 4 * arch.width + 6 * heads + deep * (4 * scores + 12 * state)
        trained += 3 * scores if deep else 0
        evaluated = self._features + 5 * arch.width // 2 + 4 * heads + (2 * scores + 4 * state if deep else 0)
        samples = max(recipe.batch * trained, min(EVALUATED * recipe.batch, recipe.validation) * evaluated)
        return number * self.count * self.longest * samples

    def _data(self, recipe: Recipe, number: int) -> int:
        """The samples on a GPU: every token also packed."""
        return self._samples(recipe, number) + 2 * lanes(self._features) * self._tokens(recipe)

    def _state(self, number: int) -> int:
        """Parameters: values, two moments, gradient, best."""
        return 5 * number * self.count * parameters(self.arch, self.token_dim).total

    def _between_kernels(self, recipe: Recipe, number: int) -> int:
        """One vector per head and sample, there and back or an evaluation's, and the programs' partial gradients."""
        (heads, head_dim), width = self.arch.layers[0], self.arch.width
        passed = EVALUATED * recipe.batch * heads * (3 * width + 2 * head_dim)
        partials = heads * power(width) ** 2 * -(-recipe.batch // 128)
        return self.count * number * (passed + partials)


def _bytes_per_number(recipe: Recipe) -> int:
    return 8 if recipe.dtype == "float64" else 4


def _numbers_per_token(member: Member) -> int:
    """Hidden activations, scores and states, layer by layer; of a decoder, those of every layer and the logits."""
    if isinstance(member.net, DecoderShape):
        net = member.net
        layers = sum(2 * member.task.length * heads + 4 * heads * dim for heads, dim in net.layers)
        return layers + net.depth * (6 * net.embed_dim + 2 * net.width) + 2 * net.vocab
    arch = member.arch
    deep = sum(member.task.length * heads + 4 * arch.embed_dim for heads, _ in arch.layers[:-1])
    return 2 * arch.width + 2 * arch.layers[-1][0] + deep
