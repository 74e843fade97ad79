"""How much memory a bank takes, so that one that does not fit can be split."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.nets import Architecture, parameters
from headcount.training.member import Member, Recipe
from headcount.training.tiles import lanes, power

__all__ = ["ROOM", "bank_bytes", "numbers_a_token"]

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
    if kind == "cpu":
        return _activations(members, recipe)
    deep = members[0].arch.depth > 1
    return (
        _data(members, recipe) + _state(members, recipe) + (_activations if deep else _between_kernels)(members, recipe)
    )


def numbers_a_token(member: Member) -> int:
    """Numbers held for one token of one sample: hidden activations, scores and states, layer by layer."""
    arch = member.arch
    deep = sum(member.task.length * heads + 4 * arch.embed_dim for heads, _ in arch.layers[:-1])
    return 2 * arch.width + 2 * arch.layers[-1][0] + deep


def _activations(members: Sequence[Member], recipe: Recipe) -> int:
    longest = max(m.task.length for m in members)
    return len(members) * max(map(numbers_a_token, members)) * recipe.batch * longest * _number(recipe)


def _data(members: Sequence[Member], recipe: Recipe) -> int:
    """Every set's tokens as they are and packed, and each member's order."""
    longest = max(m.task.length for m in members)
    features = members[0].task.token_dim + members[0].arch.positions
    sets = len({(m.task, m.data_seed) for m in members})
    tokens = sets * (recipe.samples + recipe.validation) * longest
    return tokens * (_number(recipe) * features + 2 * lanes(features)) + 8 * len(members) * recipe.samples


def _state(members: Sequence[Member], recipe: Recipe) -> int:
    """Parameters: values, two moments, gradient, best; all members padded to one shape."""
    archs = [m.arch for m in members]
    heads, head_dim = (max(layer[i] for a in archs for layer in a.layers) for i in (0, 1))
    width, embed_dim = max(a.width for a in archs), max(a.embed_dim for a in archs)
    padded = Architecture(((heads, head_dim),) * archs[0].depth, width, archs[0].positions, embed_dim)
    return 5 * _number(recipe) * len(members) * parameters(padded, members[0].task.token_dim).total


def _between_kernels(members: Sequence[Member], recipe: Recipe) -> int:
    """One vector a head and sample, there and back or an evaluation's, and the programs' shares of the gradients."""
    heads, head_dim = (max(m.arch.layers[-1][i] for m in members) for i in (0, 1))
    width = max(m.arch.width for m in members)
    passed = EVALUATED * recipe.batch * heads * (3 * width + 2 * head_dim)
    shares = heads * power(width) ** 2 * -(-recipe.batch // 128)
    return len(members) * _number(recipe) * (passed + shares)


def _number(recipe: Recipe) -> int:
    return 8 if recipe.dtype == "float64" else 4
