"""`advise`: a task and a wanted error in, architectures ranked by predicted parameters out, and those that cannot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from headcount.nets import Architecture, parameters
from headcount.papers.infoflow.analysis import Cost, Found, analyse, impossible, is_cheap
from headcount.papers.infoflow.predict import limiting, predict, structure_of
from headcount.papers.infoflow.prediction import Prediction
from headcount.structure import Structure

__all__ = ["Advice", "Choice", "Frontier", "advise"]

POSITIONS = 3  # t/T and one turn of the circle: enough to name every place
HEAD_DIMS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Choice:
    """An architecture with its predicted price: `parameters` in all when the feed-forwards are eps^-exponent wide."""

    architecture: Architecture
    prediction: Prediction
    parameters: int
    reason: str

    def as_row(self) -> dict[str, Any]:
        """Ready for a table or JSON."""
        arch = self.architecture
        return {
            "layers": arch.name,
            "positions": arch.positions,
            "embed_dim": arch.embed_dim,
            "width": arch.width,
            "parameters": self.parameters,
            "exponent": self.prediction.exponent if self.prediction.feasible else None,
            "verdict": self.prediction.verdict,
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Frontier:
    """At one depth, with or without positions: the least heads that are cheap (None: none are), and why fewer fail."""

    layers: int
    positions: bool
    heads: int | None
    reason: str


@dataclass(frozen=True)
class Advice:
    """Ranked choices, the best first, and for each depth where cheap begins."""

    structure: Structure
    eps: float
    ranked: tuple[Choice, ...]
    frontier: tuple[Frontier, ...]

    @property
    def best(self) -> Choice:
        return self.ranked[0]

    def as_row(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "eps": self.eps,
            "ranked": [choice.as_row() for choice in self.ranked],
            "frontier": [vars(f) for f in self.frontier],
            "best": self.best.prediction.as_row(),
            "structure": self.structure.to_json(),
        }


def advise(task: Any, eps: float = 1e-2, *, max_layers: int = 4, max_heads: int = 8, keep: int = 8) -> Advice:
    """Architectures for a task, the fewest predicted parameters for error `eps` first.

    For every depth, with and without positions and for every head dimension, the least heads that are cheap are kept,
    without heads and layers the plan does not use. The price is that of feed-forwards eps^-exponent wide: an order of
    magnitude, good for ranking. Where nothing is cheap the smallest exponents are ranked instead.

    >>> from headcount.structure import Retrieval
    >>> best = advise(Structure(64, 4, (Retrieval("pairs", count=2, order=2),)), eps=1e-2, max_layers=2).best
    >>> best.architecture.name, best.prediction.cheap
    ('2x4+2x4', True)
    """
    structure = structure_of(task)
    _check(eps, max_layers, max_heads, keep)
    trimmed = dict.fromkeys(_trimmed(structure, a) for a in _cheap_shapes(structure, max_layers, max_heads))
    costs = dict(_narrowed(structure, a) for a in trimmed)
    if not costs:
        costs = {a: _cost(structure, a) for a in _least_costly(structure, max_layers, max_heads)}
    priced = sorted((_priced(structure, a, costs[a], eps) for a in _distinct(costs)), key=_rank)[:keep]
    choices = [Choice(arch, predict(structure, arch), parameters, "") for arch, _, parameters in priced]
    reasoned = [replace(c, reason=_reason(c, choices[0])) for c in choices]
    return Advice(structure, eps, tuple(reasoned), tuple(_frontier(structure, max_layers, max_heads)))


def _check(eps: float, max_layers: int, max_heads: int, keep: int) -> None:
    if not 0 < eps < 1:
        raise ValueError(f"eps must lie between 0 and 1, got {eps}")
    for name, value in (("max_layers", max_layers), ("max_heads", max_heads), ("keep", keep)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def _distinct(shapes: Iterable[Architecture]) -> list[Architecture]:
    """Each shape once, and position features only where they change something."""
    unique = dict.fromkeys(shapes)
    return [a for a in unique if not a.positions or replace(a, positions=0) not in unique]


def _rank(priced: tuple[Architecture, bool, int]) -> tuple[bool, float, int, int]:
    arch, cheap, parameters = priced
    return (not cheap, _log(parameters), arch.depth, sum(h for h, _ in arch.layers))


def _log(parameters: int) -> float:
    return math.log10(parameters) if parameters else math.inf


def _cheap_shapes(structure: Structure, max_layers: int, max_heads: int) -> Iterator[Architecture]:
    for head_dim, column in _staircase(structure, _head_dims(structure), max_layers, max_heads):
        for (depth, positions), heads in column.items():
            if heads:
                yield _uniform(structure, depth, heads, head_dim, positions)


def _staircase(
    structure: Structure, head_dims: list[int], max_layers: int, max_heads: int
) -> Iterator[tuple[int, dict[tuple[int, int], int]]]:
    """For each head dimension, rising, the least heads that are cheap at every (depth, positions), or 0.

    Layers, positions and dimensions never hurt, so each search begins at what the shape one smaller needs.
    """
    smaller: dict[tuple[int, int], int] = {}
    for head_dim in head_dims:
        column: dict[tuple[int, int], int] = {}
        for depth in range(1, max_layers + 1):
            for positions in (0, POSITIONS):
                known = (column.get((depth - 1, positions)), column.get((depth, 0)), smaller.get((depth, positions)))
                enough = min((heads for heads in known if heads), default=0)
                column[depth, positions] = _least_heads(structure, depth, head_dim, positions, enough or max_heads)
        smaller = column
        yield head_dim, column


def _head_dims(structure: Structure) -> list[int]:
    return sorted({*HEAD_DIMS, structure.token_dim, min(64, max(1, structure.count))})


def _least_heads(structure: Structure, depth: int, head_dim: int, positions: int, most: int) -> int:
    """The least heads a layer that are cheap, or 0; more heads never hurt."""
    low, high = 1, most
    if not is_cheap(structure, _uniform(structure, depth, most, head_dim, positions)):
        return 0
    while low < high:
        middle = (low + high) // 2
        cheap = is_cheap(structure, _uniform(structure, depth, middle, head_dim, positions))
        low, high = (low, middle) if cheap else (middle + 1, high)
    return low


def _uniform(structure: Structure, depth: int, heads: int, head_dim: int, positions: int) -> Architecture:
    """Equal layers, with a state wide enough for a token and what every head may bring it."""
    hold = structure.token_dim * (1 + heads)
    return Architecture(((heads, head_dim),) * depth, positions=positions, embed_dim=max(heads * head_dim, hold))


def _trimmed(structure: Structure, arch: Architecture) -> Architecture:
    """The shape without the heads and layers that its plan leaves idle."""
    found = analyse(structure, arch)
    if found.gathered:
        return arch
    used = [max(1, _used(jobs, found)) for jobs in found.layers]
    depth = max(l for l, jobs in enumerate(found.layers, start=1) if jobs)
    layers = tuple((h, n) for h, (_, n) in zip(used[:depth], arch.layers, strict=False))
    smaller = replace(arch, layers=layers)
    return smaller if is_cheap(structure, smaller) else arch


def _narrowed(structure: Structure, arch: Architecture) -> tuple[Architecture, Cost]:
    """The cheap shape with the narrowest state at its cost, which is the same then."""
    low, high = min(arch.embed_dim, max(h * n for h, n in arch.layers)), arch.embed_dim
    cost = analyse(structure, arch).cost
    while low < high:
        middle = (low + high) // 2
        enough = is_cheap(structure, replace(arch, embed_dim=middle), cost.exponent)
        low, high = (low, middle) if enough else (middle + 1, high)
    return replace(arch, embed_dim=low), cost


def _cost(structure: Structure, arch: Architecture) -> Cost | None:
    """What the shape costs, or None where it cannot."""
    return None if impossible(structure, arch) else analyse(structure, arch).cost


def _used(jobs: Any, found: Found) -> int:
    at = [(job, found.demands[job.demand].acts[job.act].at if job.demand >= 0 else "cls") for job in jobs]
    tokens = sum(job.heads for job, place in at if place != "cls" or job.way == "routed")
    return max(tokens, sum(job.heads for job, place in at if place != "tokens" and job.way != "routed"))


def _least_costly(structure: Structure, max_layers: int, max_heads: int) -> Iterator[Architecture]:
    for positions in (0, POSITIONS):
        for head_dim in _head_dims(structure):
            yield _uniform(structure, max_layers, max_heads, head_dim, positions)


def _priced(structure: Structure, arch: Architecture, cost: Cost | None, eps: float) -> tuple[Architecture, bool, int]:
    """(the shape with feed-forwards eps^-exponent wide, whether it is cheap, its parameters; 0: it cannot)."""
    if cost is None:
        return arch, False, 0
    wide = replace(arch, width=_power(1 / eps, float(cost.exponent)))
    return wide, cost.cheap, parameters(wide, structure.token_dim).total


def _power(base: float, exponent: float) -> int:
    """base^exponent as a whole number, however large."""
    digits = exponent * math.log10(base)
    return max(1, math.ceil(10**digits - 1e-9)) if digits < 15 else 10 ** round(digits)


def _reason(choice: Choice, best: Choice) -> str:
    if not choice.prediction.cheap:
        return choice.prediction.limiting
    if choice is best:
        return choice.prediction.limiting
    ratio = choice.parameters / best.parameters
    mine, other = choice.architecture, best.architecture
    causes = [
        text
        for text, holds in (
            ("a wider state", mine.embed_dim > other.embed_dim),
            ("more layers", mine.depth > other.depth),
            ("a larger exponent", choice.prediction.exponent > best.prediction.exponent),
            ("position features", mine.positions > other.positions),
        )
        if holds
    ]
    return f"{ratio:.3g} x the parameters: {', '.join(causes) or 'larger heads'}"


def _frontier(structure: Structure, max_layers: int, max_heads: int) -> Iterator[Frontier]:
    head_dim = max(16, structure.token_dim, min(64, structure.count))
    ((_, column),) = _staircase(structure, [head_dim], max_layers, max_heads)
    for (depth, positions), heads in column.items():
        below = heads - 1 if heads else max_heads
        why = "nothing smaller is possible" if below == 0 else _why(structure, depth, below, head_dim, positions)
        yield Frontier(depth, bool(positions), heads or None, why)


def _why(structure: Structure, depth: int, heads: int, head_dim: int, positions: int) -> str:
    arch = _uniform(structure, depth, heads, head_dim, positions)
    return impossible(structure, arch) or limiting(analyse(structure, arch), structure, arch)
