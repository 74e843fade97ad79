"""Disks that are not the usual one: without locks, with another journal, full; and workers that share a machine."""

import contextlib
import errno
import fcntl
import math
import os
import resource
import sqlite3
import subprocess
from functools import partial

import pytest

from headcount.results import Store, disk_probe
from headcount.results.database import StoreError
from headcount.results.disk_probe import DiskProbe, probe_disk
from headcount.results.upkeep import verify_store
from headcount.training import Sweep, progress
from headcount.training.compile_caches import CACHES, private_caches
from headcount.training.sweeps import run
from headcount.training.workers import LocalWorkers, gpu_names
from tests.faults.sweep_specs import LIMIT, SPEC, rows_of, start, with_, without_progress

SMALL = with_(("lengths = [4, 6]", "lengths = [4]"), ("heads = [1, 2]", "heads = [1]"))


@pytest.fixture(autouse=True)
def no_line_but_notes(monkeypatch):
    """On a machine so busy that a sweep takes a minute, a line would say how far it is."""
    monkeypatch.setattr(progress, "lines", partial(progress.lines, every=math.inf))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    run(Sweep.from_toml(SPEC), Store.open(folder, create=True))
    return rows_of(folder)


def test_a_probe_leaves_nothing_behind(tmp_path):
    assert probe_disk(tmp_path) == DiskProbe(locks=True, journal="delete")
    assert list(tmp_path.iterdir()) == []


def test_where_locks_keep_nobody_out_a_sweep_says_so_in_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(fcntl, "fcntl", lambda *rest: 0)  # whoever asks gets the lock
    run(Sweep.from_toml(SMALL), Store.open(tmp_path, create=True), on_progress=progress.bar)
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and "one sweep at a time" in said
    assert verify_store(tmp_path).rows == 2


def test_a_disk_without_locks_is_refused_before_anything_is_trained(tmp_path, monkeypatch):
    def none(*rest):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", none)
    with pytest.raises(StoreError, match=r"gives no locks \(no locks available\).*`store`"):
        run(Sweep.from_toml(SMALL), Store.open(tmp_path, create=True))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("works", ["truncate", "persist"])
def test_where_a_journal_does_not_undo_the_next_is_used_and_said(tmp_path, monkeypatch, capfd, alone, works):
    used = []
    true_undoes, true_connect = disk_probe._undoes, sqlite3.connect

    def undoes(path, journal):
        return journal == works and true_undoes(path, journal)

    def connected(*rest, **more):
        db = true_connect(*rest, **more)
        db.set_trace_callback(lambda words: used.append(words) if "journal_mode" in words else None)
        return db

    monkeypatch.setattr(disk_probe, "_undoes", undoes)
    monkeypatch.setattr(sqlite3, "connect", connected)
    run(Sweep.from_toml(SPEC), Store.open(tmp_path, create=True), on_progress=progress.bar)
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and f"the store uses '{works}'" in said
    assert f"PRAGMA journal_mode={works}" in used
    monkeypatch.undo()
    assert rows_of(tmp_path) == alone and verify_store(tmp_path).sound


def test_a_disk_where_no_journal_undoes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_probe, "_undoes", lambda path, journal: False)
    with pytest.raises(StoreError, match="no journal of SQLite works on this disk"):
        run(Sweep.from_toml(SMALL), Store.open(tmp_path, create=True))


@contextlib.contextmanager
def files_of_at_most(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [8_000, 37_000, 41_000])
def test_a_file_that_may_grow_no_further_is_one_line_and_the_sweep_goes_on_later(tmp_path, alone, size):
    asked, store = Sweep.from_toml(SPEC), Store.open(tmp_path, create=True)
    with files_of_at_most(size), pytest.raises(StoreError, match="run the same command to go on"):
        run(asked, store)
    if store.specs():
        assert all(row in alone for row in rows_of(tmp_path)) and verify_store(tmp_path).sound
    run(asked, store)
    assert rows_of(tmp_path) == alone and verify_store(tmp_path).sound


@pytest.mark.soak
@pytest.mark.parametrize("size", range(24, 160, 8))
def test_a_full_disk_of_any_size_loses_nothing_that_was_kept(tmp_path, alone, size):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    try:
        (tmp_path / "spec.toml").write_text(SPEC)
        small = start("sweep", tmp_path / "spec.toml", "--store", disk / "store", "--save", "all")
        _, said = small.communicate(timeout=LIMIT)
        assert small.returncode in (0, 2) and without_progress(said).count("\n") <= 1, said
        if small.returncode == 2:
            assert "full" in said or "no space" in said or "disk" in said
        subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
        if (disk / "store" / "rows.sqlite").exists() and Store.open(disk / "store", create=True).specs():
            assert all(row in alone for row in rows_of(disk / "store"))
        again = start("sweep", tmp_path / "spec.toml", "--store", disk / "store", "--save", "all")
        _, said = again.communicate(timeout=LIMIT)
        assert again.returncode == 0, said
        assert rows_of(disk / "store") == alone and verify_store(disk / "store").sound
        assert not list((disk / "store").rglob("*.part"))
    finally:
        subprocess.run(["umount", disk], check=True)


# Workers of one machine ----------------------------------------------------------------------------------------------


def test_every_worker_has_a_gpu_of_its_own():
    for count in range(1, 9):
        names = gpu_names(count, 8, None)
        assert len(set(names)) == count and set(names) <= {str(i) for i in range(8)}
    assert gpu_names(3, 4, "3, 1,GPU-f00,7") == ["3", "1", "GPU-f00"]


def test_workers_on_cuda_see_one_gpu_each(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    workers = LocalWorkers(3, "cuda")
    assert [seat.settings["CUDA_VISIBLE_DEVICES"] for seat in workers.seats] == ["4", "5", "6"]
    assert len({seat.settings["TRITON_CACHE_DIR"] for seat in workers.seats}) == 3
    workers.close()
    assert not os.path.exists(workers.compiled.name)  # noqa: PTH110
    with pytest.raises(ValueError, match="5 workers were asked for, one per GPU, and this machine has 4"):
        LocalWorkers(5, "cuda")


def test_a_process_of_a_cluster_compiles_beside_the_caches_that_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHES[0], str(tmp_path))
    monkeypatch.setenv(CACHES[1], str(tmp_path / "other"))
    private_caches.cache_clear()
    folder = private_caches()
    assert folder.parent == tmp_path and private_caches() == folder
    assert len({os.environ[name] for name in CACHES}) == len(CACHES)
    assert all(os.environ[name].startswith(str(folder)) for name in CACHES)
    private_caches.cache_clear()
