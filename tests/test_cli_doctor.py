"""What the machine has is told, and what is missing comes with the line that mends it."""

import json

import pytest

from headcount.cli.doctoring import FOR
from headcount.cli.door import main
from headcount.refusals import EXTRAS


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["doctor", *map(str, arguments)])
    assert stop.value.code == 0
    return capsys.readouterr().out


def found(capsys, *arguments):
    return {row["part"]: row for row in json.loads(told(capsys, "--json", *arguments))}


def test_every_extra_is_looked_for_and_said_what_it_is_for():
    assert set(FOR) == set(EXTRAS)


def test_what_is_missing_is_named_with_what_mends_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("HEADCOUNT_CACHE", "/proc/nowhere")
    rows = found(capsys, tmp_path)
    assert rows["[certify]"]["mend"].startswith("pip install 'headcount[certify]'")
    assert "g++" in rows["C++ compiler"]["mend"]
    out = told(capsys, tmp_path)
    assert "[certify]: pip install" in out and "could be added or mended" in out


def test_a_store_that_cannot_be_read_is_a_finding(capsys, tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "rows.sqlite").write_bytes(b"no database at all" * 100)
    assert "runs verify" in found(capsys, tmp_path)["studies"]["mend"]
    assert found(capsys, tmp_path / "nothing")["studies"]["found"].startswith("no folder")
