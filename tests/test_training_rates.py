"""Learning rates in training: schedules, rates as an axis, factors by width, and a rate chosen per shape."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from headcount.kernels.optimiser import AdamW
from headcount.kernels.rate_schedule import COSINE, Schedule, cosine
from headcount.nets import Architecture, Transformer
from headcount.tasks import KthLargest, LinearMax
from headcount.training import Member, RateSearch, Recipe, Sweep, sweep, train, warmup_stable_decay, widths
from headcount.training.width_factors import Factor
from tests.coordinate_check import coordinate_slopes

TASK = KthLargest(rank=1, length=4)
SMALL = Architecture(layers=((1, 4),), width=8)
SHORT = Recipe(samples=64, validation=32, epochs=4, batch=32, evaluations=2)


def test_a_cosine_goes_without_saying_so_old_addresses_stay():
    assert Member(TASK, SMALL).run(Recipe()) == Member(TASK, SMALL).run(Recipe(schedule=cosine()))
    content = Member(TASK, SMALL).content(Recipe())
    assert "schedule" not in content["recipe"] and "base" not in content
    assert not {"schedule", "batch", "factors"} & set(Member(TASK, SMALL).row(Recipe()))


def test_another_schedule_is_another_row():
    wsd = Recipe(schedule=warmup_stable_decay())
    row = Member(TASK, SMALL).row(wsd)
    assert row["run"] != Member(TASK, SMALL).run(Recipe())
    assert (row["schedule"], row["batch"]) == ("wsd 0.2", 256)
    assert Member(TASK, SMALL).run(wsd) != Member(TASK, SMALL).run(Recipe(schedule=warmup_stable_decay(0.1)))


def test_warm_up_stable_decay_is_flat_between_two_lines():
    share = [warmup_stable_decay(0.2).share(torch.tensor(float(s)), 100, 0.1).item() for s in range(1, 101)]
    assert share[:10] == pytest.approx([s / 10 for s in range(1, 11)])
    assert share[10:80] == [1.0] * 70
    assert share[80:] == pytest.approx([(19 - s) / 20 for s in range(20)])


def test_the_cosine_is_the_one_it_was():
    for step in range(1, 31):
        rise = 3
        was = min(step / rise, 0.5 * (1 + np.cos(np.pi * max(step - rise, 0) / 27)))
        assert COSINE.share(torch.tensor(float(step)), 30, 0.1).item() == pytest.approx(was, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Schedule("cosin"), "no schedule 'cosin'"),
        (lambda: warmup_stable_decay(0.0), "share of steps spent falling"),
        (lambda: Schedule("cosine", 0.2), "decay has no meaning"),
        (lambda: RateSearch(rates=(0.1,)), "three positive rates"),
        (lambda: RateSearch(share=2.0), "share is the part of the steps"),
        (lambda: Sweep.of(TASK, [SMALL], 1, SHORT, lr="bets"), 'lr is a rate, several, or "best"'),
        (lambda: widths(SMALL).of(Architecture(layers=((1, 4),) * 2, width=8)), "only widths may differ"),
    ],
)
def test_mistakes_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


SPEC = """
seeds = 2
[task]
name = "KthLargest"
rank = 1
[grid]
lengths = 4
heads = [1, 2]
head_dim = 4
{grid}
[training]
samples = 64
validation = 32
epochs = 4
batch = 32
{training}
"""


def test_a_spec_names_its_schedule_and_its_rates():
    asked = Sweep.from_toml(SPEC.format(grid="lr = [0.001, 0.01]", training='schedule = "wsd"'))
    assert asked.recipe.schedule == warmup_stable_decay(0.2) and len(asked.members) == 8
    assert asked.to_json()["recipe"]["schedule"] == {"shape": "wsd", "decay": 0.2}
    table = Sweep.from_toml(SPEC.format(grid="", training='schedule = {shape = "wsd", decay = 0.1}'))
    assert table.recipe.schedule.decay == 0.1
    best = Sweep.from_toml(SPEC.format(grid="", training='lr = "best"'))
    assert best.search == RateSearch()
    for grid, training, words in (
        ("", 'schedule = "wds"', "no schedule 'wds'"),
        ("lr = 0.1", 'lr = "best"', "stands both"),
        ("", "schedule = 3", '"cosine" or "wsd"'),
    ):
        with pytest.raises(ValueError, match=words):
            Sweep.from_toml(SPEC.format(grid=grid, training=training))


def test_several_rates_are_an_axis_of_a_sweep():
    study = sweep(TASK, [SMALL], seeds=2, recipe=SHORT, lr=(1e-3, 1e-2))
    assert study.values("lr") == (1e-3, 1e-2) and len(study) == 4


def test_a_bank_with_a_schedule_and_factors_trains_as_torch_does():
    base, arch = Architecture(layers=((2, 2),), width=4), Architecture(layers=((2, 6),), width=12)
    recipe = dataclasses.replace(SHORT, epochs=1, dtype="float64", schedule=warmup_stable_decay(0.5))
    net = Transformer(arch, 4, seed=3).double()
    factors = widths(base).of(arch)
    x = torch.randn(recipe.batch, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = x.amax((1, 2))
    for name, p in net.named_parameters():
        p.data *= factors[name].start
    groups = [
        {"params": [p], "lr": 0.01, "weight_decay": 0.1 * factors[name].decay} for name, p in net.named_parameters()
    ]
    adam = torch.optim.AdamW(groups, lr=0.01)
    theta = torch.cat([p.detach().flatten() for p in net.parameters()])[None].clone()
    rates = torch.cat([torch.full_like(p, factors[n].rate).flatten() for n, p in net.named_parameters()])[None]
    ours = AdamW(theta, 0.01 * rates, 0.1 / rates, 4, 0.25, recipe.schedule)
    for step in range(1, 5):
        share = float(recipe.schedule.share(torch.tensor(float(step)), 4, 0.25))
        for group, (name, _) in zip(adam.param_groups, net.named_parameters(), strict=True):
            group["lr"] = 0.01 * factors[name].rate * share
        adam.zero_grad()
        (net(x) - y).square().mean().backward()
        gradient = torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])[None]
        adam.step()
        ours.update(theta, gradient, torch.ones(1, dtype=torch.bool))
    assert torch.allclose(theta[0], torch.cat([p.detach().flatten() for p in net.parameters()]), atol=1e-12)
    assert not ours.usual and AdamW(theta, torch.ones(1), torch.ones(1), 4, 0.25).usual


def test_the_factors_of_the_base_are_one_and_change_nothing():
    alone, against = (train([Member(TASK, SMALL, base=base)], SHORT).rows[0] for base in (None, SMALL))
    assert alone["nmse"] == against["nmse"] and alone["run"] != against["run"]
    assert against["factors"] == "1x4, width 8" and "factors" not in alone


def test_a_larger_network_with_a_base_trains_differently_and_alone_in_its_bank_the_same():
    wide = Architecture(layers=((2, 8),), width=32)
    members = [Member(TASK, SMALL), Member(TASK, wide, base=SMALL), Member(TASK, wide)]
    rows = train(members, SHORT).rows
    single = train(members[1:2], SHORT).rows[0]
    assert rows[1]["nmse"] == pytest.approx(single["nmse"], rel=1e-4) and rows[1]["nmse"] != rows[2]["nmse"]


def grown(k: int, heads: bool = False) -> Architecture:
    return Architecture(layers=((2 * k, 2),) * 2 if heads else ((2, 2 * k),) * 2, width=4 * k)


GROWN = [grown(k) for k in (16, 32, 64)]
RIGHT = widths(grown(1)).of


@pytest.mark.parametrize("heads", [False, True])
def test_with_the_right_factors_every_coordinate_moves_alike(heads):
    slopes = coordinate_slopes([grown(k, heads) for k in (16, 32, 64)], RIGHT)
    assert len(slopes) == 18 and max(abs(s) for s in slopes.values()) < 0.3, slopes


def left_out(name: str, change):
    def factors(arch):
        return {n: change(f) if n == name else f for n, f in RIGHT(arch).items()}

    return factors


MATRICES = [name for name, f in RIGHT(grown(2)).items() if f.rate != 1]


@pytest.mark.parametrize("name", MATRICES)
def test_a_matrix_without_its_rate_moves_too_much(name):
    wrong = left_out(name, lambda f: Factor(f.temperature, f.start, f.temperature))
    assert coordinate_slopes(GROWN[::2], wrong, seeds=(0,))[name] > 0.3


@pytest.mark.parametrize("name", ["cls", "encoder.inner.weight"])
def test_what_has_fixed_inputs_must_keep_its_rate(name):
    def divided(arch):
        return {n: Factor(4 / arch.width, f.start) if n == name else f for n, f in RIGHT(arch).items()}

    assert coordinate_slopes(GROWN[::2], divided, seeds=(0,))[name] < -0.7


def test_a_read_out_that_starts_too_large_and_a_cold_softmax_show():
    wrong = left_out("read_out.outer.weight", lambda f: Factor(f.rate, 1.0))
    assert coordinate_slopes(GROWN, wrong)["answer"] > 0.3

    def cold(arch):
        right = RIGHT(arch)
        return {n: Factor(f.rate / f.temperature, f.start / f.temperature) for n, f in right.items()}

    slopes = coordinate_slopes(GROWN, cold)
    assert max(slopes["scores.0"], slopes["scores.1"]) > 0.3


def test_the_best_rate_is_searched_for_every_shape_and_its_cost_is_stated(tmp_path):
    archs = [SMALL, Architecture(layers=((2, 4),), width=8)]
    search = RateSearch(rates=(1e-5, 1e-2, 5.0), share=0.5)
    recipe = dataclasses.replace(SHORT, epochs=40)
    study = sweep(TASK, archs, seeds=2, recipe=recipe, lr=search, store=tmp_path)
    said = study.spec["rate_search"]
    assert len(study) == 4 and study.values("lr") == (1e-2,)
    assert (said["networks"], said["steps"], said["at_end"]) == (6, 40, 0)
    assert said["cost"] == pytest.approx(6 * 40 / (4 * 80)) == pytest.approx(search.cost(seeds=2))
    again = sweep(TASK, archs, seeds=2, recipe=recipe, lr=search, store=tmp_path)
    assert again.rows == study.rows


def test_best_is_a_word_for_the_usual_search():
    asked = Sweep.of(LinearMax.random(1, 4, 4, seed=0), [SMALL], 3, SHORT, lr="best")
    assert asked.search == RateSearch() and len(RateSearch().trials(asked.members)) == 7
