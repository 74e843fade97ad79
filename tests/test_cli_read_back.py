"""What a command writes, a command reads: for every command of the app, so that a new one must say who reads it."""

import json
import re

import numpy as np
import pytest
import torch

import headcount
from headcount.cli.door import main
from headcount.refusals import EXTRAS
from tests.app_commands import commands
from tests.test_cli_allocation import folder, text  # noqa: F401
from tests.test_training_sweeps import SPEC

# Commands that only print, or write what a person looks at: pages, pictures, and the same facts as JSON.
FOR_PEOPLE = {
    "advise", "doctor", "fit", "lens", "predict", "report", "runs list", "runs verify", "saturation", "tasks",
    "ssm depth", "ssm quantise", "ssm table", "ssm train",
    "theory allocate", "theory bound", "theory collide", "theory margin", "theory prompt",
}  # fmt: skip


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([str(a) for a in arguments])
        printed = capsys.readouterr()
        assert stop.value.code == 0, printed.err
        return printed.out

    return run


def sweep(call, tmp_path, request):
    (tmp_path / "small.toml").write_text(SPEC)
    call("sweep", "small.toml", "--store", "kept")
    assert json.loads(call("runs", ".", "--json"))[0]["trained"] == 8
    assert len(json.loads(call("runs", "export", "kept", "--json"))) == 8
    assert "report.html" in call("report", "kept", "--out", "page")


def export(call, tmp_path, request):
    (tmp_path / "small.toml").write_text(SPEC)
    call("sweep", "small.toml", "--store", "kept")
    call("runs", "export", "kept", "--out", "given")
    given, kept = (call("runs", "export", study, "--json") for study in ("given/study.json", "kept"))
    assert json.loads(given) == json.loads(kept)


def demo(call, tmp_path, request):
    request.getfixturevalue("monkeypatch").setattr("headcount.papers.head_count.first_study.SPEC", SPEC)
    call("demo", "--out", "look")
    assert len(json.loads(call("runs", "export", "look/study", "--json"))) == 8


def measure(call, tmp_path, request):
    g = np.random.default_rng(0)
    x = g.normal(size=(64, 4, 2))
    np.savez(tmp_path / "mine.npz", x=x, y=x[:, :, 0].max(axis=1))
    call("measure", "mine.npz", "--heads", "1-2", "--layers", "1", "--splits", "2", "--steps", "20", "--out", "found")
    assert "report.html" in call("report", "found/study.json", "--out", "again")


def certify(call, tmp_path, request):
    (tmp_path / "small.toml").write_text(SPEC.replace("[4, 6]", "[4]"))
    call("sweep", "small.toml", "--store", "kept", "--save", "all")
    found = json.loads(
        call("certify", "kept", "--box=-1,1", "--ratio", "3", "--seconds", "5", "--out", "page", "--json")
    )
    assert len(found["networks"]) == 4 and all(n["worst_lower"] <= n["worst_upper"] for n in found["networks"])
    assert len(json.loads(call("runs", "export", "page/study.json", "--json"))) == 4
    assert "4 networks with two" in call("runs", "export", "kept", "--vnnlib", "--box=-1,1", "--out", "problems")
    answers = (tmp_path / "problems" / "answers.csv").read_text().splitlines()
    assert len(answers) == 8 and all((tmp_path / "problems" / line.split(",")[0]).is_file() for line in answers)
    assert sum(1 for _ in (tmp_path / "problems").glob("error_*.onnx")) == 4
    assert json.loads(call("fit", "page/study.json", "--norm", "worst", "--json"))[0]["rows"] == 4
    assert "report.html" in call("report", "page/study.json", "--out", "page")


def build(call, tmp_path, request):
    call("build", "--retrievals", "2", "--length", "32", "--eps", "1e-2", "--no-check", "--out", "net")
    said = call("theory", "collide", "--net", "net/net.safetensors", "--free", "4", "--json")
    assert not json.loads(said)["collides"]


def probe(call, tmp_path, request):
    task = ("LinearMax", "--with", "retrievals=2", "--with", "token_dim=2", "--length", "6")
    one = json.loads(call("probe", *task, "--layers", "1x2", "--epochs", "1", "--save", "net.safetensors", "--json"))
    again = json.loads(call("probe", *task, "--net", "net.safetensors", "--json"))
    assert again["attends"] == one["attends"]


def compress(call, tmp_path, request):
    model, words = request.getfixturevalue("folder"), request.getfixturevalue("text")
    call("compress", model, "--measure", "weights", "--out", "small")
    options = ("--text", words, "--lengths", "8", "--samples", "1", "--json")
    assert len(json.loads(call("saturation", "small/compact", *options))["layers"]) == 2


