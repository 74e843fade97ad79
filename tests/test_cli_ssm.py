"""`headcount ssm`: what it prints, what it writes, and one line for every mistake."""

import json

import numpy as np
import pytest

from headcount.cli.door import main
from headcount.papers.ssm import load
from headcount.papers.ssm.responses import gap


@pytest.fixture
def run(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as leave:
            main(["ssm", *map(str, arguments)])
        out, err = capsys.readouterr()
        return leave.value.code, out, err

    return call


@pytest.fixture
def system(tmp_path):
    path = tmp_path / "system.json"
    path.write_text(json.dumps({"poles": [0.9, -0.8, 0.5, 0.1], "residues": [100, 80, -60, 5]}))
    return path


def test_deepen_prints_writes_and_draws(run, system, tmp_path):
    code, out, _ = run("deepen", system, "--max-entry", 2)
    assert code == 0
    for word in ("depth", "width", "largest entry", "differ by"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 100
    deep = load(tmp_path / "system-deep.json")
    assert deep.largest_entry <= 2
    assert gap(deep.impulse(100), load(system).impulse(100)) < 1e-13
    assert "</svg>" in (tmp_path / "system-deep.svg").read_text()
    assert not list(tmp_path.glob("*.part"))


def test_deepen_and_flatten_are_each_others_way_back(run, system, tmp_path):
    assert run("deepen", system, "--depth", 3, "--out", tmp_path / "deep", "--json")[0] == 0
    code, out, _ = run("flatten", tmp_path / "deep" / "system-deep.json", "--json")
    assert code == 0
    assert np.allclose(sorted(np.array(json.loads(out)["residues"])), [-60, 5, 80, 100])
    code, out, _ = run("flatten", tmp_path / "deep" / "system-deep.json")
    assert code == 0 and "4 modes" in out


def test_json_of_deepen_holds_numbers(run, system):
    row = json.loads(run("deepen", system, "--max-entry", "0.6", "--route", "stages", "--json")[1])
    assert row["largest entry"]["before"] == 10 and row["largest entry"]["after"] <= 0.6 and row["gap"] < 1e-12


def test_tables_come_out_as_in_the_notes(run):
    rows = json.loads(run("table", "--json")[1])
    assert [row["depth"] for row in rows] == [1, 2, 3, 4, 6, 12]
    assert "5.192" in run("table")[1]
    rows = json.loads(run("depth", "--json")[1])
    found = [(row["paper"], row["sharper"], row["positive_real"]) for row in rows]
    assert found[:3] == [(11, 7, 5), (6, 4, 4), (3, 2, 2)] and found[-1] == (9, 8, 7)
    assert "22       19" in run("depth")[1]


def test_depth_of_two_sizes_names_its_sources(run):
    out = run("depth", 10, 3, "--modes", 13)[1]
    assert "at most 11" in out and "at least 2" in out and "Theorem 4.2" in out
    assert json.loads(run("depth", 10, 3, "--json")[1])[0]["value"] == 11


def test_quantise_compares_three_forms(run, tmp_path):
    code, out, _ = run("quantise", "--bits", "8,12", "--order", 8, "--sharpen", 2, "--out", tmp_path)
    assert code == 0 and "one layer" in out and "second-order" in out and (tmp_path / "quantise.svg").exists()
    rows = json.loads(run("quantise", "--bits", "8", "--order", 8, "--depth", 2, "--json")[1])
    assert {row["form"] for row in rows} == {"one layer", "depth 2", "second-order sections"}


def test_train_prints_a_row_a_size(run, tmp_path):
    asked = ("train", "--sizes", "1x3,2x2", "--clips", "1,2", "--steps", 3, "--seeds", 1)
    code, out, _ = run(*asked, "--out", tmp_path)
    assert code == 0 and out.splitlines()[0].split() == ["depth", "width", "parameters", "1", "2"]
    assert (tmp_path / "train.svg").exists()
    assert len(json.loads(run(*asked, "--json")[1])) == 4


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"poles": [0.5, 1.2], "residues": [1, 1]}, "unstable: pole 2"),
        ({"poles": [], "residues": []}, "poles is empty"),
        ({"poles": [0.5], "residues": [float("nan")]}, "not finite"),
    ],
)
def test_bad_systems_get_one_line(run, tmp_path, content, says):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(content))
    code, out, err = run("deepen", path, "--max-entry", 2)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad.json"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--max-entry", 0), "finite number above 0"),
        (("--max-entry", "nan"), "finite number above 0"),
        (("--max-entry", 0.5), "cannot bring the entries down to 0.5"),
        (("--max-entry", 0.1, "--route", "stages"), "must exceed 1"),
        (("--depth", 2, "--width", 2), "hold at most 3 modes"),
        (("--depth", 0), "depth must be at least 1"),
        ((), "give either --max-entry or --depth"),
        (("--depth", 2, "--max-entry", 2), "give either --max-entry or --depth"),
        (("--depth", 2, "--route", "stages"), "give --max-entry"),
        (("--depth", 2, "--route", "chain"), "did you mean 'chains'"),
        (("--depth", 2, "--deal", "angles"), "did you mean 'angle'"),
        (("--max-entri", 2), "--max-entry"),
    ],
)
def test_impossible_wishes_get_one_line(run, system, arguments, says):
    code, out, err = run("deepen", system, *arguments)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("table", "--depths", "a,b"), "--depths takes whole numbers"),
        (("depth", 10), "give both sizes"),
        (("depth", 0, 3), "c_from must be"),
        (("quantise", "--bits", "1"), "needs 2 to 52 bits"),
        (("quantise", "--speech", "nowhere.npz"), "no such file"),
        (("train", "--sizes", "2y3"), "--sizes takes depth x width"),
        (("train", "--sizes", "0x3"), "--sizes takes depth x width"),
        (("train", "--clips", "x"), "--clips takes numbers"),
        (("train", "--start", "randm"), "did you mean 'random'"),
        (("train", "--seeds", 0), "--seeds must be at least 1"),
        (("flatten", "missing.json"), "no such file"),
    ],
)
def test_other_mistakes_get_one_line_too(run, arguments, says):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "") and says in err and err.count("\n") == 1


def test_a_deep_file_is_not_deepened_nor_a_flat_one_flattened(run, system, tmp_path):
    run("deepen", system, "--depth", 2)
    assert "is deep already" in run("deepen", tmp_path / "system-deep.json", "--depth", 2)[2]
    assert "is one layer already" in run("flatten", system)[2]


def test_a_goal_that_no_argument_reaches_is_said_and_not_stumbled_over(run):
    code, out, _ = run("depth", 10, 1)
    assert code == 0 and "So: nothing follows for the depth that brings entries of 10 down to 1." in out


def test_what_flatten_prints_for_programs_is_a_system_again(run, system, tmp_path):
    run("deepen", system, "--depth", 2)
    (tmp_path / "again.json").write_text(run("flatten", tmp_path / "system-deep.json", "--json")[1])
    assert gap(load(tmp_path / "again.json").impulse(100), load(system).impulse(100)) < 1e-12
