"""A store says what it holds and nothing else: specs apart, damage named, reading that changes nothing."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import sqlite3

import pytest

import headcount.results.store as store_module
from headcount.cli import main
from headcount.files import atomic_write
from headcount.results import Store, database, read_study
from headcount.results.database import StoreError, checksum
from headcount.results.upkeep import merge_stores, repair_store, verify_store
from headcount.training import Sweep
from headcount.training.sweeps import run
from tests.faults.sweep_specs import SPEC, with_


def row(name, **more):
    return (name, {"of": name}, {"run": name, "heads": 1, "length": 4, "nmse": 0.5, "status": "done", **more})


def filled(folder, names="abc", spec="first"):
    store = Store.open(folder, create=True)
    store.state(spec, {"is": spec}, list(names))
    store.add([row(name) for name in names], {"torch": "2"})
    return store


def call(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return end.value.code, told.out, told.err


def fingerprint(folder):
    return {p.name: (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns) for p in folder.iterdir()}


def spoilt(store, name):
    """Change one row behind the store's back."""
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE rows SET row = replace(row, '0.5', '0.4') WHERE run = ?", (name,))


def test_two_specs_on_one_store_each_have_their_own_rows(tmp_path, capsys):
    store = Store.open(tmp_path, create=True)
    few = run(Sweep.from_toml(with_(("heads = [1, 2]", "heads = [1]"), ('"small"', '"few"'))), store)
    many = run(Sweep.from_toml(SPEC), store)
    assert ({r["heads"] for r in few}, {r["heads"] for r in many}) == ({1}, {1, 2})
    again = run(Sweep.from_toml(with_(("heads = [1, 2]", "heads = [1]"), ('"small"', '"few"'))), store)
    assert again.rows == few.rows
    assert [s.name for s in store.specs()] == ["small", "few"]
    _, out, _ = call(capsys, "runs", tmp_path, "--json")
    listed = json.loads(out)
    assert [(r["spec"].split("@")[0], r["trained"], r["wanted"]) for r in listed] == [("small", 8, 8), ("few", 4, 4)]
    for words in (["runs", "export"], ["fit"], ["report"], ["report", "--figure", "svg"]):
        code, out, err = call(capsys, *words, tmp_path)
        assert (code, out) == (2, "") and err.endswith("say which is meant: --spec with one of small, few\n"), err
    for chosen in ("small", listed[0]["spec"]):
        _, out, err = call(capsys, "runs", "export", tmp_path, "--json", "--spec", chosen)
        assert len(json.loads(out)) == 8 and err == ""
    code, _, err = call(capsys, "fit", tmp_path, "--spec", "smal")
    assert code == 2 and "did you mean 'small'?" in err


def test_reading_changes_no_byte_and_no_time_and_makes_no_file(tmp_path, capsys):
    filled(tmp_path)
    before = fingerprint(tmp_path)
    read_study(tmp_path)
    verify_store(tmp_path)
    for words in (["runs", tmp_path], ["runs", "export", tmp_path, "--json"], ["runs", "verify", tmp_path]):
        assert call(capsys, *words)[0] == 0
    assert fingerprint(tmp_path) == before


def test_a_store_of_the_first_version_is_read_without_being_changed_and_written_to_as_a_new_one(tmp_path):
    old = os.path.join(os.path.dirname(__file__), "..", "data", "written_by_0_1_0", "rows.sqlite")  # noqa: PTH118, PTH120
    shutil.copy(old, tmp_path / "rows.sqlite")
    before = fingerprint(tmp_path)
    study = read_study(tmp_path)
    assert len(study) > 0 and fingerprint(tmp_path) == before
    store = Store.open(tmp_path)
    store.state("more", {}, ["new"])
    store.add([row("new")], {})
    first = store.specs()[0]
    assert store.study(first.content).rows == study.rows
    assert verify_store(tmp_path).sound


def test_a_database_of_somebody_elses_is_refused_and_not_touched(tmp_path, capsys):
    with contextlib.closing(sqlite3.connect(tmp_path / "rows.sqlite")) as db, db:
        db.execute("CREATE TABLE photographs (id)")
    before = fingerprint(tmp_path)
    for words in (["runs", "export", tmp_path], ["fit", tmp_path], ["runs", "repair", tmp_path]):
        code, _, err = call(capsys, *words)
        assert code == 2 and "not a headcount store" in err and err.count("\n") == 1
    with pytest.raises(StoreError, match="not a headcount store"):
        Store.open(tmp_path, create=True)
    with pytest.raises(StoreError, match="not a headcount store"):
        Store(tmp_path / "rows.sqlite").state("x", {}, ["r"])
    assert fingerprint(tmp_path) == before


