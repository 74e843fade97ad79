"""The doors: what each prints, and that every mistake is one line on stderr with exit code 2."""

import json

import pytest

from headcount.cli import main
from headcount.cli.surface import PANELS
from headcount.results import Store, read_study
from headcount.tasks.catalogue import SHIPPED
from tests.app_commands import commands
from tests.test_training_sweeps import SPEC


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, printed.err

    return run


@pytest.fixture
def study(call, tmp_path):
    (tmp_path / "small.toml").write_text(SPEC)
    code, out, err = call("sweep", "small.toml")
    assert code == 0 and err == "", err
    assert "8 rows in runs/small" in out
    return tmp_path / "runs" / "small"


def test_help_lists_every_command(call):
    code, out, _ = call("--help")
    assert code == 0
    every = {words.split()[0] for words in commands()}
    listed = out.split("Your data:")[1]
    assert {line.split()[0] for line in listed.splitlines() if line.startswith("  ")} == every
    assert [line.rstrip(":") for line in listed.splitlines() if line and line[0] != " "] == [*PANELS][1:]
    assert len(out.splitlines()) <= 44 and max(map(len, out.splitlines())) <= 80 and "..." not in listed


@pytest.mark.parametrize("group", [entry.name for e in PANELS.values() for entry in e if hasattr(entry, "commands")])
def test_the_help_of_a_group_cuts_no_sentence(call, group):
    _, out, _ = call(group, "--help")
    assert "..." not in out.split("Commands:")[1] and max(map(len, out.splitlines())) <= 80


def test_the_spec_that_help_shows_runs_and_finds_the_knee(call, tmp_path):
    _, out, _ = call("sweep", "--help")
    shown = out.split("seconds:")[1].split("Arguments:")[0]
    (tmp_path / "small.toml").write_text(shown)
    code, out, err = call("sweep", "small.toml", "--save", "best")
    assert code == 0 and err == "" and "1x4" in out
    best = {row["layers"]: row["nmse"] for row in Store.open(tmp_path / "runs" / "small").study()}
    assert best["2x4"] < best["1x4"] / 10
    code, out, err = call("certify", "runs/small")
    assert code == 2 and "say with --box on which box to certify" in err


def test_a_network_that_probe_keeps_can_be_certified(call):
    task = ("--length", "3", "--with", "retrievals=1", "--with", "token_dim=1")
    code, _, err = call(
        "probe", "LinearMax", "--layers", "1x2", "--epochs", "1", "--width", "4", "--save", "net", *task
    )
    assert code == 0, err
    code, out, err = call("certify", "net", "--task", "LinearMax", *task, "--box", "-1,1", "--seconds", "5")
    assert code == 0 and "So: the worst error is between" in out, err


def test_tasks_as_json_carry_their_structure(call):
    code, out, _ = call("tasks", "--json")
    assert code == 0
    rows = {row["task"]: row for row in json.loads(out)}
    assert set(rows) == {cls.__name__ for cls in SHIPPED}
    assert all(row["structure"]["retrievals"] for row in rows.values())


def test_runs_and_export_hand_out_what_a_sweep_kept(call, study):
    code, out, _ = call("runs", "--json")
    assert code == 0 and json.loads(out)[0]["trained"] == 8
    code, out, _ = call("runs", "export", study)
    assert code == 0
    assert len((study / "rows.csv").read_text().splitlines()) == 9
    rows = [json.loads(line) for line in (study / "rows.jsonl").read_text().splitlines()]
    assert rows == list(Store.open(study).study().rows)
    assert read_study(study / "study.json") == Store.open(study).study()
    code, out, _ = call("runs", "export", study, "--json")
    assert json.loads(out) == rows


def test_a_sweep_as_json_prints_its_rows(call, study):
    code, out, _ = call("sweep", "small.toml", "--json")
    assert code == 0 and len(json.loads(out)) == 8


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("sweep",), "Missing argument 'spec': headcount sweep SPEC (see"),
        (("runs", "merge"), "Missing argument 'INTO': headcount runs merge INTO STORE... (see"),
        (("predict", "Wells"), "Missing option '--layers': headcount predict TASK --layers LAYERS (see"),
        (("sweep", "empty.toml"), "lacks a [task] section; the help of `headcount sweep` shows one"),
        (("sweep", "nowhere.toml"), "nowhere.toml: no such file or directory"),
        (("sweep", "."), "is a directory"),
        (("sweep", "small.toml", "--device", "tpu"), "device must be cpu or cuda, got 'tpu'"),
        (("sweep", "broken.toml"), "broken.toml: "),
        (("sweep", "binary.toml"), "binary.toml: "),
        (("tasks", "--jsn"), "No such option: --jsn"),
        (("runs", "nowhere"), "no folder nowhere"),
        (("runs", "export", "nowhere"), "no study at nowhere"),
        (("runs", "export", "broken"), "is not a headcount store"),
        (("report", "nowhere"), "no study at nowhere"),
        (("fit", "nowhere"), "no study at nowhere"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_code_two(call, tmp_path, arguments, says):
    (tmp_path / "small.toml").write_text(SPEC)
    (tmp_path / "broken.toml").write_text("[task\nname=")
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "rows.sqlite").write_text("this is no database, only a long enough text to be read as one")
    code, out, err = call(*arguments)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and err.startswith("headcount: ")
    assert says in err


def test_an_interrupted_sweep_says_what_is_kept_and_how_to_go_on(call, tmp_path, monkeypatch):
    import headcount.training.bank_jobs as module

    (tmp_path / "small.toml").write_text(SPEC)
    true_train, calls = module.train, []

    def once(*arguments, **options):
        if calls:
            raise KeyboardInterrupt
        calls.append(1)
        return true_train(*arguments, **options)

    monkeypatch.setattr(module, "train", once)
    code, _, err = call("sweep", "small.toml")
    assert code == 130
    assert "of 8 networks are kept in runs/small; run the same command to go on" in err
