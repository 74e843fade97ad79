"""`advise`: a task and a wanted error in, architectures ranked by predicted parameters out, and those that cannot."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headcount.nets.architecture import Architecture, parameters
from headcount.notebook import html_table, within_columns
from headcount.numerals import magnitude
from headcount.papers.infoflow.analysis import analyse, is_cheap, unplaced
from headcount.papers.infoflow.constructible import blueprints
from headcount.papers.infoflow.predict import POSITIONS, cheap_exponent, cheap_shape, limiting, predict, structure_of
from headcount.papers.infoflow.prediction import Limit, Prediction
from headcount.papers.infoflow.schedule import Job
from headcount.refusals import at_least_one
from headcount.results import Claim
from headcount.structure import Structure

HEAD_DIMS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Choice:
    """An architecture with its predicted price: `parameters` in all when the feed-forwards are eps^-exponent wide."""

    architecture: Architecture
    prediction: Prediction
    parameters: int
    reason: str

    def __str__(self) -> str:
        price = f"{magnitude(self.parameters)} parameters" if self.parameters else "beyond any price"
        return f"{self.architecture.name}: {self.prediction.verdict} ({self.prediction.warrant}), {price}"

    def as_row(self) -> dict[str, object]:
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
            "warrant": self.prediction.warrant,
            "construction": getattr(self.prediction.construction, "construction", None),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Frontier:
    """At one depth, with or without positions: the least heads that are cheap (None: none are), and why fewer fail."""

    layers: int
    positions: bool
    heads: int | None
    reason: str


@dataclass(frozen=True, repr=False)
class Advice:
    """Ranked choices, the best first, and for each depth where cheap begins with heads of dimension `head_dim`.

    A choice whose warrant is "constructed" can be had: `build(task, eps, arch=choice.architecture)`.
    """

    structure: Structure
    eps: float
    ranked: tuple[Choice, ...]
    frontier: tuple[Frontier, ...]
    head_dim: int

    @property
    def best(self) -> Choice:
        return self.ranked[0]

    @property
    def buildable(self) -> tuple[Choice, ...]:
        """The choices that `build` returns with a certificate."""
        return tuple(choice for choice in self.ranked if choice.prediction.warrant == "constructed")

    def claim(self, title: str = "the task") -> Claim:
        """What is said of the first choice: its verdict at this error, with the conditions of its plan."""
        first = self.best
        return first.prediction.claim(f"{title} by {first.architecture.name}, first of {len(self.ranked)} ranked,")

    def __repr__(self) -> str:
        counts = f"{len(self.ranked)} ranked, {len(self.buildable)} buildable"
        return within_columns(f"<Advice for eps {self.eps:g}: {self.best}; {counts}>")

    def _repr_html_(self) -> str:
        columns = ("layers", "embed_dim", "positions", "parameters", "verdict", "warrant", "reason")
        return html_table(
            [column.replace("_", " ") for column in columns], [[row[column] for column in columns] for row in self.rows]
        )

    @property
    def rows(self) -> list[dict[str, object]]:
        """The choices, the best first."""
        return [choice.as_row() for choice in self.ranked]

    @property
    def sentence(self) -> str:
        """The verdict on the first choice, with its conditions."""
        return self.claim().said

    def files(self, out: Path, title: str = "") -> list[Path]:
        """The plan of the first choice as a picture, and everything for programs."""
        from headcount.papers.infoflow.flow_picture import write_flow

        return write_flow(out, "advice.json", self.as_row(), self.best.prediction, title)

    def as_row(self) -> dict[str, object]:
        """Everything, ready for JSON."""
        return {
            "eps": self.eps,
            "claim": self.claim().to_json(),
            "ranked": self.rows,
            "frontier": [asdict(f) | {"head_dim": self.head_dim} for f in self.frontier],
            "best": self.best.prediction.as_row(),
            "structure": self.structure.to_json(),
        }


def advise(task: Any, eps: float = 1e-2, *, max_layers: int = 4, max_heads: int = 8, keep: int = 8) -> Advice:
    """Architectures for a task, the fewest predicted parameters for error `eps` first.

    Tokens share heads only where that misses no sample by more than eps.

    For every depth, with and without positions and for every head dimension, the least heads that are cheap are kept,
    without heads and layers the plan does not use. The price is that of feed-forwards eps^-exponent wide: an order of
    magnitude, good for ranking. Where nothing is cheap the smallest exponents are ranked instead.

    >>> from headcount.structure import Retrieval
    >>> best = advise(Structure(64, 4, (Retrieval("pairs", count=2, order=2),)), eps=1e-2, max_layers=2).best
    >>> best.architecture.name, best.prediction.cheap
    ('2x4+2x4', True)
    """
    _check(eps, max_layers, max_heads, keep)
    structure = structure_of(task)
    trimmed = dict.fromkeys(_trimmed(structure, arch) for arch in _cheap_shapes(task, max_layers, max_heads, eps))
    slim = [*(_narrowed(task, arch, eps) for arch in trimmed), *_constructed(task, max_layers, max_heads)]
    ranked = _distinct(slim or _least_costly(structure, max_layers, max_heads))
    priced = sorted((_priced(task, arch, eps) for arch in ranked), key=_rank)[:keep]
    reasoned = [replace(choice, reason=_reason(choice, priced[0])) for choice in priced]
    head_dim = max(16, structure.token_dim, min(64, structure.count))
    frontier = _frontier(task, max_layers, max_heads, head_dim, eps)
    return Advice(structure, eps, tuple(reasoned), tuple(frontier), head_dim)


def _check(eps: float, max_layers: int, max_heads: int, keep: int) -> None:
    if not 0 < eps < 1:
        raise ValueError(f"eps must lie between 0 and 1, got {eps}")
    at_least_one(max_layers=max_layers, max_heads=max_heads, keep=keep)


def _distinct(shapes: Iterable[Architecture]) -> list[Architecture]:
    """Each shape once, and position features only where they change something."""
    unique = dict.fromkeys(shapes)
    return [a for a in unique if not a.positions or replace(a, positions=0) not in unique]


def _rank(choice: Choice) -> tuple[bool, float, int, int]:
    arch = choice.architecture
    size = math.log10(choice.parameters) if choice.parameters else math.inf
    return (not choice.prediction.cheap, size, arch.depth, sum(h for h, _ in arch.layers))


def _cheap_shapes(task: Any, max_layers: int, max_heads: int, eps: float) -> Iterator[Architecture]:
    structure = structure_of(task)
    for head_dim, column in _staircase(task, _head_dims(structure), max_layers, max_heads, eps):
        for (depth, positions), heads in column.items():
            if heads:
                yield _uniform(structure, depth, heads, head_dim, positions)


def _constructed(task: Any, max_layers: int, max_heads: int) -> Iterator[Architecture]:
    """The shapes of certified networks, within the limits."""
    for blueprint in blueprints(task):
        if len(blueprint.layers) <= max_layers and max(heads for heads, _ in blueprint.layers) <= max_heads:
            yield Architecture(
                blueprint.layers, positions=POSITIONS * blueprint.positions, embed_dim=blueprint.embed_dim
            )


def _staircase(
    task: Any, head_dims: list[int], max_layers: int, max_heads: int, eps: float
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
                column[depth, positions] = _least_heads(task, depth, head_dim, positions, enough or max_heads, eps)
        smaller = column
        yield head_dim, column


def _head_dims(structure: Structure) -> list[int]:
    return sorted({*HEAD_DIMS, structure.token_dim, min(64, max(1, structure.count))})


def _least_heads(task: Any, depth: int, head_dim: int, positions: int, most: int, eps: float) -> int:
    """The least heads per layer that are cheap, or 0; more heads never hurt."""
    structure = structure_of(task)

    def cheap(heads: int) -> bool:
        return cheap_shape(task, structure, _uniform(structure, depth, heads, head_dim, positions), eps)

    return 1 + bisect_left(range(1, most), True, key=cheap) if cheap(most) else 0


def _uniform(structure: Structure, depth: int, heads: int, head_dim: int, positions: int) -> Architecture:
    """Equal layers, with a state wide enough for a token and what every head may bring it."""
    hold = structure.token_dim * (1 + heads)
    return Architecture(((heads, head_dim),) * depth, positions=positions, embed_dim=max(heads * head_dim, hold))


def _trimmed(structure: Structure, arch: Architecture) -> Architecture:
    """The shape without the heads and layers that its plan leaves idle."""
    plan = None if unplaced(structure, arch) else analyse(structure, arch)
    if plan is None or plan.gathered or not plan.cost.cheap:
        return arch
    used = [max(1, _used(jobs, [d.acts for d in plan.demands])) for jobs in plan.layers]
    depth = max(l for l, jobs in enumerate(plan.layers, start=1) if jobs)
    layers = tuple((min(h, most), n) for h, (most, n) in zip(used[:depth], arch.layers, strict=False))
    smaller = replace(arch, layers=layers)
    return smaller if is_cheap(structure, smaller, plan.cost.features) else arch


def _used(jobs: tuple[Job, ...], acts: list[Any]) -> int:
    """Heads that a layer's jobs take, at the tokens or at the class token."""
    at = [(job, acts[job.demand][job.act].at if job.demand >= 0 else "cls") for job in jobs]
    tokens = sum(job.heads for job, place in at if place != "cls" or job.way in ("routed", "held"))
    return max(tokens, sum(job.heads for job, place in at if place != "tokens" and job.way not in ("routed", "held")))


