"""bound, build and collide from the command line: right numbers, readable lines, and mistakes in one sentence."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from inspect import signature

import pytest

import headcount
from headcount.certificates import load
from headcount.cli.door import main
from headcount.papers.infoflow.networks.build import CONSTRUCTIONS
from headcount.tasks import KthLargest


@pytest.fixture
def run(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        shown = capsys.readouterr()
        return left.value.code, shown.out, shown.err

    return call


def test_bound_prints_the_exponent_and_what_it_means(run):
    code, out, err = run("theory", "bound", "--length", "128", "--retrievals", "4", "--heads", "1", "--head-dim", "2")
    assert (code, err) == (0, "")
    assert ">= 6, by Theorem 2(2)" in out
    assert "by at least 64" in out


def test_bound_as_json_is_the_python_twin(run):
    from headcount.papers.head_count import bounds

    code, out, _ = run("theory", "bound", "--length", "256", "--heads", "2", "--json")
    assert code == 0
    assert json.loads(out)["value"] == pytest.approx(
        bounds.few_heads_exponent(length=256, retrievals=4, heads=2, head_dim=2).value
    )


def test_bound_table_has_a_row_for_every_number_of_heads(run):
    code, out, _ = run("theory", "bound", "--table", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [r["heads"] for r in rows] == [1, 2, 3, 4]
    assert rows[0]["T=1024"] == 62
    assert "bites from" in run("theory", "bound", "--table")[1]


def test_build_writes_what_load_reads(run, tmp_path):
    arguments = ("build", "Wells", "--retrievals", "2", "--length", "16", "--eps", "1e-2", "--out", str(tmp_path))
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    last = " ".join(out[out.index("So: ") :].split())
    assert last.startswith("So: a network of 2 heads and") and "given tokens in [0, 1]^2 and float64" in last
    assert max(map(len, out.splitlines())) <= 100
    assert load(tmp_path / "net.safetensors").certificate.error <= 1e-2
    kept = json.loads((tmp_path / "certificate.json").read_text())
    assert kept["check"]["holds"]


@pytest.mark.parametrize("task", sorted({cls.__name__ for cls in CONSTRUCTIONS} - {"Lookups"}))  # that is Python's own
def test_build_builds_every_task_that_python_builds(run, tmp_path, task):
    code, out, err = run("build", task, "--eps", "1e-2", "--no-check", "--out", str(tmp_path))
    assert (code, err) == (0, "")
    kept = load(tmp_path / "net.safetensors")
    assert type(kept.task).__name__ == task and 0 < kept.certificate.error <= 1e-2
    assert "So: " in out and "1 heads" not in out


def test_a_field_of_the_task_is_given_by_its_name(run):
    code, out, _ = run("build", "KthLargest", "--with", "rank=3", "--eps", "0.05", "--json", "--no-check")
    assert code == 0 and len(json.loads(out)["network"]["layers"]) == 3


def test_the_second_largest_of_eight_is_built_at_the_default_error():
    built = headcount.build(KthLargest(2, 8))
    assert built.certificate.error <= 1e-3 and built.check().holds
    longer = headcount.build(KthLargest(2, 64))
    assert longer.certificate.error <= 1e-3 and longer.check().holds


def test_build_certifies_in_ball_arithmetic(run):
    pytest.importorskip("flint")
    code, out, _ = run("build", "LinearMax", "--length", "8", "--eps", "0.1", "--no-check", "--certify", "--json")
    found = json.loads(out)
    assert code == 0
    assert all(t["holds"] for t in found["rechecked"]["terms"])
    assert "check" not in found


def test_build_one_head(run):
    code, out, _ = run("build", "--one-head", "--length", "6", "--token-dim", "1", "--retrievals", "2", "--eps", "0.2")
    assert code == 0
    assert "\n1 head of dimension 6" in out and "1 heads" not in out


def test_collide_shows_both_sequences_and_draws_them(run, tmp_path):
    code, out, err = run("theory", "collide", "--free", "6", "--out", str(tmp_path))
    assert (code, err) == (0, "")
    assert "attention distance" in out
    assert ET.fromstring((tmp_path / "collision.svg").read_text()).tag.endswith("svg")


def test_collide_takes_a_built_network_and_finds_nothing(run, tmp_path):
    run("build", "--retrievals", "2", "--length", "32", "--eps", "1e-2", "--no-check", "--out", str(tmp_path))
    code, out, _ = run("theory", "collide", "--net", str(tmp_path / "net.safetensors"), "--free", "6", "--json")
    row = json.loads(out)
    assert code == 0
    assert not row["collides"]
    assert len(row["first"]) == 32


def test_collide_stays_in_the_box_of_the_file(run, tmp_path):
    sizes = ("--retrievals", "2", "--length", "32", "--radius", "2", "--eps", "1e-2")
    run("build", "LinearMax", *sizes, "--no-check", "--out", str(tmp_path))
    code, out, _ = run("theory", "collide", "--net", str(tmp_path / "net.safetensors"), "--free", "4", "--json")
    row = json.loads(out)
    assert code == 0
    assert not row["collides"]
    assert max(abs(v) for token in row["first"] for v in token) <= 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("build", "--eps", "0"), "eps must be a finite number above 0, got 0.0"),
        (("build", "--eps", "1e-14"), "eps 1e-14"),
        (("build", "TriangleCentre"), "no construction is known for TriangleCentre; there are some for: Wells"),
        (("build", "KthLargest", "--retrievals", "3"), "unknown key 'retrievals' in task KthLargest"),
        (("build", "KthLargst"), "did you mean 'KthLargest'?"),
        (("build", "--length", "0"), "length must be at least 1"),
        (("build", "LinearMax", "--radius", "-1"), "radius must be"),
        (("build", "--onnx"), "--out DIR"),
        (("build", "LinearMax", "--windows"), "windows"),
        (("theory", "bound", "--heads", "0"), "heads must be at least 1, got 0"),
        (("theory", "collide", "--free", "80"), "positions free at length"),
        (("theory", "collide", "--retrievals", "1"), "at least 2 retrievals"),
        (("theory", "collide", "--net", "absent.safetensors"), "absent.safetensors: no such file"),
        (("theory", "bound", "--lenght", "3"), "--lenght"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(run, arguments, sentence):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert sentence in err


def test_the_example_builds_checks_breaks_and_says_why():
    made = subprocess.run([sys.executable, "-m", "examples.proof_as_program"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "holds: worst gap" in made.stdout
    assert "is BROKEN" in made.stdout
    why = [line for line in made.stdout.splitlines() if line.endswith("is why")]
    assert len(why) == 1
    assert "mass outside the window" in why[0]


@pytest.mark.parametrize(
    "kind", [kind for kind, made in CONSTRUCTIONS.items() if "radius" not in signature(made).parameters]
)
def test_a_radius_is_refused_where_the_construction_takes_none(kind, run):
    code, _, err = run("build", kind.__name__, "--eps", "3", "--radius", "3")
    assert code == 2 and err.count("\n") == 1 and "radius" in err
