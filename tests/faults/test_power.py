"""Power cuts and clocks: whatever of the unsynced writes is lost, nothing that was acknowledged is."""

import os
import random
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from headcount.results import Store
from headcount.results.upkeep import verify_store
from headcount.training import Sweep
from headcount.training.sweeps import run
from tests.faults.power_cuts import Piece, record
from tests.faults.sweep_specs import SPEC, rows_of, with_

BANKS = 6
SCRIPT = f"""
import os, sys
from pathlib import Path
from headcount.files import atomic_write
from headcount.results import Store

base = Path(sys.argv[1])
told = os.open(base / "acknowledged", os.O_WRONLY | os.O_CREAT)
store = Store.open(base / "runs" / "x", create=True)
runs = [f"{{i}}{{j}}" for i in range({BANKS}) for j in range(8)]
store.state("x", {{}}, runs)
os.write(told, b"0")
for i in range({BANKS}):
    bank = runs[8 * i : 8 * i + 8]
    for run in bank:
        with atomic_write(store.path.parent / "networks" / run) as scratch:
            scratch.write_bytes(run.encode() * 400)
    store.add([(run, {{}}, {{"run": run, "nmse": 0.5, "more": run * 100}}) for run in bank], {{"torch": "2"}})
    os.write(told, f"{{i + 1}}".encode())
"""
RUNS = [f"{i}{j}" for i in range(BANKS) for j in range(8)]


def traced():
    """Whether processes may be watched here."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A folder in memory where there is one: a sync costs nothing there, and what it means is simulated."""
    memory = Path("/dev/shm")
    if not (memory.is_dir() and os.access(memory, os.W_OK)):
        yield tmp_path_factory.mktemp("power")
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


def recorded(base, script):
    if not traced():
        pytest.skip("strace is not installed, or may not watch processes here")
    (base / "written").mkdir()
    found = record(script, base / "written")
    shutil.rmtree(base / "written")
    assert found.acknowledged(len(found.operations)) == BANKS
    assert sum(isinstance(o, Piece) for o in found.operations) > 100
    return found


@pytest.fixture(scope="module")
def recording(base):
    return recorded(base, SCRIPT)


def laid_out(folder, disk):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, content in disk.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder / "runs" / "x"


def survives(folder, told):
    """The store has every acknowledged bank, at most one more, each row with its network; and the rest can be added."""
    store = Store.open(folder, create=True)
    kept = [row["run"] for row in store.study()] if store.specs() else []
    assert kept in (RUNS[: 8 * max(told, 0)], RUNS[: 8 * max(told + 1, 0)]), f"told {told}, kept {len(kept)}"
    assert told < 0 or store.specs(), "the spec that was stated is gone"
    assert all((folder / "networks" / run).read_bytes() == run.encode() * 400 for run in kept)
    store.state("x", {}, RUNS)
    store.add([(run, {}, {"run": run, "nmse": 0.5}) for run in store.missing(RUNS)], {})
    assert [row["run"] for row in store.study()] == RUNS and verify_store(folder).sound


def cuts(recording, step, seed, shares):
    """Moments of the recording, each with a disk for every share of what no sync had reached."""
    rng = random.Random(seed)
    for until in range(0, len(recording.operations), step):
        for share in shares:
            yield until, recording.disk(until, lambda share=share: rng.random() < share)


@pytest.mark.parametrize(
    ("step", "shares"), [(13, (0.0, 0.5)), pytest.param(1, (0.0, 1.0, 0.5, 0.1, 0.9), marks=pytest.mark.soak)]
)
def test_a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged(base, recording, step, shares):
    tried = 0
    for until, disk in cuts(recording, step, seed=step, shares=shares):
        survives(laid_out(base / "disk", disk), recording.acknowledged(until))
        tried += 1
    assert tried >= (60 if step > 1 else 2000)


def test_without_syncs_the_same_cuts_lose_rows(base):
    careless = "import headcount.results.database as d\nd.SYNCHRONOUS = 'OFF'\n" + SCRIPT
    recording = recorded(base, careless)
    until = len(recording.operations)
    folder = laid_out(base / "disk", recording.disk(until, lambda: False))
    with pytest.raises((AssertionError, ValueError, OSError)):
        survives(folder, recording.acknowledged(until))


def test_a_clock_that_runs_backwards_changes_no_row_and_no_order(tmp_path, monkeypatch):
    few = Sweep.from_toml(with_(("heads = [1, 2]", "heads = [1]"), ('"small"', '"few"')))
    run(few, Store.open(tmp_path / "plain", create=True))
    run(Sweep.from_toml(SPEC), Store.open(tmp_path / "plain", create=True))
    hours = iter(range(20_000, 0, -1))

    def earlier(*rest):
        return f"{next(hours):05d}"

    def connected(*rest, connect=sqlite3.connect, **more):
        db = connect(*rest, **more)
        db.create_function("strftime", 2, earlier)
        return db

    monkeypatch.setattr(sqlite3, "connect", connected)
    monkeypatch.setattr(time, "time", lambda: 1e9 - next(hours))
    monkeypatch.setattr(time, "time_ns", lambda: 10**18 - next(hours))
    store = Store.open(tmp_path / "backwards", create=True)
    run(few, store)
    os.utime(store.path, (0, 0))
    run(Sweep.from_toml(SPEC), store)
    monkeypatch.undo()
    stated = [spec.stated for spec in store.specs()]
    assert stated == sorted(stated, reverse=True) and len(stated[0]) == 5, "the clock was to run backwards"
    assert [spec.name for spec in store.specs()] == ["few", "small"]
    for name in ("few", "small"):
        assert rows_of(tmp_path / "backwards", name) == rows_of(tmp_path / "plain", name)