def test_a_store_of_a_newer_version_is_refused(tmp_path):
    store = filled(tmp_path)
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="newer headcount"):
        store.study()


def test_a_damaged_row_is_named_left_out_and_asked_for_again(tmp_path, capsys):
    store = filled(tmp_path)
    spoilt(store, "b")
    code, out, _ = call(capsys, "runs", "verify", tmp_path)
    assert code == 2 and "1 row damaged" in " ".join(out.split()) and "\n  b\n" in out
    study = store.study()
    assert [r["run"] for r in study] == ["a", "c"] and study.spec["damaged"] == 1
    assert store.missing(["a", "b", "c"]) == ["b"]
    store.add([row("b")], {"torch": "2"})
    assert [r["nmse"] for r in store.study()] == [0.5] * 3 and verify_store(tmp_path).sound
    assert store.specs()[0].trained == 3


def test_whoever_reads_a_study_with_a_damaged_row_is_told_and_the_sweep_says_what_it_trains_again(tmp_path, capsys):
    (tmp_path / "x.toml").write_text(SPEC)
    sweep = ("sweep", tmp_path / "x.toml", "--store", tmp_path / "s")
    assert call(capsys, *sweep)[0] == 0
    store = Store.open(tmp_path / "s")
    name = store.study().rows[3]["run"]
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE rows SET row = replace(row, 'nmse', 'NMSE') WHERE run = ?", (name,))
    for words in (["fit"], ["report"], ["report", "--figure", "svg"], ["runs", "export"]):
        out = () if words == ["fit"] else ("--out", tmp_path / "out")
        code, _, err = call(capsys, *words, tmp_path / "s", *out)
        assert code == 0 and err.count("\n") == 1 and f"1 damaged row of {tmp_path / 's'} left out" in err, err
    assert call(capsys, "fit", tmp_path / "out" / "study.json")[2] == ""  # a file has no sweep to mend it
    code, _, err = call(capsys, *sweep)
    assert code == 0 and f"headcount: 1 damaged row trained again: {name}\n" in err
    assert call(capsys, "fit", tmp_path / "s")[2] == "" and verify_store(tmp_path / "s").sound


@pytest.mark.parametrize("odd", ["null", "NaN", "Infinity"])
def test_a_sweep_whose_store_holds_errors_that_are_no_numbers_names_the_best_of_the_others(tmp_path, capsys, odd):
    asked = Sweep.from_toml(SPEC)
    study = run(asked, Store.open(tmp_path / "s", create=True))
    best = min(study, key=lambda r: r["nmse"])
    with contextlib.closing(sqlite3.connect(tmp_path / "s" / "rows.sqlite")) as db, db:
        for name, member, text, env in db.execute("SELECT run, member, row, environment FROM rows").fetchall():
            if name != best["run"]:
                new = json.dumps({**json.loads(text), "nmse": json.loads(odd), "status": "diverged"})
                db.execute(
                    "UPDATE rows SET row = ?, checksum = ? WHERE run = ?", (new, checksum(name, member, new, env), name)
                )
    (tmp_path / "x.toml").write_text(SPEC)
    code, out, _ = call(capsys, "sweep", tmp_path / "x.toml", "--store", tmp_path / "s")
    assert code == 0 and f"So: {best['layers']} at length {best['length']} came out best" in out


def test_a_figure_is_of_the_spec_asked_for(tmp_path, capsys):
    store = Store.open(tmp_path, create=True)
    run(Sweep.from_toml(with_(("heads = [1, 2]", "heads = [3]"), ('"small"', '"few"'))), store)
    run(Sweep.from_toml(SPEC), store)
    _, out, err = call(capsys, "report", tmp_path, "--table", "markdown", "--spec", "small")
    assert "3x4" not in out and err == ""
    _, out, err = call(capsys, "report", tmp_path, "--table", "markdown", "--spec", "few")
    assert err == "" and out != ""


def test_the_attention_shown_is_that_of_the_spec_asked_for(tmp_path, capsys):
    store = Store.open(tmp_path, create=True)
    for text in (with_(("heads = [1, 2]", "heads = [3]"), ('"small"', '"few"')), SPEC):
        run(Sweep.from_toml(text), store, save="best")
    code, out, err = call(capsys, "report", "--attention", tmp_path, "--inputs", 1)
    assert code == 2 and "--spec with one of few, small" in err
    _, out, err = call(capsys, "report", "--attention", tmp_path, "--inputs", 1, "--spec", "small")
    assert "3x4" not in out and err == ""
    _, out, err = call(capsys, "report", "--attention", tmp_path, "--inputs", 1, "--spec", "few")
    assert "by 3x4 at" in out and err == ""


