"""`predict`: a task and an architecture in, a `Prediction` out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headcount.papers.infoflow.analysis import Found, analyse, impossible, is_cheap
from headcount.papers.infoflow.demands import Shape, check_shape
from headcount.papers.infoflow.lower import one_layer_bound
from headcount.papers.infoflow.plan import knowledge, steps
from headcount.papers.infoflow.prediction import Prediction
from headcount.papers.infoflow.statements import statements_for
from headcount.structure import Structure

__all__ = ["limiting", "predict", "structure_of"]

MOST_FIXES = 64  # heads or layers beyond this are no fix


def predict(task: Any, arch: Shape) -> Prediction:
    """Whether a network of this shape computes the task cheaply, by which plan, and what limits it.

    `task` is a `Structure` or anything with a `.structure`.
    Source: Yu et al. 2026 (InfoFlow): information sets, three modes of propagation, composition by the worst step.
    Departs: rates and comparison budget as reconstructed and checked here; the paper's constants are not known.

    >>> from headcount.nets import Architecture
    >>> from headcount.structure import Retrieval
    >>> pairs = Structure(64, 4, (Retrieval("pairs", count=2, order=2),))
    >>> predict(pairs, Architecture(layers=((2, 8), (2, 8)))).cheap
    True
    >>> short = predict(pairs, Architecture(layers=((1, 8), (2, 8))))
    >>> short.exponent, short.fixes[0]
    (16.0, '2 heads in layer 1 (now 1)')
    """
    structure = structure_of(task)
    check_shape(arch)
    why_not = impossible(structure, arch)
    found = None if why_not else analyse(structure, arch)
    cheap = found is not None and found.cost.cheap
    return Prediction(
        structure=structure,
        layers=tuple(arch.layers),
        positions=arch.positions,
        embed_dim=arch.embed_dim,
        cheap=cheap,
        exponent=math.inf if found is None else float(found.cost.exponent),
        limiting=why_not if found is None else limiting(found, structure, arch),
        plan=() if found is None else steps(found, structure, arch),
        known=() if found is None else knowledge(found, structure, arch),
        statements=statements_for(structure, arch, found),
        fixes=() if cheap else tuple(_fixes(structure, arch)),
        cautions=_cautions(structure, arch, found),
        lower=None if cheap else one_layer_bound(structure, arch),
    )


def structure_of(task: Any) -> Structure:
    """The structure of a task, or the structure itself; anything else is refused by the name of what is missing."""
    found = task if isinstance(task, Structure) else getattr(task, "structure", None)
    if not isinstance(found, Structure):
        raise ValueError(f"{type(task).__name__} states no structure: the field 'structure' is missing")
    return found


@dataclass(frozen=True)
class _Changed:
    """A shape with something added, to see whether that would do."""

    layers: tuple[tuple[int, int], ...]
    width: int
    embed_dim: int
    positions: int


def limiting(found: Found, structure: Structure, arch: Shape) -> str:
    """The step that sets the exponent, in words."""
    cost, d = found.cost, structure.token_dim
    if cost.aggregated == cost.exponent and found.gathered and (cost.exponent > 1 or not found.demands):
        tokens = found.gathered // d
        what = f"all {tokens} tokens" if tokens == structure.length else f"{tokens} tokens read by place"
        ratio = _ratio(found.gathered, found.channel)
        return f"{what} of {d} numbers pass through {found.channel} dimensions at the class token: {ratio}"
    if cost.exponent == 1:
        return "the features of a score: piecewise linear, eps^-1, whatever the length"
    if cost.separated == cost.exponent:
        return f"what is read by position shares the dimensions of a head: exponent {float(cost.separated):.3g}"
    shared = f"head_dim and embed_dim ({arch.embed_dim}): exponent {float(cost.features):.3g}"
    return f"a state's {d} numbers a token and what its heads bring share {shared}"


def _ratio(numbers: int, dims: int) -> str:
    return f"{numbers}/{dims} = {numbers / dims:.3g} numbers in each" + (", separated" if numbers <= dims else "")


def _cautions(structure: Structure, arch: Shape, found: Found | None) -> tuple[str, ...]:
    notes = []
    masked = found is not None and any(
        found.demands[job.demand].acts[job.act].kind == "mask" and job.way == "plain"
        for jobs in found.layers
        for job in jobs
        if job.demand >= 0
    )
    if masked and not arch.positions:
        notes.append(
            "without positions a winner knows itself by its value alone: off exact ties the plan holds, "
            "on ties both copies step back"
        )
    if masked and any(r.order and r.rank > 2 for r in structure.retrievals):
        notes.append("masking twice or more needs the leaders apart: a tie for the first place masks nobody")
    carried = _carried(arch)
    alone = all(r.order == r.rank == 1 and not r.after and not r.offset for r in structure.retrievals)
    if found is not None and not found.cost.cheap and alone and structure.count <= carried:
        notes.append(
            f"the paper's count, one retrieval a head and layer, is not the last word: what tokens found can ride "
            f"along, and {carried} retrievals are then cheap (carried_retrievals)"
        )
    if found is not None and found.whole and found.cost.cheap and not arch.positions:
        notes.append("memorising a bag of tokens in as many dimensions as it has numbers is possible, rarely trained")
    if found is not None and any(r.order == 2 for r in structure.retrievals):
        short = [n for _, n in arch.layers if n < structure.token_dim]
        if short:
            notes.append(
                f"a head of dimension {short[0]} compares through a matrix of rank {short[0]} < token_dim "
                f"{structure.token_dim}; the paper leaves the rank out of account"
            )
    return tuple(notes)


def _carried(arch: Shape) -> int:
    """Retrievals that the class token and, before the last layer, the tokens can make: (2L - 1) h for equal layers."""
    heads = [h for h, n in arch.layers if n > 1]
    return sum(heads) + sum(heads[:-1]) if len(heads) == len(arch.layers) > 1 else 0


def _fixes(structure: Structure, arch: Shape) -> list[str]:
    """Single changes that make the shape cheap: positions, heads in one layer, heads in all, layers, dimensions."""
    fixes = []
    if not arch.positions and is_cheap(structure, _change(arch, positions=1)):
        fixes.append("position features (now none)")
    for l, (heads, _) in enumerate(arch.layers):
        enough = _least(structure, arch, lambda k, l=l: _with_heads(arch, l, k), heads + 1)
        if enough:
            fixes.append(f"{enough} heads in layer {l + 1} (now {heads})")
    most = max(heads for heads, _ in arch.layers)
    if len(arch.layers) > 1 and not any("heads in layer" in fix for fix in fixes):
        enough = _least(structure, arch, lambda k: _with_all_heads(arch, k), most + 1)
        if enough:
            fixes.append(f"{enough} heads in every layer")
    deeper = _least(structure, arch, lambda k: _with_layers(arch, k), len(arch.layers) + 1, most=12)
    if deeper:
        fixes.append(f"{deeper} layers of {max(h for h, _ in arch.layers[-1:])} heads (now {len(arch.layers)})")
    return fixes


def _least(structure: Structure, arch: Shape, change: Any, start: int, most: int = MOST_FIXES) -> int:
    """The least k in start..most for which the changed shape is cheap, or 0; cheapness is monotone in k."""
    if not is_cheap(structure, change(most)):
        return 0
    low, high = start, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_cheap(structure, change(middle)) else (middle + 1, high)
    return low


def _change(arch: Shape, **changed: Any) -> _Changed:
    kept = {name: getattr(arch, name) for name in ("layers", "width", "embed_dim", "positions")}
    return _Changed(**{**kept, **changed})


def _with_heads(arch: Shape, layer: int, heads: int) -> _Changed:
    return _change(arch, layers=tuple((heads, n) if i == layer else (h, n) for i, (h, n) in enumerate(arch.layers)))


def _with_all_heads(arch: Shape, heads: int) -> _Changed:
    return _change(arch, layers=tuple((heads, n) for _, n in arch.layers))


def _with_layers(arch: Shape, depth: int) -> _Changed:
    return _change(arch, layers=arch.layers + (arch.layers[-1],) * (depth - len(arch.layers)))
