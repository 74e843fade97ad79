"""`build`: the network that a theorem promises for a task."""

from __future__ import annotations

from collections.abc import Callable

from headcount.certificates.built import Built
from headcount.papers.head_count.networks.enough_heads import enough_heads
from headcount.papers.infoflow.networks.induction_head import induction_head
from headcount.papers.infoflow.networks.kth_largest import kth_largest
from headcount.papers.infoflow.networks.pair import opposite_pair
from headcount.papers.infoflow.networks.pair_max import pair_max
from headcount.papers.infoflow.networks.positions import position_sum
from headcount.tasks import Induction, KthLargest, LinearMax, OppositePair, PairMax, PositionSum, Task, Wells

__all__ = ["CONSTRUCTIONS", "build"]

# The construction for each kind of task: called with (task, eps), and with radius where the task has no box of its own.
CONSTRUCTIONS: dict[type, Callable[..., Built]] = {
    Wells: enough_heads,
    LinearMax: enough_heads,
    PairMax: pair_max,
    OppositePair: opposite_pair,
    KthLargest: kth_largest,
    PositionSum: position_sum,
    Induction: induction_head,
}


def build(
    task: Task, eps: float = 1e-3, *, radius: float | None = None, by: Callable[..., Built] | None = None
) -> Built:
    """A network within `eps` of the task on its whole domain, with the certificate that says why.

    `by` is the construction (None: the one for this kind of task). `radius` states the box [-radius, radius]^d for
    a task that is defined on all of R^d (None: 6).

    >>> from headcount.tasks import Wells
    >>> built = build(Wells.random(retrievals=3, token_dim=2, length=16), eps=1e-2)
    >>> built.certificate.error <= 1e-2
    True
    """
    construct = by or CONSTRUCTIONS.get(type(task))
    if construct is None:
        known = ", ".join(c.__name__ for c in CONSTRUCTIONS)
        raise ValueError(f"no construction is known for {type(task).__name__}; there are some for: {known}")
    return construct(task, eps) if radius is None else construct(task, eps, radius=radius)
