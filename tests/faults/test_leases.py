"""Who holds a bank has a name; one that is dead holds nothing, one that stands still can be taken over."""

import contextlib
import os
import re
import signal
import threading
import time

import pytest

from headcount.refusals import RefusalError
from headcount.results import Store, leases
from headcount.results.leases import LeaseHolder, Leases, alone
from headcount.results.upkeep import repair_store, verify_store
from headcount.training import Sweep, sharing, sweeps
from headcount.training.leased_banks import LeasedBank
from headcount.training.sweeps import banks, run
from tests.faults.sweep_specs import LIMIT, SPEC, rows_of, start, wait_until, with_
from tests.faults.test_store import call, filled, fingerprint, spoilt

ASKED = Sweep.from_toml(SPEC)
LONG = with_(("epochs = 2", "epochs = 400"), ("lengths = [4, 6]", "lengths = [4]"))


def forked(action):
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(0)
    return child


def test_a_lease_is_held_by_one_process_and_not_by_a_dead_one(tmp_path):
    ready, done = os.pipe(), os.pipe()

    def hold():
        theirs = Leases(tmp_path)
        os.write(ready[1], b"y" if theirs.take("abc") else b"n")
        os.read(done[0], 1)
        os._exit(0)  # nothing is given back by its own hand

    child = forked(hold)
    assert os.read(ready[0], 1) == b"y"
    with Leases(tmp_path) as ours:
        assert not ours.take("abc") and ours.take("def")
        assert (ours.holder("abc").pid, ours.holder("def").pid) == (child, os.getpid())
        assert [re.sub(r"since .*? UTC", "since T", line) for line in ours.news()] == [
            (
                f"waiting for 1 bank of process {child} of {LeaseHolder.here().host} (since T); "
                "one that gives no sign of life for 600 s is taken over"
            )
        ]
        assert list(ours.news()) == []  # once a minute
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        assert ours.take("abc")


