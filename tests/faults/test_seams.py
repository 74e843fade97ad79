"""Where two things meet: two threads, two specs, two exports, a link, a small disk, another user, an odd path."""

import contextlib
import csv
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from headcount.results import Store, snapshot
from headcount.results.export import Exported
from headcount.results.leases import Leases
from headcount.results.upkeep import merge_stores, repair_store, verify_store
from headcount.training import Sweep, bank_jobs
from headcount.training.sweeps import run
from tests.faults.fuzz_sweeps import same_rows
from tests.faults.sweep_specs import LIMIT, SPEC, rows_of, start, wait_until, with_
from tests.faults.test_store import call, filled, row, spoilt
from tests.faults.test_threads import half_written

ASKED = Sweep.from_toml(SPEC)
OTHER = with_(('name = "small"', 'name = "other"'), ("heads = [1, 2]", "heads = [2, 3]"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    run(ASKED, Store.open(folder, create=True))
    return folder


def test_two_threads_that_sweep_one_store_train_each_bank_once(tmp_path, monkeypatch, alone):
    trained, true = [], bank_jobs.train
    monkeypatch.setattr(bank_jobs, "train", lambda bank, *a, **k: (trained.append(len(bank)), true(bank, *a, **k))[1])
    errors = []

    def sweep():
        try:
            run(ASKED, Store.open(tmp_path, create=True))
        except Exception as problem:
            errors.append(repr(problem))

    threads = [threading.Thread(target=sweep) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and sum(trained) == 8 and rows_of(tmp_path) == rows_of(alone)


def test_two_specs_swept_at_once_into_one_store_have_each_their_rows(tmp_path, alone):
    sweeps = []
    for name, text in (("small", SPEC), ("other", OTHER)):
        (tmp_path / f"{name}.toml").write_text(text)
        sweeps.append(start("sweep", tmp_path / f"{name}.toml", "--store", tmp_path / "s", HEADCOUNT_COMPILED="0"))
    ends = [sweep.communicate(timeout=LIMIT) for sweep in sweeps]
    assert [sweep.returncode for sweep in sweeps] == [0, 0], ends
    run(Sweep.from_toml(OTHER), Store.open(tmp_path / "alone", create=True))
    for name, fresh in (("small", alone), ("other", tmp_path / "alone")):
        found, asked = rows_of(tmp_path / "s", name), rows_of(fresh)
        assert [r["run"] for r in found] == [r["run"] for r in asked]
        assert [r["nmse"] for r in found] == pytest.approx([r["nmse"] for r in asked], rel=1e-4)
    assert verify_store(tmp_path / "s").sound and verify_store(tmp_path / "s").rows == 12


@pytest.mark.parametrize("exports", [3, pytest.param(12, marks=pytest.mark.soak)])
def test_two_exports_into_one_folder_leave_the_three_files_of_one(tmp_path, exports):
    for name in ("a", "b"):
        filled(tmp_path / name, [f"{name}{i:04d}" for i in range(300)])
    errors = []

    def export(name):
        for _ in range(exports):
            try:
                Exported.of(tmp_path / name).write(tmp_path / "out")
            except Exception as problem:
                errors.append(repr(problem))

    def seen():
        """Whose rows each of the files holds, as whoever reads them finds them once nobody writes."""
        out = tmp_path / "out"
        table = next(csv.DictReader((out / "rows.csv").read_text().splitlines()))["run"][0]
        lines = json.loads((out / "rows.jsonl").read_text().splitlines()[0])["run"][0]
        return {table, lines, json.loads((out / "study.json").read_text())["rows"][0]["run"][0]}

    for _ in range(exports):
        threads = [threading.Thread(target=export, args=(name,)) for name in ("a", "b", "a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == [] and len(seen()) == 1
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["rows.csv", "rows.jsonl", "study.json"]


def test_a_store_whose_file_is_a_link_is_the_one_it_leads_to(tmp_path, capsys):
    """Its journal and its leases lie beside what it leads to, and a repair puts nothing in the link's place."""
    store = filled(tmp_path / "true", [f"{i:04d}" for i in range(400)])
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "rows.sqlite").symlink_to(store.path)
    (tmp_path / "folder").symlink_to(tmp_path / "true")
    half_written(store)
    for name in ("linked", "folder"):
        assert verify_store(tmp_path / name).sound, name
        assert {r["nmse"] for r in Store.open(tmp_path / name).study()} == {0.5}
    store.add([row("new")], {})  # undoes the half
    with store.leases():
        code, _, err = call(capsys, "runs", "repair", tmp_path / "linked")
        assert code == 2 and "in use by" in err
    spoilt(store, "0007")
    assert repair_store(tmp_path / "linked").dropped == ("0007",)
    assert (tmp_path / "linked" / "rows.sqlite").is_symlink() and verify_store(tmp_path / "true").sound
    assert list((tmp_path / "linked").iterdir()) == [tmp_path / "linked" / "rows.sqlite"]


ODD_PATHS = ("with space", "ünïcödé 頭", "a#b?mode=memory&x=%41", "quote'\"$(x)`", "-dash", "new\nline", "x" * 200)


@pytest.mark.parametrize("name", ODD_PATHS)
def test_a_store_may_lie_anywhere(tmp_path, capsys, alone, name):
    store = tmp_path / name / "s"
    shutil.copytree(alone, store)
    half_written(Store.open(store))  # read in a copy, too
    for words in (["runs"], ["fit"], ["runs", "verify"], ["runs", "export", "--out", tmp_path / name / "out"],
                  ["report", "--out", tmp_path / name / "out"], ["runs", "repair"]):  # fmt: skip
        code, _, err = call(capsys, *words[:2], store, *words[2:]) if words[0] == "runs" and words[1:] else call(
            capsys, words[0], store, *words[1:])  # fmt: skip
        assert code == 0, (words, err)
    run(ASKED, Store.open(store))
    assert rows_of(store) == rows_of(alone)
    assert len((tmp_path / name / "out" / "rows.jsonl").read_text().splitlines()) == 8


@pytest.mark.parametrize(
    "moment", [0.0, 0.02, *(pytest.param(n / 100, marks=pytest.mark.soak) for n in range(1, 40, 2))]
)
def test_a_repair_that_is_killed_leaves_the_old_store_or_the_new_one(tmp_path, moment):
    store = filled(tmp_path, [f"{i:05d}" for i in range(6000)])
    spoilt(store, "00007")
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            repair_store(tmp_path)
        os._exit(0)
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(store.missing([f"{i:05d}" for i in range(6000)])) == 1
    assert repair_store(tmp_path).rows == 5999 and verify_store(tmp_path).sound


def test_an_export_that_is_killed_leaves_what_was_there_and_the_next_one_is_whole(tmp_path):
    store = filled(tmp_path / "s", [f"{i:06d}" for i in range(20_000)])
    Exported.of(tmp_path / "s").write(tmp_path / "out")
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    store.state("first", {"is": "more"}, [*(f"{i:06d}" for i in range(20_000)), "more"])
    store.add([row("more")], {})
    export = start("runs", "export", tmp_path / "s", "--out", tmp_path / "out")
    wait_until(lambda: list((tmp_path / "out").glob("*.part")), export)
    export.kill()
    export.communicate(timeout=LIMIT)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    Exported.of(tmp_path / "s").write(tmp_path / "out")
    assert len((tmp_path / "out" / "rows.jsonl").read_text().splitlines()) == 20_001


@pytest.mark.parametrize("seconds", [-4e9, 0.0, 4e9])
def test_a_lease_from_any_time_is_held_by_its_holder_alone(tmp_path, seconds, monkeypatch):
    """Clocks set back or forward, of the machine or of the disk, take no bank from a process that lives."""
    true = time.time
    with Leases(tmp_path) as held, Leases(tmp_path) as waiting:
        assert held.take("a")
        for shift in (seconds, -seconds, 0.0):
            os.utime(tmp_path / "a", (max(0.0, true() + shift),) * 2)
            monkeypatch.setattr(time, "time", lambda shift=shift: true() + shift)
            assert held.holds("a") and not waiting.take("a")


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs to become another user")
def test_a_store_of_another_user_is_read_and_not_written_in_one_line_each(tmp_path, alone):
    place = Path("/tmp") / f"headcount-seam-{os.getpid()}"
    shutil.copytree(alone, place / "s")
    (place / "spec.toml").write_text(with_(("seeds = 2", "seeds = 3")))
    (place / "own").mkdir()
    for path in (place, place / "s", *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    os.chown(place / "own", 65534, 65534)
    python = shutil.which("python3", path="/usr/bin:/bin")
    try:
        become = lambda: (os.setgid(65534), os.setuid(65534))  # noqa: E731
        if subprocess.run([python or "/nowhere", "-c", ""], check=False).returncode or not _may_run(become):
            pytest.skip("another user may not run this Python")
        for words, code in ((("fit", place / "s"), 0), (("runs", "verify", place / "s"), 0),
                            (("runs", "export", place / "s", "--out", place / "own"), 0),
                            (("sweep", place / "spec.toml", "--store", place / "s"), 2),
                            (("runs", "repair", place / "s"), 2)):  # fmt: skip
            process = start(*words, preexec_fn=become, HOME=str(place / "own"))
            _, err = process.communicate(timeout=LIMIT)
            assert process.returncode == code and err.count("\n") == (code == 2) and "not foreseen" not in err, err
        assert rows_of(place / "s") == rows_of(alone)
    finally:
        shutil.rmtree(place)


def _may_run(become):
    try:
        return start(program=("-c", "import torch"), preexec_fn=become).wait(LIMIT) == 0
    except (OSError, subprocess.SubprocessError):
        return False


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a megabyte of its own, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_is_one_line_and_leaves_nothing_half(small_disk, tmp_path, capsys):
    names = [f"{i:06d}" for i in range(8000)]
    filled(tmp_path / "s", names)
    for words in (["runs", "export"], ["runs", "merge"]):
        where = (small_disk / "m", tmp_path / "s") if "merge" in words else (tmp_path / "s", "--out", small_disk / "o")
        code, _, err = call(capsys, *words, *where)
        assert code == 2 and err.count("\n") == 1 and ("full" in err or "no space" in err), err
        assert not [p for p in small_disk.rglob("*") if p.suffix == ".part" or p.name in ("rows.csv", "study.json")]
        shutil.rmtree(small_disk / "o", ignore_errors=True)
    shutil.rmtree(small_disk / "m", ignore_errors=True)
    (small_disk / "filling").write_bytes(b"x" * (2**20 - 2**16 - 2**14))
    (tmp_path / "x.toml").write_text(with_(("seeds = 2", "seeds = 60")))
    code, _, err = call(capsys, "sweep", tmp_path / "x.toml", "--store", small_disk / "k")
    assert code == 2 and "full" in err and err.count("\n") == 1, err
    (small_disk / "filling").unlink()
    code, _, err = call(capsys, "sweep", tmp_path / "x.toml", "--store", small_disk / "k")
    assert code == 0, err
    run(Sweep.read(tmp_path / "x.toml"), Store.open(tmp_path / "fresh", create=True))
    assert same_rows(small_disk / "k", tmp_path / "fresh", exactly=True)


def test_a_disk_that_is_read_only_is_read_and_refused_for_writing(small_disk, tmp_path, capsys, alone):
    shutil.copytree(alone, small_disk / "s")
    half_written(Store.open(small_disk / "s"))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    (tmp_path / "x.toml").write_text(with_(("seeds = 2", "seeds = 3")))
    for words, code in ((["fit", small_disk / "s"], 0), (["runs", "verify", small_disk / "s"], 0),
                        (["runs", "export", small_disk / "s", "--out", tmp_path / "o"], 0),
                        (["sweep", tmp_path / "x.toml", "--store", small_disk / "s"], 2),
                        (["runs", "repair", small_disk / "s"], 2)):  # fmt: skip
        found, _, err = call(capsys, *words)
        assert found == code and err.count("\n") == (code == 2) and "not foreseen" not in err, (words, err)


def test_a_merge_beside_a_writer_brings_whole_banks_and_loses_none(tmp_path):
    source, ended = filled(tmp_path / "a", [f"{i:03d}" for i in range(20)]), threading.Event()

    def write():
        for number in range(40):
            source.add([row(f"w{number}-{i}") for i in range(5)], {"torch": "2"})
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not ended.is_set():
        merge_stores(tmp_path / "m", tmp_path / "a")
        found = verify_store(tmp_path / "m")
        assert found.sound and (found.rows - 20) % 5 == 0
    writer.join()
    assert merge_stores(tmp_path / "m", tmp_path / "a").differing == ()
    assert verify_store(tmp_path / "m").rows == 220 and verify_store(tmp_path / "a").sound


def test_a_store_replaced_while_it_is_exported_is_refused_or_whole(tmp_path, monkeypatch):
    """Another folder is moved into the place of the first while its rows are read."""
    filled(tmp_path / "s", [f"{i:04d}" for i in range(60)])
    filled(tmp_path / "other", [f"x{i:03d}" for i in range(60)])
    monkeypatch.setattr(snapshot, "CHUNK", 7)
    exported = Exported.of(tmp_path / "s")
    (tmp_path / "s").rename(tmp_path / "away")
    (tmp_path / "other").rename(tmp_path / "s")
    with pytest.raises(ValueError, match="another file took its place"):
        exported.write(tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.*"))
