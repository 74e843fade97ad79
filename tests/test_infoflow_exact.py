"""The fast analyser: more never hurts, nothing is lost on the way, and prices are those of predictions."""

import random

import pytest

from headcount.nets import Architecture
from headcount.papers.infoflow import advise
from headcount.papers.infoflow.advise import _least_heads, _power, _staircase
from headcount.papers.infoflow.analysis import analyse
from headcount.structure import Retrieval, Structure
from tests.infoflow_laws import drawn_structure


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


@pytest.mark.parametrize("seed", range(3))
def test_the_staircase_of_least_heads_is_what_a_search_for_each_shape_finds(seed):
    structure = drawn_structure(random.Random(seed))
    for head_dim, column in _staircase(structure, [1, 4, 16], 3, 6, 1e-2):
        for (depth, positions), heads in column.items():
            assert heads == _least_heads(structure, depth, head_dim, positions, 6, 1e-2), (structure, depth, head_dim)


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


@pytest.mark.parametrize("seed", range(3))
def test_the_price_of_every_ranked_shape_is_that_of_its_own_prediction(seed):
    """Shapes are priced before their states are narrowed: narrowing must not change the cost."""
    advice = advise(drawn_structure(random.Random(seed)), eps=0.1, max_layers=2, max_heads=4)
    for choice in advice.ranked:
        assert not choice.prediction.feasible or choice.architecture.width == _power(10, choice.prediction.exponent)
