"""Kills and many writers: no row lost, none twice, every row bit for bit that of a sweep left alone."""

import contextlib
import os
import random
import signal
import sqlite3
import time

import pytest

from headcount.results import Store
from headcount.results.database import writing
from headcount.results.upkeep import verify_store
from headcount.training import Sweep, bank_jobs
from headcount.training.leased_banks import LeasedBank
from headcount.training.sweeps import banks, run
from tests.faults.sweep_specs import rows_of, with_

BANKS = 24
ASKED = Sweep.from_toml(
    with_(("lengths = [4, 6]", f"lengths = {list(range(3, 3 + BANKS))}"), ("heads = [1, 2]", "heads = [1]"))
)


def forked(work):
    """The number of a child process that does `work` and ends."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return child


def sweeping(folder, log, monkeypatch):
    """Run the sweep, and note every training in a file that all processes share."""
    true_train = bank_jobs.train

    def noted(bank, *rest, **more):
        with open(log, "a") as file:  # noqa: PTH123
            file.write(f"{bank[0].task.length}\n")
        return true_train(bank, *rest, **more)

    monkeypatch.setattr(bank_jobs, "train", noted)
    return lambda: run(ASKED, Store.open(folder, create=True))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    run(ASKED, Store.open(folder, create=True))
    return rows_of(folder)


def together(folder, monkeypatch, processes):
    log = folder / "trained"
    work = sweeping(folder / "store", log, monkeypatch)
    children = [forked(work) for _ in range(processes)]
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * processes
    return log.read_text().split()


def test_four_processes_on_one_store_train_each_of_24_banks_once(tmp_path, monkeypatch, alone):
    assert len(list(banks(ASKED, "cpu"))) == BANKS
    trained = together(tmp_path, monkeypatch, 4)
    assert len(trained) == len(set(trained)) == BANKS
    assert rows_of(tmp_path / "store") == alone and verify_store(tmp_path / "store").sound


@pytest.mark.soak
@pytest.mark.parametrize("processes", [2, 3, 5, 6, 7, 8])
def test_two_to_eight_processes_share_the_banks(tmp_path, monkeypatch, alone, processes):
    trained = together(tmp_path, monkeypatch, processes)
    assert len(trained) == len(set(trained)) == BANKS and rows_of(tmp_path / "store") == alone


def struck(folder, work, rng):
    """Whether a kill at a random moment met the sweep alive; what it had kept is never less afterwards."""
    store = folder / "store"
    before = rows_kept(store)
    child = forked(work)
    time.sleep(rng.uniform(0.01, 0.3))
    os.kill(child, signal.SIGKILL)
    alive = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert rows_kept(store) >= before, "a kill took rows that were kept"
    return alive


def until(happened, seconds=300):
    """Wait for what another process does: as long as it takes, but not for one that hangs."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def rows_kept(folder):
    runs = [m.run(ASKED.recipe) for m in ASKED.members]
    if not (folder / "rows.sqlite").exists():
        return 0
    return len(runs) - len(Store.open(folder, create=True).missing(runs))


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_a_sweep_killed_at_any_moment_ends_with_the_rows_of_one_left_alone(tmp_path, monkeypatch, alone, kills):
    rng, met, sweeps = random.Random(kills), 0, 0
    while met < kills:  # a kill that came too late is none: another sweep is begun
        folder = tmp_path / str(sweeps)
        folder.mkdir()
        work = sweeping(folder / "store", folder / "trained", monkeypatch)
        while met < kills and rows_kept(folder / "store") < len(ASKED.members):
            met += struck(folder, work, rng)
        work()
        assert rows_of(folder / "store") == alone and verify_store(folder / "store").sound
        sweeps += 1


def test_a_bank_that_a_killed_process_had_claimed_is_trained_by_the_one_that_waits(tmp_path, monkeypatch, alone):
    store = Store.open(tmp_path / "store", create=True)
    claimed, *_ = banks(ASKED, "cpu")
    held = tmp_path / "held"

    def hold():
        assert store.leases().take(LeasedBank.of(claimed, ASKED.recipe).address)
        held.touch()
        signal.alarm(600)  # not for ever, should the test end before it
        signal.pause()

    holder = forked(hold)
    until(held.exists)
    waiter = forked(lambda: run(ASKED, store))
    until(lambda: rows_kept(tmp_path / "store") >= len(ASKED.members) - len(claimed))
    assert os.waitpid(waiter, os.WNOHANG) == (0, 0), "it waits for the bank that is claimed"
    assert rows_kept(tmp_path / "store") == len(ASKED.members) - len(claimed)
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(waiter, 0)[1]) == 0
    assert rows_of(tmp_path / "store") == alone


def test_a_writer_killed_within_a_transaction_leaves_what_was_there_and_a_reader_may_look(tmp_path):
    store = Store.open(tmp_path, create=True)
    store.state("x", {}, ["a", "b"])
    store.add([("a", {}, {"run": "a", "nmse": 0.5})], {})

    def half():
        db = sqlite3.connect(store.path, isolation_level=None)
        db.execute("PRAGMA cache_size = 1")  # pages go to the file before the end
        db.execute("BEGIN IMMEDIATE")
        for i in range(500):
            db.execute("INSERT INTO rows VALUES (?, '', ?, '', '', '', '')", (f"n{i}", "x" * 500))
        os.kill(os.getpid(), signal.SIGKILL)

    os.waitpid(forked(half), 0)
    journal = tmp_path / "rows.sqlite-journal"
    assert journal.exists(), "the kill was to leave a transaction to undo"
    assert [row["run"] for row in store.study()] == ["a"]
    assert journal.exists(), "reading undid it in the store itself"
    store.add([("b", {}, {"run": "b", "nmse": 0.5})], {})
    assert len(store.study()) == 2 and verify_store(tmp_path).sound and not journal.exists()


def test_a_store_whose_making_was_cut_short_is_made_by_the_next_sweep(tmp_path):
    path = tmp_path / "rows.sqlite"
    for statements in ((), ("CREATE TABLE x (y)", "DROP TABLE x")):
        path.touch()
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            for statement in statements:
                db.execute(statement)
        store = Store.open(tmp_path, create=True)
        assert store.specs() == [] and store.missing(["a"]) == ["a"]
        with pytest.raises(ValueError, match="empty, so not a headcount store yet"):
            Store.open(tmp_path)
        store.state("x", {}, ["a"])
        assert [spec.name for spec in store.specs()] == ["x"]
        path.unlink()


def test_a_finished_transaction_is_on_the_disk(tmp_path):
    with writing(tmp_path / "rows.sqlite") as db:
        assert db.execute("PRAGMA synchronous").fetchone() == (3,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