def deepen_and_flatten(call, tmp_path, request):
    system = headcount.ssm.DiagonalSSM([0.9, -0.5, 0.3], [100.0, 5.0, 2.0])
    headcount.ssm.save(system, tmp_path / "system.json")
    call("ssm", "deepen", "system.json", "--depth", "2", "--out", "deep")
    (made,) = (tmp_path / "deep").glob("*.json")
    call("ssm", "flatten", made, "--out", "flat")
    (back,) = (tmp_path / "flat").glob("*.json")
    call("ssm", "deepen", back, "--depth", "2", "--out", "again")
    gap = headcount.ssm.load(back).impulse(32) - system.impulse(32)
    assert np.abs(gap).max() < 1e-9 * np.abs(system.impulse(32)).max()


def ssm_export(call, tmp_path, request):
    system = headcount.ssm.DiagonalSSM([0.9, -0.5, 0.3], [100.0, 5.0, 2.0])
    headcount.ssm.save(system, tmp_path / "system.json")
    call("ssm", "export", "system.json", "--to", "sos")
    call("ssm", "deepen", "system-sos.json", "--depth", "2")
    assert np.allclose(headcount.ssm.load(tmp_path / "system-sos-deep.json").impulse(32), system.impulse(32))


def reproduce(call, tmp_path, request):
    call("reproduce", "allocation:e-128", "--out", "made")
    call("reproduce", "--redraw", "made", "--out", "page")
    assert (tmp_path / "page/reproduction.md").read_text() == (tmp_path / "made/reproduction.md").read_text()


def interpolate(call, tmp_path, request):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "labels.npz", x=rng.standard_normal((5, 4, 3)), y=np.array(list("abcab")))
    call("theory", "interpolate", "labels.npz", "--out", "memory")
    (made,) = (tmp_path / "memory").glob("*.safetensors")
    assert "So:" in call("theory", "interpolate", "labels.npz", "--net", made)


def applied(call, tmp_path, request):
    x = np.random.default_rng(0).standard_normal((120, 4, 2))
    np.savez(tmp_path / "mine.npz", x=x, y=x[:, :, 0].max(axis=1))
    few = ("--heads", "1-2", "--layers", "1", "--splits", "2", "--steps", "20")
    call("measure", "mine.npz", *few, "--out", "found", "--model", "mine.safetensors")
    assert "So:" in call("apply", "mine.safetensors", "mine.npz")


def stores(call, tmp_path, request):
    (tmp_path / "small.toml").write_text(SPEC)
    call("sweep", "small.toml", "--store", "kept")
    call("runs", "merge", "both", "kept")
    call("runs", "repair", "both")
    call("runs", "verify", "both")
    assert len(json.loads(call("runs", "export", "both", "--json"))) == 8


def shape(call, tmp_path, request):
    (tmp_path / "letters.txt").write_bytes(bytes(np.random.default_rng(0).integers(97, 105, 17 * 200).tolist()))
    small = ("--layers", "2", "--width", "64", "--vocab", "256", "--context", "16", "--text", "letters.txt")
    call("shape", *small, "--flops", "1e9", "--experiment", "settle.toml")
    written = (tmp_path / "settle.toml").read_text()
    few = re.sub(r"seeds = .*", "seeds = [1, 2]", re.sub(r"rates = .*", "rates = [1e-2]", written))
    (tmp_path / "settle.toml").write_text(re.sub(r"steps = .*", "steps = 4", few))
    row = json.loads(call("sweep", "settle.toml", "--store", "kept", "--json"))
    assert row["seeds"] == 2 and (tmp_path / "kept/settled.json").exists()


READ_BACK = {
    "apply": applied,
    "theory interpolate": interpolate,
    "runs merge": stores,
    "runs repair": stores,
    "build": build,
    "certify": certify,
    "compress": compress,
    "demo": demo,
    "runs export": export,
    "measure": measure,
    "probe": probe,
    "reproduce": reproduce,
    "shape": shape,
    "ssm deepen": deepen_and_flatten,
    "ssm export": ssm_export,
    "ssm flatten": deepen_and_flatten,
    "sweep": sweep,
}


@pytest.mark.parametrize("command", READ_BACK)
def test_what_a_command_writes_a_command_reads(command, call, tmp_path, request):
    if command == "compress":
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    READ_BACK[command](call, tmp_path, request)


def test_every_command_is_read_back_or_written_for_people():
    every = set(commands())
    assert len(every) >= 23
    assert every - FOR_PEOPLE == set(READ_BACK)


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_command_has_help_in_eighty_columns_and_prints_json_on_demand(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), "--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0 and max(map(len, out.splitlines())) <= 80
    assert "--json" in out


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"headcount {headcount.__version__}\n"


def test_a_missing_extra_is_named_as_pip_wants_it(capsys, monkeypatch, tmp_path):
    import sys
    import tomllib
    from pathlib import Path

    extras = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"]
    assert set(EXTRAS) <= set(extras["optional-dependencies"])
    monkeypatch.setitem(sys.modules, "flint", None)
    for module in ("headcount.certificates.enclosure", "headcount.papers.head_count.networks.term_recheck"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as stop:
        main(["build", "--retrievals", "2", "--length", "8", "--eps", "0.1", "--no-check", "--certify"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith("pip install 'headcount[certify]'\n")
