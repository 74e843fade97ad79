"""Sweeps: what a spec asks for, what is kept, and what a kill leaves behind."""

import dataclasses
import os
import signal
import subprocess
import sys

import pytest

from headcount.nets import Architecture
from headcount.results import Store
from headcount.results.store import address
from headcount.tasks import KthLargest
from headcount.training import Recipe, Sweep, sweep
from headcount.training.sweeps import banks, run

SPEC = """
name = "small"
seeds = 2
[task]
name = "LinearMax"
retrievals = 2
token_dim = 2
[grid]
lengths = [4, 6]
heads = [1, 2]
head_dim = 4
width = 8
[training]
samples = 64
validation = 32
epochs = 2
batch = 32
lr = 1e-2
"""


def changed(old: str, new: str) -> str:
    assert old in SPEC
    return SPEC.replace(old, new)


def test_a_spec_names_every_member_once():
    asked = Sweep.from_toml(SPEC)
    assert len(asked.members) == 2 * 2 * 2
    assert len({m.run(asked.recipe) for m in asked.members}) == 8
    assert {m.lr for m in asked.members} == {1e-2}
    assert asked.structure is not None and asked.structure.count == 2


def test_a_fixed_embedding_divides_its_width_over_the_heads_rounding_up():
    asked = Sweep.from_toml(changed("head_dim = 4", "embed_dim = 32").replace("heads = [1, 2]", "heads = [1, 3, 5]"))
    shapes = {m.arch.layers[0]: m.arch.embed_dim for m in asked.members}
    assert shapes == {(1, 32): 32, (3, 11): 33, (5, 7): 35}  # E = 33 and 35 at h = 3 and 5, as in the paper's Table 3


def test_shapes_give_every_layer_its_own_heads():
    asked = Sweep.from_toml(changed("heads = [1, 2]\nhead_dim = 4", "shapes = [[[2, 4], [1, 8]]]"))
    assert {m.arch.layers for m in asked.members} == {((2, 4), (1, 8))}


def test_shapes_may_be_written_as_they_are_printed():
    heads = "heads = [1, 2]\nhead_dim = 4"
    listed, written = changed(heads, "shapes = [[[2, 4], [1, 8]]]"), changed(heads, 'shapes = ["2x4+1x8"]')
    assert Sweep.from_toml(written).members == Sweep.from_toml(listed).members
    with pytest.raises(ValueError, match="layers must read heads x head_dim"):
        Sweep.from_toml(changed(heads, 'shapes = ["2*4"]'))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (changed("heads", "haeds"), r"unknown key 'haeds' in \[grid\]; did you mean 'heads'\?"),
        (changed("epochs", "epoch"), r"unknown key 'epoch' in \[training\]; did you mean 'epochs'\?"),
        (changed("[grid]", "[gird]"), "unknown key 'gird' in the spec; did you mean 'grid'"),
        (changed('name = "LinearMax"', 'name = "LinarMax"'), "did you mean 'LinearMax'"),
        (changed("token_dim = 2", "token_dmi = 2"), "did you mean 'token_dim'"),
        (changed("lengths = [4, 6]", ""), r"\[grid\] lacks lengths"),
        (changed("lengths = [4, 6]", "lengths = [4.5]"), "must be a whole number or a list of them"),
        (changed("heads = [1, 2]", "heads = [0]"), "layer 1 has 0 heads"),
        (changed("seeds = 2", "seeds = -1"), "seeds must be a count of at least 1"),
        (changed("epochs = 2", 'epochs = "two"'), r"epochs in \[training\] must be of type int"),
        (changed("head_dim = 4", "head_dim = 4\nembed_dim = 8"), "both head_dim and embed_dim"),
        (changed("batch = 32", "batch = 999"), "batch 999 is larger than the 64 samples"),
        ("name = 'x'", r"lacks a \[task\] section"),
        ("= 3", "Invalid"),
    ],
)
def test_a_bad_spec_is_refused_in_one_sentence(text, says):
    with pytest.raises(ValueError, match=says):
        Sweep.from_toml(text)


