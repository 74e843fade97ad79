"""The InfoFlow paper: pair tasks, the triangle centre, and both probes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from headcount.nets import Architecture
from headcount.papers.infoflow.experiments import PAIRS, SHAPES, TRIANGLE, TRIANGLE_SHAPES, pair_cells, triangle_cells
from headcount.papers.infoflow.probes import class_attention, contained
from headcount.papers.infoflow.trained_cells import Entry, Trained, train_cells
from headcount.results.literature import Cells, Difference, Published, Ratio, mean
from headcount.results.record import Claim, Measured, Reproduction, Setting
from headcount.sources import Source
from headcount.tasks import Gaussian, LinearMax, PairMax, PositionSum
from headcount.training.loop import train
from headcount.training.member import Member, Recipe
from headcount.training.progress import bar

__all__ = ["INFOFLOW", "PAIR_TABLE", "PLACES_TABLE", "TRIANGLE_TABLE"]

RANKS = ("largest weight", "second largest")
SMALL = tuple(f"({h},{h}) E={e}" for h, e in TRIANGLE_SHAPES)
PAIR_TABLE = Published(
    "pair tasks",
    Source("yu2026infoflow", "the intrinsic-dimension experiment"),
    "D",
    tuple(PAIRS),
    "heads in the two layers",
    SHAPES,
    tuple(PAIRS.values()),
    sums_up=min,
)
TRIANGLE_TABLE = Published(
    "triangle centre",
    Source("yu2026infoflow", "the triangle-centre experiment"),
    "length",
    tuple(TRIANGLE),
    "heads and embedding",
    SMALL,
    tuple(TRIANGLE.values()),
    sums_up=min,
)
PLACES_TABLE = Published(
    "attention to the first three of ten positions",
    Source("yu2026infoflow", "the probe of specific-position aggregation"),
    "position",
    tuple(range(1, 11)),
    "network",
    ("class token",),
    ((1 / 3,),) * 3 + ((0.0,),) * 7,
    read_to=0.02,  # what the figure lets one see; it has no spread
    quantity="attention",
    measure=Difference(clear=0.1),
)


def _recipe(steps: int, samples: int, batch: int = 256, validation: int = 4096) -> Recipe:
    epochs = max(1, steps // (samples // batch))
    return Recipe(samples, validation, epochs, batch, evaluations=min(epochs, 16))


def _trained(cells: list[Entry], setting: Setting, recipe: Recipe, seeds: int, decay: float = 1e-4) -> list[Trained]:
    return train_cells(cells, recipe, seeds=seeds, weight_decay=decay, device=setting.device, on_progress=bar)


def pair(setting: Setting) -> Measured:
    """Two layers of (h1, h2) heads on sums of D maxima over pairs: tokens on the sphere, and Gaussian as the check."""
    tables, cells = {}, pair_cells("sphere")
    recipe, seeds = _recipe(8000, 65536), 4
    if setting.quick:
        recipe, seeds = _recipe(1500, 4096, 64, 1024), 2
        cells = [
            _smaller(cell) for cell in pair_cells("sphere", length=8, embed_dim=24, width=32) if "D=2" in cell.name
        ]
    for title, chosen in (("pair tasks", cells), ("pair tasks, Gaussian tokens", _gaussian(cells, setting))):
        found = _trained(chosen, setting, recipe, seeds)
        tables[title] = {_pair_place(t.cell): t.nmse for t in found}
    note = ("smaller than published: D = 2, length 8, 1,500 steps",) if setting.quick else ()
    setup = {"seeds": seeds, "steps": recipe.steps, "samples": recipe.samples}
    return Measured(tables, pair_claims(tables["pair tasks"]), setup, note)


def pair_claims(cells: Cells) -> tuple[Claim, ...]:
    """Whether one head fewer in either layer clearly costs: the factor from which two errors differ clearly."""
    best = {key: min(values) for key, values in cells.items()}
    asked = sorted({D for D, _ in best})
    worst = {D: min(best[D, short] for short in SHAPES[1:]) / best[D, SHAPES[0]] for D in asked}
    ours = ", ".join(f"D = {D}: {factor:.2g}" for D, factor in worst.items())
    says = "both layers need D heads: one fewer in either costs"
    costs = min(worst.values()) > Ratio().factor
    return (Claim(says, f"the best NMSE grows at least by factors {ours} ({Ratio().factor:g} is clear)", costs),)


def _smaller(cell: Entry) -> Entry:
    return replace(cell, arch=replace(cell.arch, layers=tuple((h, 8) for h, _ in cell.arch.layers)))


def _gaussian(cells: list[Entry], setting: Setting) -> list[Entry]:
    few = [(c, c.task) for c in (cells[:3] if setting.quick else cells)]
    return [
        Entry(c.name.replace("sphere", "gaussian"), PairMax(task.matrices, task.length, Gaussian()), c.arch)
        for c, task in few
        if isinstance(task, PairMax)
    ]


def _pair_place(cell: Entry) -> tuple[int, str]:
    _, D, shape = cell.name.split(" ")
    return int(D.removeprefix("D=")), shape


def triangle(setting: Setting) -> Measured:
    """Two layers on the triple nearest the origin, by length: no fixed network keeps up."""
    lengths = tuple(TRIANGLE) if not setting.quick else (3, 8, 16)
    recipe, seeds = (_recipe(8000, 16384), 4) if not setting.quick else (_recipe(600, 2048, 64, 1024), 2)
    cells = triangle_cells(lengths=lengths, **({"width": 32} if setting.quick else {}))
    found = _trained(cells, setting, recipe, seeds, decay=1e-2)
    places = {}
    for t in found:
        shape = f"({t.cell.arch.layers[0][0]},{t.cell.arch.layers[1][0]}) E={t.cell.arch.embed_dim}"
        places[t.cell.task.length, shape] = t.nmse
    note = (f"smaller than published: lengths {lengths}, {recipe.steps} steps",) if setting.quick else ()
    setup = {"seeds": seeds, "steps": recipe.steps, "weight_decay": 1e-2}
    return Measured({TRIANGLE_TABLE.title: places}, triangle_claims(places), setup, note)


def triangle_claims(cells: Cells) -> tuple[Claim, ...]:
    """Whether the error rises with length whatever the shape, and whether any shape helps at the greatest."""
    lengths = sorted({length for length, _ in cells})
    best = {key: min(values) for key, values in cells.items()}
    rises = all(best[a, s] < best[b, s] for s in SMALL for a, b in pairwise(lengths))
    last = [best[lengths[-1], s] for s in SMALL]
    return (
        Claim("the error rises with the length, whatever the heads and the width",
              f"{'at every step' if rises else 'not at every step'} of {lengths}", rises),
        Claim("neither heads nor width help at the greatest length",
              f"at length {lengths[-1]}: {', '.join(f'{v:.3g}' for v in last)}", max(last) < 1.25 * min(last)),
    )  # fmt: skip


def probes(setting: Setting) -> Measured:
    """Does a state contain the token a head attends to most, and whom does the class token attend to?"""
    quick = setting.quick
    task = LinearMax.random(2, 4, 8 if quick else 16)
    shapes = ((1, 1), (2, 2)) if quick else ((1, 1), (1, 2), (2, 1), (2, 2), (3, 3))
    recipe = Recipe(2000, 500, 40, 100, evaluations=10) if quick else Recipe(8000, 2000, 300, 256)
    members = [Member(task, Architecture(tuple((h, 8) for h in s), width=32, embed_dim=24), seed=0) for s in shapes]
    ratios: dict[tuple[Any, Any], tuple[float, ...]] = {}
    for shape, member in zip(shapes, members, strict=True):
        net = train([member], recipe, device=setting.device).net(0)
        looked = contained(net, task, samples=256 if quick else 1024)
        for rank, words in enumerate(RANKS, 1):
            ratios[f"{shape}", words] = tuple(c.ratio for c in looked if c.rank == rank)
    places = _places(setting)
    tables = {"error ratio of the linear probe": ratios, PLACES_TABLE.title: places}
    note = ("smaller than published: shorter training, two head counts",) if quick else ()
    setup = {"steps": recipe.steps, "task": "two maxima of linear scores", "seeds": 1}
    return Measured(tables, probe_claims(ratios), setup, note)


def probe_claims(ratios: Cells) -> tuple[Claim, ...]:
    """Whether every head's state contains its winner, as little wrong as the paper's worst, and no runner-up at all."""
    first, second = ([v for (_, rank), found in ratios.items() if rank == r for v in found] for r in RANKS)
    return (
        Claim("the state contains the token of the largest weight: in every head at most 0.84 of an untrained "
              "network's error (the paper: 0.08 to 0.84)", _span(first), max(first) <= 0.84),
        Claim("and not the token of the second largest weight: in every head about the error of an untrained network, "
              "within a tenth", _span(second), max(abs(v - 1) for v in second) <= 0.1),
        Claim("the mean ratio of the largest is below that of the second largest",
              f"{mean(first):.2f} against {mean(second):.2f}", mean(first) < mean(second)),
    )  # fmt: skip


def _span(ratios: list[float]) -> str:
    return f"ratios {min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} heads"


def _places(setting: Setting) -> dict[tuple[Any, Any], tuple[float, ...]]:
    task = PositionSum((0, 1, 2), length=10)
    arch = Architecture(((1, 8),), width=32, positions=10)
    recipe = Recipe(2000, 500, 60, 100, evaluations=10) if setting.quick else Recipe(4000, 1000, 2000, 256)
    seeds = 2 if setting.quick else 3
    outcome = train([Member(task, arch, seed=s) for s in range(seeds)], recipe, device=setting.device)
    looked = [class_attention(outcome.net(k), task, samples=256)[0].mean for k in range(seeds)]
    return {(place + 1, "class token"): tuple(mean[place] for mean in looked) for place in range(10)}


CHOSEN = (
    "AdamW at 3e-3 and 1e-3 in turn over the seeds, warm-up and cosine, residuals, no norm, no positions; tokens of "
    "the pair task on the unit sphere, which is the reading that gives the published level of the short cells."
)
READING = (
    "After the quick page had been read: a statement about every head must hold in every head (the probe's held if one "
    "did), and class attention is judged at the 0.02 to which its figure can be read. No verdict on a table changed."
)
SPHERE = (
    "Tokens on the sphere are the reading whose level comes nearest to the published one: it was chosen by looking."
)
INFOFLOW = (
    Reproduction("infoflow:pair", "pair tasks of dimension D by heads in two layers", pair, (PAIR_TABLE,), CHOSEN,
                 "Gaussian tokens", ("1 min", "days", "10 min"), changed=SPHERE),
    Reproduction("infoflow:triangle", "triangle centre by length: unlearnable as sequences grow", triangle,
                 (TRIANGLE_TABLE,), CHOSEN + " Weight decay 1e-2, as published.", "heads and embedding, as published",
                 ("1 min", "days", "5 min")),
    Reproduction("infoflow:probes", "what a state contains, and whom the class token attends to", probes,
                 (PLACES_TABLE,), "Two maxima of linear scores; a linear map with a constant, judged on samples it "
                 "was not fitted to; untrained networks of the same shape as the yardstick.", "heads of both layers",
                 ("1 min", "20 min", "2 min"), changed=READING),
)  # fmt: skip
