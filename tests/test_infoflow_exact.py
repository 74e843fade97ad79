"""One answer, two roads: the fast analyser and the exhaustive one agree on every small case drawn."""

import random

import pytest

from headcount.nets import Architecture
from headcount.papers.infoflow import advise
from headcount.papers.infoflow.advise import _least_heads, _power, _staircase
from headcount.papers.infoflow.analysis import analyse, is_cheap, unplaced
from headcount.structure import Retrieval, Structure
from tests.exhaustive import exhaustive_cost


def drawn_structure(rng: random.Random) -> Structure:
    length, token_dim = rng.choice([3, 4, 8, 16]), rng.choice([1, 2, 4])
    made: list[Retrieval] = []
    for i in range(rng.randint(1, 3)):
        kind = rng.choice(["max", "pair", "rank", "places", "window", "chain", "shift"])
        after = tuple(r.name for r in made if rng.random() < 0.5) if kind in ("chain", "shift") else ()
        count = rng.randint(1, 2)
        fields = {
            "places": {"positions": tuple(range(rng.randint(1, 3)))},
            "pair": {"order": 2, "count": count},
            "rank": {"rank": rng.randint(2, 3), "count": count},
            "window": {"window": rng.randint(1, length - 1), "count": count},
            "shift": {"offset": 1},
        }.get(kind, {"count": count})
        made.append(Retrieval(f"r{i}", after=after, **fields))
    return Structure(length, token_dim, tuple(made))


def drawn_shape(rng: random.Random) -> Architecture:
    depth, head_dim, alike = rng.randint(1, 3), rng.choice([1, 2, 4, 8]), rng.random() < 0.6
    dims = [head_dim if alike else rng.choice([1, 2, 3, 8]) for _ in range(depth)]
    layers = tuple((rng.randint(1, 3 if depth < 3 else 2), n) for n in dims)
    return Architecture(layers, positions=rng.choice([0, 2, 2]), embed_dim=rng.choice([0, 0, 2, 4, 16]))


def small(structure: Structure) -> bool:
    return sum(len(r.positions) or r.count for r in structure.retrievals) <= 4


@pytest.mark.parametrize("cases", [150, pytest.param(3000, marks=pytest.mark.slow)])
def test_the_fast_analyser_agrees_with_the_exhaustive_one(cases):
    rng, compared = random.Random(cases), 0
    while compared < cases:
        structure, arch = drawn_structure(rng), drawn_shape(rng)
        if not small(structure) or unplaced(structure, arch):
            continue
        found = analyse(structure, arch).cost
        assert found.order == exhaustive_cost(structure, arch).order, (structure, arch)
        assert found.cheap == is_cheap(structure, arch), (structure, arch)
        compared += 1


@pytest.mark.parametrize("seed", range(20))
def test_more_heads_layers_or_dimensions_never_hurt(seed):
    rng = random.Random(seed)
    structure = Structure(
        16, 2, (Retrieval("a", count=rng.randint(1, 4)), Retrieval("b", order=2, count=rng.randint(1, 2)))
    )
    layers = tuple((rng.randint(1, 3), 4) for _ in range(rng.randint(1, 3)))
    base = Architecture(layers, positions=rng.choice([0, 2]), embed_dim=16)
    larger = [
        Architecture((*layers, (1, 4)), positions=base.positions, embed_dim=16),
        Architecture(tuple((h + 1, n) for h, n in layers), positions=base.positions, embed_dim=16),
        Architecture(layers, positions=base.positions, embed_dim=32),
        Architecture(layers, positions=2, embed_dim=16),
    ]
    cost = analyse(structure, base).cost.order
    assert all(analyse(structure, arch).cost.order <= cost for arch in larger)


@pytest.mark.parametrize("seed", range(12))
def test_the_staircase_of_least_heads_is_what_a_search_for_each_shape_finds(seed):
    structure = drawn_structure(random.Random(seed))
    for head_dim, column in _staircase(structure, [1, 4, 16], 3, 6):
        for (depth, positions), heads in column.items():
            assert heads == _least_heads(structure, depth, head_dim, positions, 6), (structure, depth, head_dim)


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_serves_every_look_up_once_and_acts_in_rising_layers(seed):
    """Look-ups of one kind are placed together and shared out afterwards: nothing is lost or done twice."""
    rng = random.Random(seed)
    windows = tuple(Retrieval(f"w{i}", window=rng.randint(2, 15), count=rng.randint(1, 3)) for i in range(3))
    structure = Structure(16, 2, (*windows, Retrieval("all", count=2), Retrieval("pairs", order=2, count=2)))
    found = analyse(structure, Architecture(((4, 8),) * rng.randint(2, 4), positions=2, embed_dim=64))
    waiting = {(g, 0): d.count for g, d in enumerate(found.demands)}
    for jobs in found.layers:
        moved = []
        for job in (j for j in jobs if j.demand >= 0):
            waiting[job.demand, job.act] -= job.number
            assert waiting[job.demand, job.act] >= 0
            last = len(found.demands[job.demand].acts)
            moved.append(((job.demand, job.act + 1 if job.way == "plain" else last), job.number))
        for place, number in moved:
            waiting[place] = waiting.get(place, 0) + number
    served = {place: number for place, number in waiting.items() if number}
    assert served == {(g, len(d.acts)): d.count for g, d in enumerate(found.demands)}


@pytest.mark.parametrize("seed", range(12))
def test_the_price_of_every_ranked_shape_is_that_of_its_own_prediction(seed):
    """Shapes are priced before their states are narrowed: narrowing must not change the cost."""
    advice = advise(drawn_structure(random.Random(seed)), eps=0.1, max_layers=3, max_heads=6)
    for choice in advice.ranked:
        assert not choice.prediction.feasible or choice.architecture.width == _power(10, choice.prediction.exponent)
