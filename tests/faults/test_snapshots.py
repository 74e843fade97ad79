"""A command reads its study as it stood at one moment, whatever is written, stated or repaired meanwhile."""

import csv
import json

import pytest

from headcount.results import Store, snapshot
from headcount.results.database import StoreError
from headcount.results.export import Exported
from headcount.results.upkeep import repair_store
from tests.faults.test_store import call, filled, row, spoilt

NAMES = [f"{i:04d}" for i in range(50)]


def meddling(store):
    """Everything that others may do to a store between two looks at it."""
    turn = iter(range(1000))

    def meddle():
        number = next(turn)
        store.add([row(f"later {number}"), row(f"r{number}")], {"torch": f"3.{number}"})
        store.state("another", {"is": number}, [f"later {number}", *NAMES[:3]])
        store.state("first", {"is": "changed"}, [*NAMES, f"r{number}"])

    return meddle


@pytest.fixture
def meddled(tmp_path, monkeypatch):
    """A store of 50 of 60 rows, in which something happens before every look."""
    store = Store.open(tmp_path / "s", create=True)
    store.state("first", {"is": "first"}, [*NAMES, *(f"r{i}" for i in range(10))])
    store.add([row(name) for name in NAMES], {"torch": "2"})
    monkeypatch.setattr(snapshot, "CHUNK", 7)
    meddle, true, busy = meddling(store), snapshot.reading, []

    def reading(*rest):
        if not busy:
            busy.append(1)
            meddle()
            busy.pop()
        return true(*rest)

    monkeypatch.setattr(snapshot, "reading", reading)
    return store


def test_three_files_of_an_export_are_of_one_spec_at_one_moment(meddled, tmp_path):
    study = Exported.of(meddled.path.parent)
    table, lines, whole = (path.read_text() for path in study.write(tmp_path / "out"))
    rows = [json.loads(line)["run"] for line in lines.splitlines()]
    assert rows == NAMES == [cells["run"] for cells in csv.DictReader(table.splitlines())]
    told = json.loads(whole)
    assert [r["run"] for r in told["rows"]] == NAMES and study.count == 50
    assert (told["name"], told["spec"]["is"], told["spec"]["asked"]) == ("first", "first", 60)
    assert told["environment"] == {"torch": "2"} and "damaged" not in told["spec"]


def test_a_study_is_read_whole_as_it_stood_when_it_was_asked_for(meddled):
    kept = meddled.snapshot("first")
    for _ in range(3):
        study = kept.study()
        assert [r["run"] for r in study] == NAMES and study.spec == {"is": "first", "asked": 60}
    assert len(meddled.study("first")) > 50  # the one stated meanwhile, of the same name


def test_a_store_repaired_while_it_is_read_is_one_line(tmp_path):
    store = filled(tmp_path)
    spoilt(store, "b")
    kept = store.snapshot()
    assert repair_store(tmp_path).aside
    with pytest.raises(StoreError, match="another file took its place while it was read; run the same command again"):
        kept.study()


def test_a_damaged_row_that_is_mended_meanwhile_is_still_the_one_that_was_damaged(tmp_path):
    store = filled(tmp_path)
    spoilt(store, "b")
    kept = store.snapshot()
    store.add([row("b")], {})
    study = kept.study()
    assert [r["run"] for r in study] == ["a", "c"] and study.spec["damaged"] == 1
    assert len(store.study()) == 3


def test_specs_of_one_name_are_versions_and_parts_are_no_second_spec(tmp_path, capsys):
    store = filled(tmp_path, spec="sizes")
    store.state("sizes, rates", {}, ["a"])
    store.state("sizes, 200 steps", {}, ["b"])
    assert call(capsys, "export", tmp_path, "--json")[2] == ""
    store.state("sizes", {"is": "more"}, ["a", "b"])
    code, out, err = call(capsys, "export", tmp_path, "--json")
    assert code == 0 and len(json.loads(out)) == 2 and err.count("\n") == 1
    assert f"shown is {store.specs()[-1].label}, stated last" in err and store.specs()[0].label in err
    first = store.specs()[0].label
    code, out, err = call(capsys, "export", tmp_path, "--json", "--spec", first)
    assert code == 0 and len(json.loads(out)) == 3 and err == ""