def test_running_again_trains_nothing_and_more_seeds_train_only_the_new_ones(tmp_path, monkeypatch):
    import headcount.training.bank_jobs as module

    trained = []
    true_train = module.train
    monkeypatch.setattr(module, "train", lambda bank, *a, **k: trained.extend(bank) or true_train(bank, *a, **k))
    store = Store.open(tmp_path, create=True)
    first = run(Sweep.from_toml(SPEC), store)
    assert len(trained) == len(first) == 8
    again = run(Sweep.from_toml(SPEC), store)
    assert len(trained) == 8 and again.rows == first.rows
    more = run(Sweep.from_toml(changed("seeds = 2", "seeds = 3")), store)
    assert len(trained) == 12 and len(more) == 12
    assert [r for r in more if r["seed"] < 2] == list(first.rows)
    fewer = run(Sweep.from_toml(changed("heads = [1, 2]", "heads = [2]")), store)
    assert len(trained) == 12 and {r["heads"] for r in fewer} == {2}


def test_banks_hold_every_member_once_and_stay_in_memory():
    recipe = Recipe(samples=64, validation=32, epochs=2, batch=32)
    archs = [Architecture(layers=((h, 4),), width=w) for h in (1, 2, 16) for w in (8, 64)]
    asked = Sweep.of([KthLargest(1, length) for length in (4, 8)], archs, 3, recipe)
    groups = list(banks(asked, "cpu"))
    assert sorted(m.run(recipe) for g in groups for m in g) == sorted(m.run(recipe) for m in asked.members)
    assert all(len({m.task.length for m in g}) == 1 for g in groups)
    assert len(list(banks(asked, "cuda"))) < len(groups)  # padding is cheaper than launches there


def test_sweep_in_python_keeps_its_rows_where_it_is_told(tmp_path):
    recipe = Recipe(samples=64, validation=32, epochs=1, batch=32)
    arch = Architecture(layers=((1, 4),), width=8)
    study = sweep(KthLargest(1, 4), [arch], lengths=[4, 6], seeds=[5], recipe=recipe, store=tmp_path / "x")
    assert study.values("length") == (4, 6) and study.values("seed") == (5,)
    assert Store.open(tmp_path / "x").study().rows == study.rows


def test_the_address_of_a_member_changes_with_everything_that_determines_it():
    asked = Sweep.from_toml(SPEC)
    member, recipe = asked.members[0], asked.recipe
    variants = [
        (dataclasses.replace(member, seed=7), recipe),
        (dataclasses.replace(member, data_seed=7), recipe),
        (dataclasses.replace(member, lr=0.5), recipe),
        (dataclasses.replace(member, weight_decay=0.5), recipe),
        (dataclasses.replace(member, net=Architecture(layers=((1, 5),), width=8)), recipe),
        (member, dataclasses.replace(recipe, epochs=3)),
        (member, dataclasses.replace(recipe, dtype="float64")),
    ]
    assert len({member.run(recipe), *(m.run(r) for m, r in variants)}) == 8
    assert all(m.run(r) == address(m.content(r)) for m, r in [(member, recipe), *variants])


KILLED = """
import os, signal, sys
from headcount.cli import main
from headcount.results import Store

def add(self, finished, environment, true_add=Store.add):
    true_add(self, finished, environment)
    os.kill(os.getpid(), signal.SIGKILL)

Store.add = add
main(sys.argv[1:])
"""


def test_a_sweep_killed_in_the_middle_ends_with_the_rows_of_one_left_alone(tmp_path):
    spec = tmp_path / "spec.toml"
    spec.write_text(changed("lengths = [4, 6]", "lengths = [4, 6, 8, 10]"))
    # One thread each: which core sums what must not depend on how busy the machine is.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def swept(store, *program):
        words = [sys.executable, *program, "sweep", str(spec), "--store", str(tmp_path / store)]
        return subprocess.run(words, stdout=subprocess.DEVNULL, env=environment).returncode

    assert swept("killed", "-c", KILLED) == -signal.SIGKILL
    assert len(Store.open(tmp_path / "killed").study()) == 4, "the kill was to fall between two banks"
    assert [swept(store, "-m", "headcount") for store in ("killed", "alone")] == [0, 0]
    killed, alone = (Store.open(tmp_path / s).study() for s in ("killed", "alone"))
    assert len(alone) == 16
    assert killed.rows == alone.rows
