"""What stands in a store beside its rows is checked, too: specs, the runs that they name, environments."""

import contextlib
import io
import shutil
import sqlite3

import pytest

from headcount.cli import main
from headcount.results.upkeep import verify_store
from tests.faults.sweep_specs import SPEC, rows_of, with_

SAME = {"kept": "UPDATE specs SET kept = 99, diverged = 5", "turn": "UPDATE specs SET turn = 'x'"}  # nobody can tell
DAMAGES = {
    "spec cut": "UPDATE specs SET spec = substr(spec, 2)",
    "spec empty": "UPDATE specs SET spec = ''",
    "spec not text": "UPDATE specs SET spec = CAST(x'ff00' AS TEXT)",
    "spec a blob": "UPDATE specs SET spec = x'ff00'",
    "spec another": "UPDATE specs SET spec = replace(spec, '32', '33')",
    "spec a list": "UPDATE specs SET spec = '[1]'",
    "spec deep": "UPDATE specs SET spec = replace(hex(zeroblob(50000)), '0', '[')",
    "name not text": "UPDATE specs SET name = CAST(x'ff' AS TEXT)",
    "name another": "UPDATE specs SET name = 'other'",
    "address another": "UPDATE specs SET content = 'x'",
    "specs gone": "DELETE FROM specs",
    "runs gone": "DELETE FROM asked",
    "a run gone": "DELETE FROM asked WHERE place = 2",
    "runs in another order": "UPDATE asked SET place = 100 - place",
    "a run another": "UPDATE asked SET run = run || 'x' WHERE place = 1",
    "a run not text": "UPDATE asked SET run = CAST(x'ff' AS TEXT) WHERE place = 1",
    "environment cut": "UPDATE environments SET environment = substr(environment, 2)",
    "environment not text": "UPDATE environments SET environment = CAST(x'ff' AS TEXT)",
    "environment a list": "UPDATE environments SET environment = '[]'",
    "environment another": "UPDATE environments SET environment = replace(environment, 'cpu', 'gpu')",
    "environments gone": "DELETE FROM environments",
    "count a word": "UPDATE specs SET kept = 'x'",
} | SAME


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    (folder / "x.toml").write_text(SPEC)
    typed("sweep", folder / "x.toml", "--store", folder / "s")
    return folder


def typed(*words):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            return end.code or 0, err.getvalue()
    return 0, err.getvalue()


@pytest.fixture(params=sorted(DAMAGES))
def damaged(request, swept, tmp_path):
    shutil.copytree(swept / "s", tmp_path / "s")
    with contextlib.closing(sqlite3.connect(tmp_path / "s" / "rows.sqlite")) as db, db:
        db.execute(DAMAGES[request.param])
    return request.param, tmp_path / "s"


def test_a_sweep_writes_anew_what_is_damaged_and_its_rows_are_all_there(swept, damaged):
    _, store = damaged
    code, said = typed("sweep", swept / "x.toml", "--store", store)
    assert code == 0, said
    assert rows_of(store) == rows_of(swept / "s")


def test_every_reader_goes_on_or_names_what_is_damaged(damaged, tmp_path):
    _, store = damaged
    for words in (("runs", store), ("fit", store), ("report", store), ("runs", "export", store, "--out", tmp_path)):
        code, said = typed(*words)
        named = any(words in said for words in ("runs repair", "sweep", "the spec of"))
        assert code == 0 or (code == 2 and said.count("\n") <= 2 and named), said


def test_what_is_damaged_is_named_and_repaired_and_the_sweep_brings_the_rest(swept, damaged):
    name, store = damaged
    seen = verify_store(store)
    assert seen.sound == (name in {*SAME, "count a word", "specs gone", "environments gone"}) and not seen.damaged
    code, said = typed("runs", "repair", store)
    assert code == 0 and verify_store(store).sound, said
    code, said = typed("sweep", swept / "x.toml", "--store", store)
    assert code == 0, said
    assert rows_of(store) == rows_of(swept / "s") and verify_store(store).sound


def test_another_spec_that_is_damaged_hinders_no_sweep(swept, tmp_path):
    shutil.copytree(swept / "s", tmp_path / "s")
    (tmp_path / "y.toml").write_text(with_(("seeds = 2", "seeds = 1")))
    assert typed("sweep", tmp_path / "y.toml", "--store", tmp_path / "s")[0] == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "s" / "rows.sqlite")) as db, db:
        db.execute("UPDATE specs SET spec = '{', name = 'other' WHERE id = 2")
    code, said = typed("sweep", swept / "x.toml", "--store", tmp_path / "s")
    assert code == 0, said
    assert rows_of(tmp_path / "s") == rows_of(swept / "s")


def test_a_merge_brings_what_is_left_of_a_damaged_spec_under_its_own_address(swept, tmp_path):
    shutil.copytree(swept / "s", tmp_path / "s")
    with contextlib.closing(sqlite3.connect(tmp_path / "s" / "rows.sqlite")) as db, db:
        db.execute("DELETE FROM asked WHERE place = 2")
    code, said = typed("runs", "merge", tmp_path / "into", tmp_path / "s")
    assert code == 0 and verify_store(tmp_path / "into").sound and verify_store(tmp_path / "into").rows == 8, said
    code, said = typed("sweep", swept / "x.toml", "--store", tmp_path / "into")
    assert code == 0, said
    assert rows_of(tmp_path / "into") == rows_of(swept / "s")
