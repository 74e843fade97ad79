"""A plain function as a task, look-ups with an outer function, and the networks that are composed for them."""

import math

import pytest
import torch

import headcount as hc
from headcount.certificates import load
from headcount.certificates.outer_nets import lipschitz_net, ridge_net
from headcount.papers.infoflow.constructible import blueprints
from headcount.structure import Retrieval
from headcount.tasks import (
    Affine,
    Exponential,
    LipschitzOuter,
    Lookups,
    MaxOf,
    PlaceOf,
    RankOf,
    Ridges,
    Sine,
    Square,
    WellOf,
    describe,
)
from headcount.tasks.sourced import SourcedFunction


def draw(task, batch=50, seed=0):
    return task.sample(batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def largest_minus_smallest(x):
    return max(x.flatten().tolist()) - min(x.flatten().tolist())  # plain Python, one sequence


@pytest.mark.parametrize(
    "function",
    [
        largest_minus_smallest,
        lambda x: x.max() - x.min(),
        lambda x: x.amax(dim=(-2, -1)) - x.amin(dim=(-2, -1)),
    ],
)
def test_one_function_written_three_ways_is_one_target(function):
    task = hc.task(function, length=5, retrievals=2)
    x, y = draw(task)
    torch.testing.assert_close(y, x.amax(dim=(1, 2)) - x.amin(dim=(1, 2)))
    assert task.structure.count == 2 and task.token_dim == 1


def test_a_function_that_answers_by_the_batch_is_told_from_one_that_only_looks_so():
    first = hc.task(lambda x: x[0].sum(), length=7, token_dim=7, retrievals=1)  # a batch of 7 has one, too
    x, y = draw(first)
    torch.testing.assert_close(y, x[:, 0].sum(dim=1))
    rows = hc.task(lambda x: x[..., 0].amax(dim=-1), length=7, token_dim=7, retrievals=1)
    assert rows.batched and not first.batched


def test_tokens_may_be_drawn_by_a_function_of_ones_own():
    def coins(batch, generator):
        return torch.randint(2, (batch, 4, 1), generator=generator)

    task = hc.task(lambda x: x.sum(), length=4, retrievals=1, sample=coins)
    x, y = draw(task)
    assert set(x.unique().tolist()) == {0.0, 1.0} and torch.equal(y, x.sum(dim=(1, 2)))
    with pytest.raises(ValueError, match=r"sample must return tokens of shape \(7, 5, 1\)"):
        draw(hc.task(lambda x: x.sum(), length=5, retrievals=1, sample=lambda b, g: torch.zeros(b, 4, 1)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retrievals": 0}, "count must be at least 1, got 0"),
        ({"retrievals": []}, "retrievals is empty"),
        ({"retrievals": 1, "sample": "unifrom"}, "did you mean 'uniform'"),
        ({"retrievals": 1, "lipschitz": 1.0}, "lipschitz and Ridges speak of what look-ups find"),
        ({"retrievals": [MaxOf((1.0, 1.0)), MaxOf((1.0,))]}, "tokens have dimension 2"),
        ({"retrievals": [PlaceOf(9, (1.0,))]}, r"position 9 is outside 0\.\.4"),
        ({"retrievals": [RankOf(6, (1.0,))]}, r"rank must lie in 1\.\.5"),
        ({"retrievals": [WellOf((1.5,))]}, "a well needs its centre and the tokens"),
        ({"retrievals": [MaxOf((1.0,))], "lipschitz": -1.0}, "lipschitz must be a finite number above 0"),
    ],
)
def test_what_makes_no_task_is_refused_where_it_is_said(options, words):
    with pytest.raises(ValueError, match=words):
        hc.task(lambda x: x.sum(), length=5, **options)


def test_a_function_that_gives_no_number_is_refused():
    with pytest.raises(ValueError, match="one number for a sequence"):
        hc.task(lambda x: x, length=3, retrievals=1)


def test_an_edited_function_is_another_task():
    one, two = (hc.task(lambda x, k=k: k * x.max(), length=4, retrievals=1) for k in (1, 2))
    again = hc.task(lambda x, k=1: k * x.max(), length=4, retrievals=1)
    assert describe(one)["function"]["source"] != describe(two)["function"]["source"]
    assert describe(one)["function"]["source"] == describe(again)["function"]["source"]
    three, four = (hc.task(scaled(k), length=4, retrievals=1) for k in (3, 4))  # a closure
    assert three != four and three == hc.task(scaled(3), length=4, retrievals=1)


def scaled(factor):
    return lambda x: factor * x.max()


def test_of_a_bare_function_nothing_can_be_built_and_the_way_out_is_named():
    task = hc.task(lambda x: x.max(), length=4, retrievals=Retrieval("largest"))
    with pytest.raises(ValueError, match=r"say what it looks up: task\(..., retrievals=\[MaxOf"):
        hc.build(task)
    unknown = hc.task(lambda z: z.sum(dim=1), length=4, retrievals=[MaxOf((1.0,))])
    with pytest.raises(ValueError, match="nothing is known of the outer function"):
        hc.build(unknown)


# ------------------------------------------------------------------------------------------------ outer functions


def largest_gap(net, function, ranges, count=20_000):
    z = torch.rand(count, len(ranges), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    low, high = (torch.tensor([r[i] for r in ranges], dtype=torch.float64) for i in (0, 1))
    z = low + (high - low) * z
    return float((net(z)[:, 0] - function(z)).abs().max())


@pytest.mark.parametrize(
    ("function", "constant", "ranges", "error"),
    [
        (lambda z: z.amax(dim=1), 1.0, ((0.0, 1.0), (-1.0, 1.0)), 0.1),
        (lambda z: (z[:, 0] - z[:, 1]).abs(), 1.0, ((0.0, 1.0), (0.0, 2.0)), 0.2),
        (lambda z: torch.sin(3 * z[:, 0]), 3.0, ((-2.0, 2.0),), 0.1),
        (lambda z: (z[:, 0] > 0).double() * z[:, 0] + z.sum(dim=1).cos(), 2.0, ((-0.5, 0.5),) * 3, 0.7),
    ],
)
def test_a_lipschitz_outer_function_stays_within_its_error_and_comes_near_it(function, constant, ranges, error):
    outer = LipschitzOuter(SourcedFunction.of(function), constant, len(ranges))
    made = lipschitz_net(outer, ranges, error)
    gap = largest_gap(made.net, function, ranges)
    assert made.error <= error and made.error / 3 < gap <= made.error + made.rounding


def test_a_grid_that_is_too_fine_names_an_eps_that_would_do():
    outer = LipschitzOuter(SourcedFunction.of(lambda z: z.amax(dim=1)), 1.0, 3)
    with pytest.raises(ValueError, match=r"an eps about .* times as large would do, or a sum of ridges"):
        lipschitz_net(outer, ((0.0, 1.0),) * 3, 1e-2)


def test_ridges_of_different_ranges_stay_within_their_error_and_come_near_it():
    outer = Ridges([[1.0, -2.0], [0.5, 0.5]], (Square(), Sine(2.0, 3.0)))
    ranges = ((-1.0, 3.0), (0.0, 1.0))
    made = ridge_net(outer, ranges, 1e-2)
    assert made.error / 3 < largest_gap(made.net, outer, ranges) <= made.error + made.rounding <= 1.1e-2


# ------------------------------------------------------------------------------------------------ whole networks

X, Y = (1.0, 0.0), (0.0, 1.0)
COMPOSED = {
    "maxima, a square": Lookups([MaxOf(X), MaxOf(Y)], 6, Ridges([[1.0, -1.0]], (Square(),))),
    "a place and a well": Lookups([PlaceOf(2, X), WellOf((0.3, 0.6))], 6, Ridges([[1.0, 2.0]], (Exponential(),))),
    "the second largest and the smallest": Lookups([RankOf(2, X), RankOf(5, Y)], 5, Ridges.sum(2)),
    "the second smallest": Lookups([RankOf(5, (1.0,))], 6, Ridges([[1.0]], (Sine(1.0, 2.0),))),
    "normal tokens": Lookups([MaxOf(X), PlaceOf(0, Y)], 4, Ridges([[1.0, 1.0]], (Affine(),)), "gaussian", -9.0, 9.0),
    "the larger of two maxima": Lookups(
        [MaxOf(X), MaxOf(Y)], 5, LipschitzOuter(SourcedFunction.of(lambda z: z.amax(dim=1)), 1.0, 2)
    ),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_every_composition_keeps_its_certificate_and_comes_near_it(name):
    task = COMPOSED[name]
    built = hc.build(task, eps=0.1)
    check = built.check()
    assert built.certificate.error <= 0.1
    assert check.gap <= built.certificate.error
    assert check.gap >= built.certificate.error / 10  # a promise ten times too loose would fail here
    (blueprint,) = blueprints(task)
    assert built.net.shape.layers == blueprint.layers and built.net.shape.embed_dim == blueprint.embed_dim


def test_a_part_that_is_broken_breaks_the_certificate():
    built = hc.build(COMPOSED["maxima, a square"], eps=0.1)
    with torch.no_grad():
        built.net.parts[0].attention[0].query.mul_(0.2)  # a softmax five times too soft
    assert not built.check().holds


def test_a_composition_is_saved_and_read_and_an_own_function_must_be_given_again(tmp_path):
    for name in ("a place and a well", "the larger of two maxima"):
        task = COMPOSED[name]
        built = hc.build(task, eps=0.1)
        path = built.save(tmp_path / "net.safetensors")
        again = load(path, task=task)
        x, y = draw(task)
        torch.testing.assert_close(again.net(x), built.net(x), rtol=0, atol=0)
        assert again.certificate.error == built.certificate.error and float((again.net(x) - y).abs().max()) <= 0.1
    with pytest.raises(ValueError, match="a file holds the name and no code"):
        load(path).task(x)


def test_an_inner_rank_has_no_network_on_all_inputs():
    task = Lookups([RankOf(3, (1.0,))], 7, Ridges.sum(1))
    assert blueprints(task) == ()
    with pytest.raises(ValueError, match="ranks 1, 2, 6 and 7 have a certified network"):
        hc.build(task)


def test_a_composition_of_linear_maxima_is_the_task_that_ships():
    a = [[1.0, 0.5], [-0.3, 1.0]]
    own = Lookups([MaxOf(v) for v in a], 6, Ridges.sum(2), "gaussian", -9.0, 9.0)
    shipped = hc.tasks.LinearMax(a, 6)
    x, y = draw(shipped)
    torch.testing.assert_close(own(x), y)
    one, two = hc.build(own, eps=0.05), hc.build(shipped, eps=0.05)
    gap = (one.net(x) - two.net(x)).abs().max()
    assert gap <= one.certificate.error + two.certificate.error and math.isfinite(gap)