def _narrowed(task: Any, arch: Architecture, eps: float) -> Architecture:
    """The cheap shape with the narrowest state that does not cost more."""
    structure, most = structure_of(task), predict(task, arch, eps=eps).exponent
    low, high = min(arch.embed_dim, max(h * n for h, n in arch.layers)), arch.embed_dim

    def enough(embed_dim: int) -> bool:
        return cheap_exponent(task, structure, replace(arch, embed_dim=embed_dim), eps) <= most

    return replace(arch, embed_dim=low + bisect_left(range(low, high), True, key=enough))


def _least_costly(structure: Structure, max_layers: int, max_heads: int) -> Iterator[Architecture]:
    for positions in (0, POSITIONS):
        for head_dim in _head_dims(structure):
            yield _uniform(structure, max_layers, max_heads, head_dim, positions)


def _priced(task: Any, arch: Architecture, eps: float) -> Choice:
    """The shape with feed-forwards eps^-exponent wide, and its parameters (0: no price is enough)."""
    prediction = predict(task, arch, eps=eps)
    if not prediction.feasible:
        return Choice(arch, prediction, 0, "")
    wide = replace(arch, width=_power(1 / eps, prediction.exponent))
    return Choice(wide, replace(prediction, arch=wide), parameters(wide, prediction.structure.token_dim).total, "")