def test_two_threads_of_a_process_do_not_hold_the_same_bank_and_closing_one_frees_nothing_of_the_other(tmp_path):
    with Leases(tmp_path) as mine:
        assert mine.take("a")
        with Leases(tmp_path) as yours:
            assert not yours.take("a") and yours.take("b")
        refused = forked(lambda: os._exit(Leases(tmp_path).take("a")))
        assert os.waitstatus_to_exitcode(os.waitpid(refused, 0)[1]) == 0
        taken = []
        threads = [threading.Thread(target=lambda: taken.append(Leases(tmp_path).take("c"))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert mine.holds("a")


def test_a_child_that_outlives_its_parent_holds_none_of_its_leases(tmp_path):
    alive = os.pipe()

    def parent():
        held = Leases(tmp_path)
        assert held.take("a")
        forked(lambda: (os.write(alive[1], str(os.getpid()).encode()), time.sleep(60)))
        os._exit(0)

    os.waitpid(forked(parent), 0)
    child = int(os.read(alive[0], 20))
    with Leases(tmp_path) as ours:
        assert ours.take("a")
    os.kill(child, signal.SIGKILL)


def test_one_that_stands_still_is_taken_over_after_the_patience_and_finds_out(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: clock[0])
    with Leases(tmp_path) as stopped, Leases(tmp_path, take_over=True) as waiting, Leases(tmp_path) as third:
        assert stopped.take("a") and not waiting.take("a") and not third.take("a")
        clock[0] += 44
        assert not waiting.take("a") and stopped.holds("a")
        os.utime(tmp_path / "a", ns=(7, 7))  # a sign of life, whatever its clock says: even one that runs backwards
        assert not waiting.take("a")
        clock[0] += 44
        assert not waiting.take("a")
        clock[0] += 2
        assert waiting.take("a") and waiting.holds("a") and not stopped.holds("a")
        assert "taken over from process" in next(waiting.news())
        assert not third.take("a")
        stopped.give_back("a")  # gives back nothing that is another's
        assert waiting.holds("a") and not stopped.take("a")


def test_a_bank_without_a_lease_any_more_is_left_to_its_new_holder(tmp_path, monkeypatch):
    store, notes, trained = Store.open(tmp_path, create=True), [], []
    group = next(iter(banks(ASKED, "cpu")))
    address = LeasedBank.of(group, ASKED.recipe).address
    true_train, other = sharing.train_bank_job, Leases(store.path.with_suffix(".leases"))

    def train_and_lose(job, *rest):
        bank = true_train(job, *rest)
        if not trained:
            (other.folder / address).unlink()
            assert other.take(address)
            threading.Timer(0.5, lambda: other.give_back(address)).start()
        trained.append(len(job.members))
        return bank

    monkeypatch.setattr(sharing, "train_bank_job", train_and_lose)
    monkeypatch.setattr(sweeps, "add_rows", lambda *rest, true=sweeps.add_rows: (trained.append("kept"), true(*rest)))

    class Heard:
        note = staticmethod(notes.append)
        bank_done = staticmethod(lambda members: None)

        def __call__(self, steps):
            pass

    class Progress:
        def __init__(self, *rest, **more):
            pass

        def __enter__(self):
            return Heard()

        def __exit__(self, *rest):
            pass

    study = run(ASKED, store, on_progress=Progress)
    assert len(study) == 8 and trained[0] == 4 and trained[1] == 4, trained  # the first one's rows are not kept
    assert any("was taken over by process" in note for note in notes), notes
    assert verify_store(tmp_path).rows == 8
    other.__exit__(None, None, None)


@pytest.mark.soak
def test_a_stopped_sweep_is_named_and_taken_over_and_ends_well_when_it_wakes(tmp_path):
    (tmp_path / "spec.toml").write_text(LONG)
    words = ("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s")
    first = start(*words, HEADCOUNT_COMPILED="0")
    held = tmp_path / "s" / "rows.leases"
    wait_until(lambda: held.is_dir() and len(list(held.iterdir())) > 2, first)
    first.send_signal(signal.SIGSTOP)
    second = start(*words, "--take-over", HEADCOUNT_COMPILED="0")
    out, said = second.communicate(timeout=LIMIT)
    first.send_signal(signal.SIGCONT)
    _, woken = first.communicate(timeout=LIMIT)
    assert (second.returncode, first.returncode) == (0, 0), said + woken
    assert f"process {first.pid} of" in said and "taken over" in said
    assert f"taken over by process {second.pid}" in woken or "4 rows" in out
    run(Sweep.from_toml(LONG), Store.open(tmp_path / "alone", create=True))
    assert rows_of(tmp_path / "s") == rows_of(tmp_path / "alone") and verify_store(tmp_path / "s").rows == 4


def test_a_repair_is_refused_with_a_name_while_a_sweep_is_at_the_store(tmp_path, capsys):
    store = filled(tmp_path)
    spoilt(store, "b")
    before = store.path.read_bytes()
    with store.leases() as sweep:
        for _ in range(2):
            code, _, err = call(capsys, "runs", "repair", tmp_path)
            assert code == 2 and "in use by" in err and err.count("\n") == 1
            assert sweep.take("abc") or f"process {os.getpid()} of" in err
    assert store.path.read_bytes() == before
    assert repair_store(tmp_path).dropped == ("b",)


def test_a_sweep_waits_for_a_repair(tmp_path, monkeypatch):
    with alone(tmp_path):
        monkeypatch.setattr(leases, "REPAIR", 0.2)
        with pytest.raises(RefusalError, match="being repaired by process"):
            Leases(tmp_path)
        with pytest.raises(RefusalError, match="in use by"), alone(tmp_path):
            pass
    Leases(tmp_path).__exit__(None, None, None)


def test_a_reader_or_writer_at_work_refuses_a_repair(tmp_path, monkeypatch):
    monkeypatch.setattr("headcount.results.database.BRIEFLY", 0.1)
    from headcount.results.database import reading, writing

    store = filled(tmp_path)
    spoilt(store, "b")
    for way in (reading, writing):
        with way(store.path) as db:
            db.execute("SELECT count(*) FROM rows").fetchall()
            with pytest.raises(RefusalError, match="keeps it locked"):
                repair_store(tmp_path)
    assert repair_store(tmp_path).rows == 2


def test_a_sound_store_is_not_repaired(tmp_path, capsys):
    filled(tmp_path)
    before = fingerprint(tmp_path)
    code, out, _ = call(capsys, "runs", "repair", tmp_path)
    assert code == 0 and "So: nothing was done" in out
    (tmp_path / "rows.leases" / "store").unlink()
    (tmp_path / "rows.leases").rmdir()
    assert fingerprint(tmp_path) == before


def test_a_writer_that_waited_through_a_repair_writes_to_the_repaired_store(tmp_path):
    """It opened the old file; a row written there would be lost."""
    store = filled(tmp_path)
    spoilt(store, "b")
    from headcount.results import upkeep

    began, ended = threading.Event(), threading.Event()
    true = upkeep._mended

    def slow(*rest):
        began.set()
        time.sleep(1.0)  # meanwhile the other opens the file and waits for its lock
        return true(*rest)

    upkeep._mended = slow
    try:
        repairing = threading.Thread(target=lambda: (repair_store(tmp_path), ended.set()))
        repairing.start()
        assert began.wait(30)
        store.add([(("z"), {}, {"run": "z", "nmse": 0.5, "status": "done"})], {})
        repairing.join()
    finally:
        upkeep._mended = true
    assert ended.is_set() and store.missing(["a", "c", "z"]) == [] and verify_store(tmp_path).sound


@pytest.mark.parametrize("taker", ["rows", "store"])
def test_rows_that_are_taken_away_are_trained_again_before_a_sweep_ends(tmp_path, monkeypatch, taker):
    import sqlite3

    store, taken, true = Store.open(tmp_path, create=True), [], sweeps.add_rows

    def add_and_take(where, *rest):
        true(where, *rest)
        if len(taken) < 2:
            taken.append(1)
            if taker == "store":
                store.path.unlink()
            else:
                with contextlib.closing(sqlite3.connect(store.path)) as db, db:
                    db.execute("DELETE FROM rows")

    monkeypatch.setattr(sweeps, "add_rows", add_and_take)
    assert len(run(ASKED, store)) == 8
    assert rows_of(tmp_path) == rows_of_alone(tmp_path)


def rows_of_alone(tmp_path):
    run(ASKED, Store.open(tmp_path / "alone", create=True))
    return rows_of(tmp_path / "alone")


def test_a_sweep_whose_rows_do_not_stay_is_refused_with_their_number(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sweeps, "add_rows", lambda *rest: None)
    (tmp_path / "x.toml").write_text(SPEC)
    code, _, err = call(capsys, "sweep", tmp_path / "x.toml", "--store", tmp_path / "s")
    assert code == 2 and "8 of the 8 rows asked for are not in" in err


@pytest.mark.parametrize("repairs", [6, pytest.param(60, marks=pytest.mark.soak)])
def test_repairs_beside_a_sweep_lose_nothing(tmp_path, capsys, repairs):
    (tmp_path / "spec.toml").write_text(with_(("epochs = 2", "epochs = 40")))
    sweep = start("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s", HEADCOUNT_COMPILED="0")
    wait_until(lambda: (tmp_path / "s" / "rows.sqlite").exists(), sweep)
    codes = [call(capsys, "runs", "repair", tmp_path / "s")[0] for _ in range(repairs)]
    _, said = sweep.communicate(timeout=LIMIT)
    assert sweep.returncode == 0, said
    assert verify_store(tmp_path / "s").rows == 8 and set(codes) <= {0, 2}
    assert not list((tmp_path / "s").glob("*.damaged*"))
