"""A row that was lost comes back bit for bit: it is trained beside the members that it was trained with."""

import contextlib
import json
import random
import sqlite3

import pytest

from headcount.results import Store
from headcount.training import Sweep
from headcount.training.leased_banks import LeasedBank
from headcount.training.sweeps import banks, run
from headcount.training.workers import LocalWorkers
from tests.faults.sweep_specs import rows_of, with_

SHAPES = (("heads = [1, 2]", "heads = [1, 2, 3, 7]"), ("width = 8", "width = 12"), ("head_dim = 4", "head_dim = 2"))
LOSSES = {
    "deleted": "DELETE FROM rows WHERE run = ?",
    "changed": "UPDATE rows SET row = row || ' ' WHERE run = ?",
    "checksum": "UPDATE rows SET checksum = 'x' WHERE run = ?",
    "member": "UPDATE rows SET member = '[' WHERE run = ?",
}


def spec(seeds):
    return Sweep.from_toml(with_(*SHAPES, ("seeds = 2", f"seeds = {seeds}")))


def lose(store, runs, way="deleted"):
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        db.executemany(LOSSES[way], [(run,) for run in runs])


def some(rng, store):
    """A few of the runs of a store, or most of them."""
    runs = [row["run"] for row in store.study()]
    return rng.sample(runs, rng.choice((1, 2, len(runs) // 2, len(runs) - 1)))


@pytest.mark.parametrize("number", range(10))
def test_rows_that_are_lost_come_back_bit_for_bit(tmp_path, number):
    rng, store = random.Random(number), Store.open(tmp_path, create=True)
    seeds = rng.randint(1, 5)
    run(spec(seeds), store)
    before = rows_of(tmp_path)
    lose(store, some(rng, store), rng.choice(list(LOSSES)))
    run(spec(seeds), store)
    assert json.dumps(rows_of(tmp_path)) == json.dumps(before)


@pytest.mark.parametrize("number", range(4))
def test_so_do_rows_of_a_bank_that_was_trained_beside_rows_of_another_spec(tmp_path, number):
    """Two seeds, then four: the last two share a bank of their own, and a row of theirs is trained with these alone."""
    rng, store = random.Random(f"grown {number}"), Store.open(tmp_path, create=True)
    run(spec(2), store)
    run(spec(4), store)
    before = rows_of(tmp_path)
    lost = rng.choice([row["run"] for row in before if (row["seed"] > 1) == (number % 2)])
    lose(store, [lost])
    run(spec(4), store)
    assert json.dumps(rows_of(tmp_path)) == json.dumps(before)


def test_so_do_rows_that_other_processes_train(tmp_path):
    store = Store.open(tmp_path, create=True)
    run(spec(3), store)
    before = rows_of(tmp_path)
    lose(store, some(random.Random(0), store))
    run(spec(3), store, workers=lambda: LocalWorkers(2))
    assert json.dumps(rows_of(tmp_path)) == json.dumps(before)


def test_who_is_trained_again_is_told_by_the_rows_that_are_there():
    asked = spec(2)
    bank = LeasedBank.of(max(banks(asked, "cpu"), key=len), asked.recipe)
    assert len(bank.runs) > 3
    first, second, *others = bank.runs
    here = dict.fromkeys(bank.runs[1:], bank.address)
    assert bank.to_train({first}, here) == list(bank.members), "beside all that it was trained with"
    assert bank.to_train({first}, {}) == [bank.members[0]], "rows of a version that did not say it"
    assert bank.to_train({first}, dict.fromkeys(others, "of another spec")) == [bank.members[0]]
    pair = LeasedBank.of(bank.members[:2], asked.recipe)
    assert bank.to_train({first}, {second: pair.address}) == list(bank.members[:2])
    assert bank.to_train(set(bank.runs), {}) == list(bank.members)


def test_a_store_says_in_which_bank_a_row_was_trained_unless_it_is_damaged(tmp_path):
    store = Store.open(tmp_path, create=True)
    study = run(spec(1), store)
    said = store.trained_in(row["run"] for row in study)
    assert set(said) == {row["run"] for row in study}
    assert set(said.values()) == {LeasedBank.of(group, spec(1).recipe).address for group in banks(spec(1), "cpu")}
    first, *rest = said
    lose(store, [first], "changed")
    assert list(store.trained_in(said)) == rest
    odd = [("odd", ["x"], {"run": "odd"}), ("none", {}, {"run": "none"}), ("no", {"bank": 1}, {"run": "no"})]
    store.add(iter(odd), {})  # one by one: a checker of types draws an item of a list
    assert store.trained_in(["odd", "none", "no", "nowhere"]) == {}