def _power(base: float, exponent: float) -> int:
    """base^exponent as a whole number, however large."""
    digits = exponent * math.log10(base)
    return max(1, math.ceil(10**digits - 1e-9)) if digits < 15 else 10 ** round(digits)


def _reason(choice: Choice, best: Choice) -> str:
    if choice is best or not choice.prediction.cheap:
        return choice.prediction.limiting
    ratio = choice.parameters / best.parameters
    own, reference = choice.architecture, best.architecture
    causes = [
        text
        for text, holds in (
            ("a wider state", own.embed_dim > reference.embed_dim),
            ("more layers", own.depth > reference.depth),
            ("a larger exponent", choice.prediction.exponent > best.prediction.exponent),
            ("position features", own.positions > reference.positions),
        )
        if holds
    ]
    return f"{ratio:.3g} x the parameters: {', '.join(causes) or 'larger heads'}"


def _frontier(task: Any, max_layers: int, max_heads: int, head_dim: int, eps: float) -> Iterator[Frontier]:
    structure = structure_of(task)
    ((_, column),) = _staircase(task, [head_dim], max_layers, max_heads, eps)
    for (depth, positions), heads in column.items():
        below = heads - 1 if heads else max_heads
        why = "nothing smaller is possible" if below == 0 else _why(structure, depth, below, head_dim, positions)
        yield Frontier(depth, bool(positions), heads or None, why)


def _why(structure: Structure, depth: int, heads: int, head_dim: int, positions: int) -> str:
    arch = _uniform(structure, depth, heads, head_dim, positions)
    missing = unplaced(structure, arch)
    if missing is not None:
        return str(Limit("order of tokens", math.inf, retrieval=missing.name))
    return str(limiting(analyse(structure, arch), structure, arch))
