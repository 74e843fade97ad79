"""How much memory a bank takes, so that one that does not fit can be split."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.nets import Architecture, parameters
from headcount.training.member import Member, Recipe
from headcount.training.tiles import lanes, power

__all__ = ["bank_bytes"]

EVALUATED = 4  # batches at once when nobody needs gradients


def bank_bytes(members: Sequence[Member], recipe: Recipe) -> int:
    """Bytes of a one-layer bank on the device: its data, its parameters, and what the fused kernels pass on.

    Data: every set's tokens as they are and packed, and each member's order. Parameters: values, two moments,
    gradient, best. Between kernels: one vector a head and sample, there and back, or an evaluation's.

    >>> from headcount.tasks import KthLargest
    >>> member = Member(KthLargest(rank=1, length=32), Architecture(layers=((4, 8),), width=32))
    >>> grown = [bank_bytes([member] * k, Recipe()) for k in (1, 2, 3)]
    >>> grown[2] - grown[1] == grown[1] - grown[0] < 2**22
    True
    """
    number = 8 if recipe.dtype == "float64" else 4
    archs, longest = [m.arch for m in members], max(m.task.length for m in members)
    heads, head_dim = (max(a.layers[-1][i] for a in archs) for i in (0, 1))
    width, embed_dim = max(a.width for a in archs), max(a.embed_dim for a in archs)
    features = members[0].task.token_dim + archs[0].positions
    padded = Architecture(((heads, head_dim),) * archs[0].depth, width, archs[0].positions, embed_dim)
    sets = len({(m.task, m.data_seed) for m in members})
    tokens = sets * (recipe.samples + recipe.validation) * longest
    data = tokens * (number * features + 2 * lanes(features)) + 8 * len(members) * recipe.samples
    state = 5 * number * len(members) * parameters(padded, members[0].task.token_dim).total
    passed = len(members) * EVALUATED * recipe.batch * heads * number * (3 * width + 2 * head_dim)
    shares = len(members) * number * heads * power(width) ** 2 * -(-recipe.batch // 128)
    return data + state + passed + shares
