"""Which shapes hold a network with a certificate: the table of constructions, without torch.

Every line is the shape of the network that a construction returns; `build` checks it, and so do the tests. A larger
shape holds the same network: heads, dimensions and layers that are not needed stay at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from headcount.nets.architecture import Architecture

Layers = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Blueprint:
    """The sizes of a certified network: what `construction` returns for a task, whatever eps.

    Feed-forwards are as wide as eps asks for; their width is no part of the shape.
    """

    construction: str
    layers: Layers
    embed_dim: int
    positions: bool

    def fits(self, arch: Architecture) -> bool:
        """Whether the network is one of this architecture, with the rest of it at zero.

        A class token that attends in the last layer alone must find there all that it attends to.

        >>> two = Blueprint("two layers", ((1, 2), (1, 1)), 7, positions=True)
        >>> two.fits(Architecture(((1, 2), (4, 1), (1, 8)), positions=1, embed_dim=8))
        True
        >>> two.fits(Architecture(((1, 1), (1, 2)), positions=1, embed_dim=8))
        False
        """
        if self.embed_dim > arch.embed_dim or (self.positions and not arch.positions):
            return False
        if not (arch.residual and arch.relu_encoder):
            return False
        if arch.class_token == "last" and arch.depth > 1:
            return len(self.layers) == 1 and _holds(arch.layers[-1], self.layers[0])
        left = iter(arch.layers)
        return all(any(_holds(there, wanted) for there in left) for wanted in self.layers)

    @property
    def name(self) -> str:
        """Every layer as heads x head_dim, first to last."""
        return "+".join(f"{heads}x{head_dim}" for heads, head_dim in self.layers)


def blueprints(task: Any) -> tuple[Blueprint, ...]:
    """Every certified network known for a task, the first the usual one; none for a bare structure.

    >>> from headcount.tasks import KthLargest
    >>> [(b.construction, b.name) for b in blueprints(KthLargest(2, length=8))]
    [('kth_largest', '1x2+1x1'), ('gated_second_largest', '6x1')]
    """
    listed = TABLE.get(own_kind(task))
    return tuple(listed(task)) if listed else ()


def own_kind(task: Any) -> str:
    """The name of a task's class where it is one of ours, else nothing; without importing it."""
    kind = type(task)
    return kind.__name__ if kind.__module__.startswith("headcount.tasks.") else ""


def fitting(task: Any, arch: Architecture) -> Blueprint | None:
    """The first certified network that an architecture holds, if any."""
    return next((blueprint for blueprint in blueprints(task) if blueprint.fits(arch)), None)


def _holds(there: tuple[int, int], wanted: tuple[int, int]) -> bool:
    return there[0] >= wanted[0] and there[1] >= wanted[1]


def _wells(task: Any) -> Iterator[Blueprint]:
    D, T, d = len(task.centres), task.length, task.token_dim
    placed = any(len(window) < T for window in task.windows or ())
    yield Blueprint("enough_heads", ((D, 2),), 2 * D, positions=placed)
    yield Blueprint("memorise", ((1, T * d),), T * d, positions=True)


def _linear_max(task: Any) -> Iterator[Blueprint]:
    D, T, d = len(task.directions), task.length, task.token_dim
    yield Blueprint("enough_heads", ((D, 2),), 2 * D, positions=False)
    yield Blueprint("carried_retrievals", ((-(-D // 3), 2),) * 2, 3 * D + 2, positions=False)
    if D <= T:
        yield Blueprint("retrievals_by_position", ((1, D),) * 2, 4 * D + 2, positions=True)
    yield Blueprint("memorise", ((1, T * d),), T * d, positions=True)


def _pair_max(task: Any) -> Iterator[Blueprint]:
    D, d = len(task.matrices), task.token_dim
    yield Blueprint("pair_max", ((D, d), (D, 1)), d + 1 + D * d + 2 * D, positions=False)


def _opposite_pair(task: Any) -> Iterator[Blueprint]:
    d = task.token_dim
    yield Blueprint("opposite_pair", ((1, d + 1), (1, 1)), 2 * d + 4, positions=False)


def _kth_largest(task: Any) -> Iterator[Blueprint]:
    """From rank 3 on, from either end, the certificate speaks only of leaders that lie apart: no line for them."""
    nearer = min(task.rank, task.length - task.rank + 1)
    if nearer > 2 or task.length < 2:
        return
    yield Blueprint("kth_largest", ((1, 2),) * (nearer - 1) + ((1, 1),), 7, positions=nearer > 1)
    if task.rank == 2:
        bits = (task.length - 1).bit_length()
        yield Blueprint("gated_second_largest", ((2 * bits, 1),), 2 + 3 * bits, positions=True)


def _position_sum(task: Any) -> Iterator[Blueprint]:
    yield Blueprint("position_sum", ((1, 1),), 4, positions=True)


def _lookups(task: Any) -> Iterator[Blueprint]:
    """One head for each look-up; a rank next to an end has one more in the layer before it, inner ranks have none."""
    kinds = [_kind(part, task.length) for part in task.parts]
    if "unknown" in kinds or not hasattr(task.outer, "partial_bounds"):
        return
    second = kinds.count("second")
    before = ((second, 2),) if second else ()
    head_dim = 2 if "extreme" in kinds else 1
    sizes = {"extreme": 2, "place": 4, "second": 7}
    placed = set(kinds) != {"extreme"}
    yield Blueprint("looked_up", (*before, (len(kinds), head_dim)), sum(sizes[kind] for kind in kinds), placed)


def _kind(part: Any, length: int) -> str:
    """What finds a look-up: one head an extreme, a place, or the second from an end; nothing is known of others."""
    rank = part.rank if own_kind(part) == "RankOf" else 1
    by_rank = {1: "extreme", 2: "second"}.get(min(rank, length - rank + 1), "unknown")
    return {"MaxOf": by_rank, "WellOf": by_rank, "RankOf": by_rank, "PlaceOf": "place"}.get(own_kind(part), "unknown")


def _induction(task: Any) -> Iterator[Blueprint]:
    V = task.vocab
    yield Blueprint("induction_head", ((1, max(2, V)), (1, V + 2)), 2 * V + 7, positions=True)


TABLE: dict[str, Callable[[Any], Iterator[Blueprint]]] = {
    "Wells": _wells,
    "LinearMax": _linear_max,
    "PairMax": _pair_max,
    "OppositePair": _opposite_pair,
    "KthLargest": _kth_largest,
    "PositionSum": _position_sum,
    "Induction": _induction,
    "Lookups": _lookups,
}
