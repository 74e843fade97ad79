"""How to divide attention over the layers of a model trained from scratch, at equal parameters. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.papers.allocation.lags import allocate
from headcount.sources import Checked, Source, implements


@dataclass(frozen=True)
class LayerSchedule:
    """(heads, head_dim) of every layer, first to last.

    >>> LayerSchedule("uniform", ((4, 8), (4, 8))).dims
    (32, 32)
    """

    name: str
    layers: tuple[tuple[int, int], ...]

    @property
    def dims(self) -> tuple[int, ...]:
        """heads * head_dim of every layer: attention parameters are 4 embed_dim times their sum."""
        return tuple(h * n for h, n in self.layers)


def uniform(layers: int, heads: int, head_dim: int) -> LayerSchedule:
    """The same heads in every layer."""
    _check(layers, heads, head_dim)
    return LayerSchedule("uniform", ((heads, head_dim),) * layers)


def ramp(layers: int, heads: int, head_dim: int, *, low: float = 0.5) -> LayerSchedule:
    """Heads growing linearly from `low` of the mean in the first layer to 2 - `low` in the last, as in OpenELM.

    >>> ramp(3, 8, 16).layers
    ((4, 16), (8, 16), (12, 16))
    """
    _check(layers, heads, head_dim)
    if not 0 < low <= 1:
        raise ValueError(f"low must be above 0 and at most 1, got {low:g}")
    at = [low + (2 - 2 * low) * i / max(layers - 1, 1) for i in range(layers)] if layers > 1 else [1.0]
    return LayerSchedule(
        "linear ramp", tuple((n, head_dim) for n in _integers([a * heads for a in at], layers * heads))
    )


@implements(
    Source("yu2025allocation", "Section 6.2 (early layers wide, later layers narrow)"),
    test="tests/test_allocation_schedules.py::test_every_schedule_spends_the_same",
    status="derived",
    hypotheses=(Checked("every lag kept in the early layers"),),
)
def by_bound(
    layers: int, heads: int, head_dim: int, *, early: int = 2, lags: int = 3, narrow: float = 0.5
) -> LayerSchedule:
    """Early layers wide, with the heads that the bound gives `lags` equal lags; later layers of narrow heads.

    The later layers keep the head count at head_dim * narrow, since saturation says that is what they can spare; what
    they give up goes to the first `early` layers, as heads of full dimension: the optimum of `allocate`. The lags must
    all be kept there, each with the m + 1 heads that lag m needs.
    Departs: the paper names no boundary between early and later layers and no schedule; both are arguments here.

    >>> by_bound(6, 8, 16).layers
    ((16, 16), (16, 16), (8, 8), (8, 8), (8, 8), (8, 8))
    """
    _check(layers, heads, head_dim)
    if not 0 < early < layers:
        raise ValueError(f"early must lie between 1 and {layers - 1} of {layers} layers, got {early}")
    small = max(1, round(head_dim * narrow))
    total = layers * heads * head_dim - (layers - early) * heads * small
    if total % (early * head_dim):
        raise ValueError(
            f"{total} dimensions do not make whole heads of {head_dim} in {early} layers; change narrow or early"
        )
    wide = total // (early * head_dim)
    plan = allocate([1.0] * lags, token_dim=head_dim, budget=wide * head_dim)
    if plan.starved or plan.lags < lags:
        raise ValueError(f"{wide} heads of {head_dim} are too few to read {lags} lags; take fewer lags or early layers")
    return LayerSchedule("early wide, late narrow", ((wide, head_dim),) * early + ((heads, small),) * (layers - early))


def _check(layers: int, heads: int, head_dim: int) -> None:
    if min(layers, heads, head_dim) < 1:
        raise ValueError(f"layers, heads and head_dim must be at least 1, got {layers}, {heads} and {head_dim}")


def _integers(wanted: Sequence[float], total: int) -> list[int]:
    """Whole numbers of at least 1 with the given sum, nearest to the wanted ones (largest remainders first)."""
    counts = [max(1, int(w + 1e-9)) for w in wanted]
    order = sorted(range(len(wanted)), key=lambda i: counts[i] - wanted[i])
    at = 0
    while sum(counts) < total:
        counts[order[at % len(order)]] += 1
        at += 1
    return counts