def test_a_disk_that_cannot_be_written_to_is_named_by_what_was_asked_for(tmp_path, capsys, monkeypatch):
    filled(tmp_path / "s")
    true_open = os.open

    def refused(path, flags, *rest, **more):
        if flags & os.O_CREAT and str(path).endswith(".part"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return true_open(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refused)
    (tmp_path / "x.toml").write_text(SPEC)
    assert call(capsys, "sweep", tmp_path / "x.toml", "--store", tmp_path / "s")[2] == (
        f"headcount: {tmp_path / 's'}: read-only file system\n"
    )
    with pytest.raises(OSError, match=r"page\.html'"), atomic_write(tmp_path / "page.html") as scratch:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(scratch))


def test_repair_drops_damaged_rows_alone_and_keeps_the_file_as_it_was(tmp_path, capsys):
    store = filled(tmp_path)
    spoilt(store, "b")
    code, out, _ = call(capsys, "runs", "repair", tmp_path, "--json")
    told = json.loads(out)
    assert (code, told["rows"], told["dropped"]) == (0, 2, ["b"])
    assert (tmp_path / "rows.sqlite.damaged").exists() and verify_store(tmp_path).sound
    assert [r["run"] for r in store.study()] == ["a", "c"] and store.study().spec["is"] == "first"


@pytest.mark.parametrize("odd", ['"text"', "2.5", "[]", "null"])
def test_a_row_that_is_no_table_is_damage_even_where_its_checksum_fits(tmp_path, odd):
    store = filled(tmp_path)
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        (member, env) = db.execute("SELECT member, environment FROM rows WHERE run = 'b'").fetchone()
        db.execute("UPDATE rows SET row = ?, checksum = ? WHERE run = 'b'", (odd, checksum("b", member, odd, env)))
    assert verify_store(tmp_path).damaged == ("b",)
    assert repair_store(tmp_path).dropped == ("b",)
    assert [r["run"] for r in store.study()] == ["a", "c"] and verify_store(tmp_path).sound


def test_repair_saves_what_stands_on_pages_that_can_be_read(tmp_path):
    names = [f"{i:04d}" for i in range(400)]
    store = filled(tmp_path, names)
    content = bytearray(store.path.read_bytes())
    with contextlib.closing(sqlite3.connect(store.path)) as db, db:
        (page,) = db.execute("PRAGMA page_size").fetchone()
    marked = content.index(b'"run": "0200"') // page
    content[marked * page : (marked + 1) * page] = bytes(page)
    store.path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        store.study()
    saved = repair_store(tmp_path)
    assert 300 < saved.rows < 400 and verify_store(tmp_path).sound
    assert store.missing(names) and set(store.missing(names)) < set(names)
    assert all(r["nmse"] == 0.5 for r in store.study())


@pytest.mark.parametrize(
    "share", [0.02, 0.3, 0.5, 0.9, 0.999, *(pytest.param(n / 40, marks=pytest.mark.soak) for n in range(40))]
)
def test_a_store_cut_short_is_repaired_or_refused_with_what_to_do_and_never_in_a_ring(tmp_path, capsys, share):
    names = [f"{i:04d}" for i in range(400)]
    store = filled(tmp_path, names)
    content = store.path.read_bytes()
    left = content[: int(share * len(content))]
    store.path.write_bytes(left)
    code, _, err = call(capsys, "runs", "repair", tmp_path)
    if code == 0 and store.path.stat().st_size:
        kept = [run for run in names if run not in set(store.missing(names))]
        whole = sum(b'{"run": "%s"' % run.encode() in left for run in names)
        assert verify_store(tmp_path).sound and len(kept) >= whole - 15, "those of the page that was cut may be lost"
        assert not store.specs() or {run["run"] for run in store.study()} <= set(names)
    else:
        assert "runs repair" not in err and err.count("\n") <= 1, err


def test_a_list_of_tables_in_no_encoding_is_damage_and_repair_says_what_to_do(tmp_path, capsys):
    store = filled(tmp_path)
    content = store.path.read_bytes()
    at = content.index(b"CREATE TABLE rows (run TEXT PRIMARY KEY")
    store.path.write_bytes(content[: at + 30] + b"\xbb\xd5(" + content[at + 33 :])
    code, _, err = call(capsys, "runs", "export", tmp_path)
    assert code == 2 and "it is damaged" in err and "codec" not in err, err
    code, _, err = call(capsys, "runs", "repair", tmp_path)
    assert code == 0 or ("move it away" in err and "runs repair" not in err), err


