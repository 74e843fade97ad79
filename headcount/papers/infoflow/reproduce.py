"""The InfoFlow paper: pair tasks, the triangle centre, and both probes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from headcount.nets import Architecture
from headcount.papers.infoflow.experiments import (
    AS_PUBLISHED,
    PAIRS,
    SHAPES,
    TRIANGLE,
    TRIANGLE_SHAPES,
    pair_cells,
    triangle_cells,
)
from headcount.papers.infoflow.probes import class_attention, contained
from headcount.papers.infoflow.trained_cells import Entry, Trained, train_cells
from headcount.results.literature import Cells, Difference, Published, Ratio, mean
from headcount.results.record import Measured, Reproduction, Setting, Stated
from headcount.sources import Source
from headcount.tasks import LinearMax, PositionSum
from headcount.training.loop import train
from headcount.training.member import Member, Recipe
from headcount.training.progress import bar

QUICK_PAIRS = (4000, 4096, 64, 1024)  # steps, samples of an epoch, batch, validation
THROUGH = "pair tasks, tokens through a feed-forward"
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


def _trained(cells: list[Entry], setting: Setting, recipe: Recipe, seeds: int, **more: Any) -> list[Trained]:
    more = {"weight_decay": 1e-4} | more
    return train_cells(cells, recipe, seeds=seeds, device=setting.device, on_progress=bar, **more)


def pair(setting: Setting) -> Measured:
    """Two layers of (h1, h2) heads on sums of D maxima over pairs: tokens enter by one matrix, or a feed-forward."""
    tables, seeds, rate = {}, 4, 2e-3
    recipe = replace(_recipe(64_000, 65536), fresh=True)
    size: dict[str, Any] = {"head_dim": 16, "width": 256}
    if setting.quick:
        recipe, size = replace(_recipe(*QUICK_PAIRS), fresh=True), {"length": 4, "width": 128, "embed_dim": 32}
        seeds, rate = 2, 4e-3
    kinds = {"pair tasks": AS_PUBLISHED, THROUGH: AS_PUBLISHED | {"embedding": "feed-forward"}}
    for title, kind in kinds.items():
        cells = [cell for cell in pair_cells("gaussian", **size, **kind) if not setting.quick or "D=2" in cell.name]
        trained = _trained(cells, setting, recipe, seeds, rates=(rate,), weight_decay=1e-2)
        tables[title] = {_pair_place(t.cell): t.nmse for t in trained}
    note = (f"smaller than published: D = 2, length 4, {recipe.steps:,} steps",) if setting.quick else ()
    setup = {"seeds": seeds, "steps": recipe.steps, "rate": rate, "weight_decay": 1e-2}
    return Measured(tables, pair_claims(tables["pair tasks"]), setup, note)


def pair_claims(cells: Cells) -> tuple[Stated, ...]:
    """Whether one head fewer in either layer clearly costs: the factor from which two errors differ clearly."""
    best = {key: min(values) for key, values in cells.items()}
    retrievals = sorted({D for D, _ in best})
    worst = {D: min(best[D, short] for short in SHAPES[1:]) / best[D, SHAPES[0]] for D in retrievals}
    ours = ", ".join(f"D = {D}: {factor:.2g}" for D, factor in worst.items())
    says = "both layers need D heads: one fewer in either costs"
    costs = min(worst.values()) > Ratio().factor
    return (Stated(says, f"the best NMSE grows at least by factors {ours} ({Ratio().factor:g} is clear)", costs),)


def _pair_place(cell: Entry) -> tuple[int, str]:
    _, D, shape = cell.name.split(" ")
    return int(D.removeprefix("D=")), shape


def triangle(setting: Setting) -> Measured:
    """Two layers on the triple nearest the origin, by length: no fixed network keeps up."""
    lengths = tuple(TRIANGLE) if not setting.quick else (3, 8, 16)
    recipe, seeds = (_recipe(8000, 16384), 4) if not setting.quick else (_recipe(600, 2048, 64, 1024), 2)
    cells = triangle_cells(lengths=lengths, **({"width": 32} if setting.quick else {}))
    trained = _trained(cells, setting, recipe, seeds, weight_decay=1e-2)
    places = {}
    for t in trained:
        shape = f"({t.cell.arch.layers[0][0]},{t.cell.arch.layers[1][0]}) E={t.cell.arch.embed_dim}"
        places[t.cell.task.length, shape] = t.nmse
    note = (f"smaller than published: lengths {lengths}, {recipe.steps} steps",) if setting.quick else ()
    setup = {"seeds": seeds, "steps": recipe.steps, "weight_decay": 1e-2}
    return Measured({TRIANGLE_TABLE.title: places}, triangle_claims(places), setup, note)


def triangle_claims(cells: Cells) -> tuple[Stated, ...]:
    """Whether the error rises with length whatever the shape, and whether any shape helps at the greatest."""
    lengths = sorted({length for length, _ in cells})
    best = {key: min(values) for key, values in cells.items()}
    rises = all(best[a, s] < best[b, s] for s in SMALL for a, b in pairwise(lengths))
    last = [best[lengths[-1], s] for s in SMALL]
    return (
        Stated("the error rises with the length, whatever the heads and the width",
              f"{'at every step' if rises else 'not at every step'} of {lengths}", rises),
        Stated("neither heads nor width help at the greatest length",
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


def probe_claims(ratios: Cells) -> tuple[Stated, ...]:
    """Whether every head's state contains its winner, as little wrong as the paper's worst, and no runner-up at all."""
    first, second = ([v for (_, rank), values in ratios.items() if rank == r for v in values] for r in RANKS)
    return (
        Stated("the state contains the token of the largest weight: in every head at most 0.84 of an untrained "
              "network's error (the paper: 0.08 to 0.84)", _span(first), max(first) <= 0.84),
        Stated("and not the token of the second largest weight: in every head about the error of an untrained network, "
              "within a tenth", _span(second), max(abs(v - 1) for v in second) <= 0.1),
        Stated("the mean ratio of the largest is below that of the second largest",
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


RECIPE = "AdamW at 5e-3 and 2e-3 in turn over the seeds, warm-up and cosine, residuals, no norm, no positions."
ENTERING = (
    "AdamW at 2e-3, warm-up and cosine, weight decay 1e-2; tokens from N(0, I) that enter by one matrix, a class token "
    "that attends in the last layer alone, states of 64, heads of 16, 256 hidden units with GELU, residuals, no norm."
)
READING = (
    "After the quick page had been read: a statement about every head must hold in every head (the probe's held if one "
    "did), and class attention is judged at the 0.02 to which its figure can be read. No verdict on a table changed."
)
LOOKED = (
    "Tables with unit tokens, a feed-forward as encoder, ReLU and 128 hidden units, fixed before looking, did not show "
    "the contrast (docs/infoflow.html). How tokens enter was chosen after that, by looking; activation, hidden units "
    "and rate by the cells with all heads alone, before one with a head less was trained."
)
INFOFLOW = (
    Reproduction("infoflow:pair", "pair tasks of dimension D by heads in two layers", pair, (PAIR_TABLE,), ENTERING,
                 "tokens that enter through a feed-forward", ("1 min", "days", "20 min"), changed=LOOKED),
    Reproduction("infoflow:triangle", "triangle centre by length: unlearnable as sequences grow", triangle,
                 (TRIANGLE_TABLE,), RECIPE + " Weight decay 1e-2, as published.", "heads and embedding, as published",
                 ("1 min", "days", "5 min")),
    Reproduction("infoflow:probes", "what a state contains, and whom the class token attends to", probes,
                 (PLACES_TABLE,), "Two maxima of linear scores; a linear map with a constant, judged on samples it "
                 "was not fitted to; untrained networks of equal shape as the yardstick.", "heads of both layers",
                 ("1 min", "20 min", "2 min"), changed=READING),
)  # fmt: skip
