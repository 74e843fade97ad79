"""The networks of a sweep: in the target's own units, started from what was built, and what their heads look at."""

import json
from dataclasses import replace

import pytest
import torch

import headcount as hc
from headcount.certificates.as_transformer import as_transformer
from headcount.cli import main
from headcount.fits import starts
from headcount.nets import Architecture
from headcount.papers.infoflow.starting import built_start
from headcount.report import attention_page
from headcount.results import Store
from headcount.results.attention_record import AttentionRecord
from headcount.tasks import (
    Affine,
    KthLargest,
    LinearMax,
    Lookups,
    MaxOf,
    PlaceOf,
    PositionSum,
    RankOf,
    Ridges,
    WellOf,
    Wells,
)
from headcount.tasks.winners import winners
from headcount.training import Recipe
from headcount.training.attention_maps import attention_in, attention_of
from headcount.training.kept_networks import task_of

TWO = LinearMax([[1.0, 0.0], [0.0, 1.0]], length=6)
SHORT = Recipe(samples=200, validation=100, epochs=2, batch=50)


def shape(heads, width=16, embed_dim=8, positions=0):
    return Architecture(((heads, 4),), width=width, embed_dim=embed_dim, positions=positions)


def draw(task, batch=400, seed=9):
    return task.sample(batch, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("kept", [True, False])
def test_a_rows_network_answers_in_the_units_of_the_target(kept, tmp_path):
    task = hc.task(lambda x: 1000 + 50 * x.max(), length=4, retrievals=1)
    recipe = Recipe(samples=400, validation=200, epochs=20, batch=50)
    study = hc.sweep(task, [shape(1)], seeds=2, recipe=recipe, lr=1e-2, store=tmp_path if kept else None)
    x, y = draw(task)
    for row in study.where(seed=1):
        gap = study.net(row)(x).detach() - y
        assert float(gap.square().mean() / y.var()) == pytest.approx(row["nmse"], rel=0.6)  # other samples, one error
        assert row["nmse"] < 0.5


def test_a_study_without_networks_says_how_to_keep_them():
    study = hc.sweep(TWO, [shape(1)], seeds=1, recipe=SHORT, save="none")
    with pytest.raises(ValueError, match=r'sweep\(..., save="all"\) keeps them'):
        study.net(study.rows[0])


BUILT = {
    "maxima": (TWO, shape(2)),
    "more heads than needed": (TWO, shape(5, width=24, embed_dim=20)),
    "wells": (Wells([[0.2, 0.3], [0.8, 0.5]], 5), shape(2, width=64)),
    "a place and a maximum": (
        Lookups([PlaceOf(1, (1.0, 0.0)), MaxOf((0.0, 1.0))], 5, Ridges.sum(2)),
        shape(2, width=24, embed_dim=8, positions=1),
    ),
}


@pytest.mark.parametrize("name", BUILT)
def test_a_built_network_is_the_same_function_as_the_plain_one_that_training_starts_from(name):
    task, arch = BUILT[name]
    net = built_start(task, arch)
    x, y = draw(task)
    assert net is not None and net.arch == arch
    assert float((net(x.float()).detach().double() - y).square().mean() / y.var()) < 1e-2


def test_where_nothing_certified_fits_there_is_nothing_to_start_from():
    assert built_start(TWO, shape(1)) is None  # one head for two retrievals
    assert built_start(TWO, shape(2, width=1)) is None  # two coordinates take two units
    place = Lookups([PlaceOf(1, (1.0, 0.0))], 5, Ridges.sum(1))
    assert built_start(place, shape(2)) is None  # no position features
    assert built_start(KthLargest(2, 6), Architecture(((1, 2), (1, 2)), positions=1, embed_dim=8)) is None  # two layers
    built = hc.build(TWO, 0.1)
    assert as_transformer(built.net, Architecture(((2, 4), (2, 4)), embed_dim=8), draw(TWO)[0]) is None


def test_a_sweep_from_the_built_network_tells_what_was_not_found_from_what_is_doubtful(tmp_path):
    study = hc.sweep(TWO, [shape(1), shape(2)], seeds=2, recipe=SHORT, lr=1e-3, start="built", store=tmp_path)
    assert [(row["heads"], row.get("start", "random")) for row in study].count((2, "built")) == 2
    few, enough = starts(study)
    assert (few.outcome, few.built) == ("doubtful", None)  # the calculus counts too few heads: no proof
    assert enough.outcome == "not found" and enough.built < 1e-2 < enough.random
    assert "from a built one" in enough.sentence
    again = hc.sweep(TWO, [shape(1), shape(2)], seeds=2, recipe=SHORT, lr=1e-3, start="built", store=tmp_path)
    assert again.rows == study.rows  # kept, and not mixed up with random starts
    assert len({row["run"] for row in study}) == len(study) == 6
    assert study.to_csv().splitlines()[0].endswith("start")


def test_a_bound_bars_a_shape_under_its_conditions_and_at_its_own_lengths():
    task, few = LinearMax([[1.0, 0.0], [0.0, 1.0]], 48), Architecture(((1, 8),), width=8)
    recipe = Recipe(samples=64, validation=32, epochs=1, batch=32)
    study = hc.sweep(task, [few], lengths=(8, 48, 96), seeds=1, recipe=recipe, start="built")
    for verdict in starts(study):  # the bound speaks from some length on, and of networks with bounded weights
        said = hc.predict(replace(task, length=verdict.length), few)
        assert verdict.proved == (said.warrant == "proved") and verdict.cheap == said.cheap
        assert verdict.outcome == ("barred" if verdict.proved else "doubtful")
        assert ("weights at most 1" if verdict.proved else "bounded weights") in verdict.sentence
    assert {verdict.outcome for verdict in starts(study)} == {"barred", "doubtful"}
    old = replace(study, spec=study.spec | {"shapes": {"1x8": {"cheap": False, "warrant": "proved"}}})
    assert {verdict.outcome for verdict in starts(old)} == {"unknown"}  # of no length in particular


def test_training_from_a_built_network_that_random_ones_reach_too_is_found():
    task = hc.task(Ridges.sum(1), length=4, retrievals=[MaxOf((1.0,))])
    recipe = Recipe(samples=1000, validation=300, epochs=60, batch=50)
    study = hc.sweep(task, [shape(1, embed_dim=4)], seeds=2, recipe=recipe, lr=1e-2, start="built")
    (only,) = starts(study)
    assert only.built is not None and only.random < 0.05
    assert (only.outcome == "found") == (only.random <= 10 * only.built)


def test_a_search_for_the_rate_does_not_start_from_built_networks():
    with pytest.raises(ValueError, match="begins at random networks"):
        hc.sweep(TWO, [shape(2)], start="built", lr="best")


UNEVEN = Ridges([[1.0, 3.0, 0.5, 0.3]], (Affine(),))  # no two of them cancel
FINDS = [
    TWO,
    Wells([[0.2], [0.8]], 8, windows=[[0, 1, 2], [4, 5, 6, 7]]),
    KthLargest(3, 7),
    PositionSum((0, 3), 5),
    Lookups([MaxOf((1.0,)), WellOf((0.4,)), PlaceOf(2, (1.0,)), RankOf(2, (-1.0,))], 6, UNEVEN),
]


@pytest.mark.parametrize("task", FINDS, ids=lambda task: type(task).__name__)
def test_the_target_moves_with_the_tokens_that_retrievals_find_and_with_no_other(task):
    x, _ = draw(task, batch=50)
    x.requires_grad_()
    (slope,) = torch.autograd.grad(task(x).sum(), x)
    moved = slope.abs().sum(dim=2) > 0
    found = torch.zeros_like(moved)
    for place in winners(task, x.detach()).values():
        found[torch.arange(len(x)), place] = True
    assert torch.equal(moved, found)


def test_a_built_network_looks_at_what_its_task_finds_and_a_random_one_does_not():
    arch = shape(2)
    from headcount.nets import Transformer
    from headcount.nets.target_units import TargetUnits

    row = {"nmse": 1e-3, "run": "r"}
    built = attention_of(TargetUnits(built_start(TWO, arch), 0.0, 1.0), TWO, row)
    assert [share > 0.9 for _, share in built.best] == [True, True] and built.found == ("max 1", "max 2")
    assert built.maps[0].weights[0][built.maps[0].wanted[0]] > 0.5
    fresh = attention_of(TargetUnits(Transformer(arch, 2, seed=0), 0.0, 1.0), TWO, row)
    assert fresh.found == () or max(share for _, share in fresh.best) < 0.9


def test_one_head_counts_for_one_retrieval():
    both = AttentionRecord("t", "1x2", 4, 0.1, ("a", "b"), ((0.9, 0.8),), 0.25, 10)
    assert both.found == ("a",) and both.best == ((0, 0.9), (0, 0.8))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    hc.sweep(TWO, [shape(1), shape(2)], seeds=1, recipe=SHORT, start="built", store=folder)
    return folder


def test_the_command_prints_the_matrix_and_writes_the_page(run, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["report", "--attention", str(run), "--out", str(tmp_path), "--inputs", "2"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and "max 1" in out
    assert out.strip().splitlines()[-1].startswith("So: two of 2 retrievals are looked up by a head of their own")
    page = (tmp_path / "attention.html").read_text()
    assert "Input 2" in page and "Input 3" not in page and "https://" not in page
    with pytest.raises(SystemExit):
        main(["report", "--attention", str(run), "--heads", "1", "--json", "--out", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)
    assert told["layers"] == "1x4" and len(told["hits"]) == 1 and len(told["found"]) <= 1


def test_the_report_shows_who_looks_at_what(run, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(run), "--out", str(tmp_path)])
    assert "\nSo: open " in capsys.readouterr().out
    assert "Who looks at what" in (tmp_path / "report.html").read_text()


def test_what_cannot_be_looked_at_is_refused_with_the_way_out(run, tmp_path, capsys):
    hc.sweep(TWO, [shape(1)], seeds=1, recipe=SHORT, store=tmp_path / "bare", save="none")
    bare = hc.sweep(hc.task(lambda x: x.max(), length=3, retrievals=1), [shape(1)], seeds=1, recipe=SHORT)
    with pytest.raises(ValueError, match="not stated one by one"):
        attention_of(bare.net(bare.rows[0]), hc.task(lambda x: x.max(), length=3, retrievals=1), bare.rows[0])
    bare_run = [str(tmp_path / "bare")]
    for options, words in ((bare_run, "`save` is best or all"), ([str(run), "--heads", "9"], "no row with 9 heads")):
        with pytest.raises(SystemExit) as stop:
            main(["report", "--attention", *options])
        assert stop.value.code == 2 and words in capsys.readouterr().err


def test_the_task_of_a_row_is_read_back_from_its_store(run):
    store = Store.open(run)
    assert task_of(store, store.study().rows[0]["run"]) == TWO
    record = attention_in(run, heads=2)
    assert record.task == "LinearMax" and "<svg" in attention_page(record)
