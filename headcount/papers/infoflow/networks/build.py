"""`build`: the network that a theorem promises for a task, of a wanted shape where one is given."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from headcount.certificates.built import Built
from headcount.nets.architecture import Architecture
from headcount.papers.head_count.networks.enough_heads import enough_heads
from headcount.papers.head_count.networks.memorise import memorise
from headcount.papers.infoflow.constructible import blueprints, fitting
from headcount.papers.infoflow.networks.carried import carried_retrievals
from headcount.papers.infoflow.networks.gated import gated_second_largest
from headcount.papers.infoflow.networks.induction_head import induction_head
from headcount.papers.infoflow.networks.kth_largest import kth_largest
from headcount.papers.infoflow.networks.looked_up import looked_up
from headcount.papers.infoflow.networks.pair import opposite_pair
from headcount.papers.infoflow.networks.pair_max import pair_max
from headcount.papers.infoflow.networks.positions import position_sum, retrievals_by_position
from headcount.tasks import (
    FunctionTask,
    Induction,
    KthLargest,
    LinearMax,
    Lookups,
    OppositePair,
    PairMax,
    PositionSum,
    Task,
    Wells,
)

# The construction for each kind of task: called with (task, eps), and with radius where the task has no box of its own.
CONSTRUCTIONS: dict[type, Callable[..., Built]] = {
    Wells: enough_heads,
    LinearMax: enough_heads,
    PairMax: pair_max,
    OppositePair: opposite_pair,
    KthLargest: kth_largest,
    PositionSum: position_sum,
    Induction: induction_head,
    Lookups: looked_up,
}
# Every construction by the name that its blueprint has.
NAMED: dict[str, Callable[..., Built]] = {
    construct.__name__: construct
    for construct in (
        carried_retrievals,
        enough_heads,
        gated_second_largest,
        induction_head,
        kth_largest,
        looked_up,
        memorise,
        opposite_pair,
        pair_max,
        position_sum,
        retrievals_by_position,
    )
}


def build(
    task: Task,
    eps: float = 1e-3,
    *,
    arch: Architecture | None = None,
    radius: float | None = None,
    by: Callable[..., Built] | None = None,
) -> Built:
    """A network within `eps` of the task on the domain that its certificate names, and why.

    The domain holds at least 999 in 1000 of the task's own samples, or the certificate says the share first.

    `arch` asks for a network of at most that shape: heads, dimensions, layers and state width (feed-forwards are as
    wide as `eps` asks for). `by` is the construction (None: the one for this kind of task, or the first that fits).
    `radius` states the box [-radius, radius]^d for a task that is defined on all of R^d (None: 6).

    >>> from headcount.tasks import Wells
    >>> built = build(Wells.random(retrievals=3, token_dim=2, length=16), eps=1e-2)
    >>> built.certificate.error <= 1e-2
    True
    >>> three = LinearMax.random(retrievals=3, token_dim=2, length=16)
    >>> build(three, 0.1, arch=Architecture(((1, 8), (1, 8)), embed_dim=16)).net.shape.layers
    ((1, 2), (1, 2))
    """
    if arch is not None and by is not None:
        raise ValueError("give arch, for a network of that shape, or by, for a construction; not both")
    construct = by or (CONSTRUCTIONS.get(type(task)) if arch is None else _within(task, arch))
    if construct is None:
        known = ", ".join(c.__name__ for c in CONSTRUCTIONS)
        own = "; of your own function, say what it looks up: task(..., retrievals=[MaxOf(...), ...])"
        hint = own if isinstance(task, FunctionTask) else ""
        raise ValueError(f"no construction is known for {type(task).__name__}; there are some for: {known}{hint}")
    if radius is None:
        return construct(task, eps)
    if "radius" not in inspect.signature(construct).parameters:
        raise ValueError(f"the tokens of {type(task).__name__} have a domain of their own; it takes no radius")
    return construct(task, eps, radius=radius)


def _within(task: Task, arch: Architecture) -> Callable[..., Built] | None:
    """The construction whose network an architecture holds."""
    blueprint, known = fitting(task, arch), blueprints(task)
    if blueprint is None and known:
        sizes = (f"{b.name} with state width {b.embed_dim}{' and positions' * b.positions}" for b in known)
        requested = f"{arch.name}, state width {arch.embed_dim}, {arch.positions} position features"
        raise ValueError(f"no certified network is of at most this shape ({requested}); there are: {'; '.join(sizes)}")
    return NAMED[blueprint.construction] if blueprint else None