def test_merging_brings_rows_and_specs_once_and_names_those_that_differ(tmp_path, capsys):
    filled(tmp_path / "one", "ab")
    other = filled(tmp_path / "two", "bc", spec="second")
    found = merge_stores(tmp_path / "one", tmp_path / "two")
    assert (found.added, found.specs, found.differing) == (1, 1, ())
    merged = Store.open(tmp_path / "one")
    assert [r["run"] for r in merged.study("second")] == ["b", "c"]
    assert merge_stores(tmp_path / "one", tmp_path / "two").added == 0
    with contextlib.closing(sqlite3.connect(other.path)) as db, db:
        db.execute("DELETE FROM rows WHERE run = 'b'")
    other.add([row("b", nmse=0.25)], {"torch": "2"})
    assert merge_stores(tmp_path / "one", tmp_path / "two").differing == ("b",)
    assert {r["nmse"] for r in merged.study("first")} == {0.5}
    code, _, err = call(capsys, "runs", "merge", tmp_path / "one", tmp_path / "one")
    assert code == 2 and "give another" in err


def test_a_finished_bank_waits_for_a_lock_that_outlasts_several_waits(tmp_path, monkeypatch):
    store = filled(tmp_path)
    store.wait = 0.01
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    tries, true_writing = [], store_module.writing

    def writing(*rest):
        tries.append(other.in_transaction)
        if len(tries) == 4:
            other.execute("ROLLBACK")
        return true_writing(*rest)

    monkeypatch.setattr(store_module, "writing", writing)
    store.add([row("d")], {})
    assert tries == [True] * 4 and store.missing(["d"]) == []
    other.close()


def test_a_reader_that_undoes_a_dead_writers_half_in_a_copy_notices_a_living_writer(tmp_path, monkeypatch):
    names = [f"{i:04d}" for i in range(400)]
    store = filled(tmp_path, names)
    child = os.fork()
    if child == 0:  # a writer dies with half of its transaction on the disk
        db = sqlite3.connect(store.path, isolation_level=None)
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE rows SET row = replace(row, '0.5', '0.4')")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert (tmp_path / "rows.sqlite-journal").exists()
    copied, true_copy = [], database._copy

    def copy(source, target):
        true_copy(source, target)
        copied.append(source)
        if len(copied) == 1:
            store.add([row("d")], {"torch": "2"})  # it undoes the half itself, and the journal is gone

    monkeypatch.setattr(database, "_copy", copy)
    assert [r["nmse"] for r in store.study()] == [0.5] * 400, "half of the dead writer's transaction was read"
    assert verify_store(tmp_path).sound and store.missing([*names, "d"]) == []


def test_a_store_that_changes_at_every_look_is_one_line(tmp_path, monkeypatch):
    store = filled(tmp_path)
    monkeypatch.setattr(database, "_copied", lambda *rest: None)
    monkeypatch.setattr(database, "_as_it_stands", lambda *rest: None)
    with pytest.raises(StoreError, match="changes faster than it can be read; run the same command again"):
        store.study()


def test_a_locked_store_is_one_line_for_a_reader(tmp_path, capsys, monkeypatch):
    store = filled(tmp_path)
    monkeypatch.setattr("headcount.results.database.LOCK_WAIT", 0.1)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    code, _, err = call(capsys, "runs", "export", tmp_path)
    assert code == 2 and "keeps it locked" in err and err.count("\n") == 1
    other.close()


def test_a_full_disk_is_one_line_and_what_was_kept_stays(tmp_path, monkeypatch):
    store = filled(tmp_path)
    import headcount.results.database as database

    prepare = database._prepare

    def tight(db, path):
        prepare(db, path)
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(database, "_prepare", tight)
    with pytest.raises(StoreError, match="disk is full; free some space and run the same command to go on"):
        store.add([row(f"long {i}", more="x" * 5000) for i in range(10)], {})
    monkeypatch.undo()
    assert [r["run"] for r in store.study()] == ["a", "b", "c"] and verify_store(tmp_path).sound


def test_a_refused_sweep_leaves_no_store(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "big.toml").write_text(with_(("samples = 64", "samples = 100_000_000_000")))
    code, _, err = call(capsys, "sweep", "big.toml")
    assert code == 2 and "GB" in err
    assert not (tmp_path / "runs").exists()


def test_an_odd_store_does_not_hide_the_others(tmp_path, capsys):
    filled(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "rows.sqlite").write_bytes(b"no database at all, and long enough to be looked at" * 30)
    code, out, err = call(capsys, "runs", tmp_path, "--json")
    assert code == 0 and [r["study"].endswith("good") for r in json.loads(out)] == [True]
    assert "bad" in err and err.count("\n") == 1
