"""Laws of `predict` on random tasks and shapes, as lists of what breaks them; run in full without type checks.

`python -m tests.infoflow_laws contradictions 6000` prints the list and leaves with its length as exit code.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import headcount as hc
from headcount.nets import Architecture
from headcount.papers.infoflow import Blueprint, blueprints
from headcount.papers.infoflow.analysis import analyse, is_cheap, unplaced
from headcount.papers.infoflow.predict import _Case, structure_of
from headcount.structure import Retrieval, Structure
from headcount.tasks import Induction, KthLargest, LinearMax, OppositePair, PairMax, PositionSum, Wells
from tests.exhaustive import exhaustive_cost

TASKS = (
    *(LinearMax.random(D, d, T) for D, d, T in ((1, 2, 4), (2, 2, 4), (3, 2, 6), (4, 3, 5), (7, 2, 8))),
    *(Wells.random(D, 1, T) for D, T in ((1, 4), (2, 4), (3, 5))),
    Wells.random(2, 1, 6, windows=True),
    *(PairMax.random(D, 2, T) for D, T in ((1, 3), (2, 4), (3, 4))),
    OppositePair(3),
    OppositePair(4, token_dim=1),
    *(KthLargest(rank, T) for rank, T in ((1, 2), (1, 8), (2, 4), (2, 9), (2, 2), (7, 8), (8, 8))),
    *(PositionSum(positions, T) for positions, T in (((0,), 4), ((0, 1, 2), 10), ((1, 3), 4))),
    *(Induction(vocab, T) for vocab, T in ((2, 4), (3, 6), (5, 8))),
)


def drawn_structure(rng: random.Random) -> Structure:
    length, token_dim = rng.choice([3, 4, 8, 16]), rng.choice([1, 2, 4])
    made: list[Retrieval] = []
    for i in range(rng.randint(1, 3)):
        kind = rng.choice(["max", "pair", "rank", "places", "sum", "window", "chain", "shift", "beside"])
        after = tuple(r.name for r in made if rng.random() < 0.5) if kind in ("chain", "shift") else ()
        count = rng.randint(1, 2)
        fields: dict[str, Any] = {
            "places": {"positions": tuple(range(rng.randint(1, 3)))},
            "sum": {"positions": tuple(range(rng.randint(1, 3))), "summed": rng.randint(1, 2)},
            "pair": {"order": 2, "count": count},
            "rank": {"rank": rng.randint(2, 3), "count": count},
            "window": {"window": rng.randint(1, length - 1), "count": count},
            "shift": {"offset": 1},
            "beside": {"beside": rng.choice(((1,), (-1,), (-1, 1))), "summed": rng.randint(0, 1)},
        }.get(kind, {"count": count})
        made.append(Retrieval(f"r{i}", after=after, **fields))
    return Structure(length, token_dim, tuple(made))


def drawn_shape(rng: random.Random) -> Architecture:
    depth, head_dim, alike = rng.randint(1, 3), rng.choice([1, 2, 4, 8]), rng.random() < 0.6
    dims = [head_dim if alike else rng.choice([1, 2, 3, 8]) for _ in range(depth)]
    layers = tuple((rng.randint(1, 3 if depth < 3 else 2), n) for n in dims)
    embed_dim = rng.choice([0, 0, 2, 4, 16])
    attends = rng.choice(("every", "every", "last"))
    return Architecture(layers, positions=rng.choice([0, 2, 2]), embed_dim=embed_dim, class_token=attends)


def grown(made: Blueprint, rng: random.Random) -> Architecture:
    """A shape that holds a blueprint: more heads, dimensions, layers, state width and position features at random."""
    layers = [(h + rng.choice((0, 0, 1, 3)), n + rng.choice((0, 0, 1, 6))) for h, n in made.layers]
    for _ in range(rng.choice((0, 0, 1, 2))):
        layers.insert(rng.randint(0, len(layers)), (rng.randint(1, 3), rng.randint(1, 8)))
    positions = rng.choice((1, 3)) if made.positions else rng.choice((0, 2))
    return Architecture(tuple(layers), positions=positions, embed_dim=made.embed_dim + rng.choice((0, 1, 9)))


def larger(arch: Architecture, rng: random.Random) -> Architecture:
    """More of some things; a class token of the last layer keeps that layer the last."""
    layers = [(h + rng.choice((0, 0, 1)), n + rng.choice((0, 0, 1, 4))) for h, n in arch.layers]
    if rng.random() < 0.4:
        last = len(layers) - 1 if arch.class_token == "last" else len(layers)
        layers.insert(rng.randint(0, last), (rng.randint(1, 2), rng.randint(1, 4)))
    positions, embed_dim = arch.positions or rng.choice((0, 2)), arch.embed_dim + rng.choice((0, 0, 3))
    attends = "every" if rng.random() < 0.3 else arch.class_token
    return replace(arch, layers=tuple(layers), class_token=attends, positions=positions, embed_dim=embed_dim)


def contradictions(pairs: int, seed: int = 0) -> list[Any]:
    """Certified (task, shape) pairs not called cheap by construction, or called costly by the calculus alone."""
    rng, seen, wrong = random.Random(seed), set(), []
    while len(seen) < pairs:
        task = rng.choice(TASKS)
        arch = grown(rng.choice(blueprints(task)), rng)
        prediction = hc.predict(task, arch)
        right = prediction.cheap and prediction.warrant == "constructed" and prediction.lower is None
        if not right or not is_cheap(task.structure, arch):
            wrong.append((task, arch, prediction))
        seen.add((task, arch))
    return wrong


def setbacks(cases: int, seed: int = 0) -> list[Any]:
    """(Task, shape, larger shape) with the larger shape worse."""
    rng, wrong = random.Random(seed), []
    for _ in range(cases):
        task = rng.choice(TASKS) if rng.random() < 0.4 else drawn_structure(rng)
        small = drawn_shape(rng)
        large = larger(small, rng)
        before, after = (_Case(task, structure_of(task), arch) for arch in (small, large))
        if (not after.cheap, after.exponent) > (not before.cheap, before.exponent):
            wrong.append((task, small, large))
    return wrong


def broken_fixes(cases: int, seed: int = 0) -> list[Any]:
    """Fixes after which the shape is not cheap; or nothing but a remark that there were too few to tell."""
    rng, wrong, fixes = random.Random(seed), [], 0
    for _ in range(cases):
        task = rng.choice(TASKS) if rng.random() < 0.3 else drawn_structure(rng)
        for fix in hc.predict(task, drawn_shape(rng)).fixes:
            fixes += 1
            wrong += [] if hc.predict(task, fix.arch).cheap else [(task, fix)]
    return wrong if fixes > cases / 2 else [f"only {fixes} fixes in {cases} cases"]


def disagreements(cases: int, seed: int = 0) -> list[Any]:
    """(Structure, shape) on which the fast analyser and the exhaustive one differ."""
    rng, compared, wrong = random.Random(seed), 0, []
    while compared < cases:
        structure, arch = drawn_structure(rng), drawn_shape(rng)
        if sum(len(r.positions) or r.count for r in structure.retrievals) > 4 or unplaced(structure, arch):
            continue
        cost = analyse(structure, arch).cost
        if cost.order != exhaustive_cost(structure, arch).order or cost.cheap != is_cheap(structure, arch):
            wrong.append((structure, arch))
        compared += 1
    return wrong


LAWS: dict[str, Callable[..., list[Any]]] = {
    law.__name__: law for law in (contradictions, setbacks, broken_fixes, disagreements)
}

if __name__ == "__main__":
    broken = LAWS[sys.argv[1]](int(sys.argv[2]), seed=1)
    sys.stdout.writelines(f"{case}\n" for case in broken[:5])
    sys.exit(min(100, len(broken)))
