"""`headcount theory margin`: both answers, what it writes and reads again, and one line for every mistake."""

import json

import numpy as np
import pytest
import torch

from headcount.cli.door import main
from headcount.papers.attention_svm import Selection


@pytest.fixture
def run(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as leave:
            main(["theory", "margin", *map(str, arguments)])
        out, err = capsys.readouterr()
        return leave.value.code, out, err

    return call


def saved(path, n, length, d, seed=0, **change):
    data = Selection(n, length, d).sample(1, generator=torch.Generator().manual_seed(seed))
    held = {name: getattr(data, name)[0].numpy() for name in ("tokens", "queries", "labels", "read_out")}
    np.savez(path, **{k: v for k, v in (held | change).items() if v is not None})
    return path


def test_a_feasible_instance_is_solved_and_the_last_line_says_so(run, tmp_path):
    code, out, _ = run(saved(tmp_path / "a.npz", 4, 5, 6), "--norm", "nuclear")
    assert code == 0
    assert "duality gap" in out
    assert out.strip().splitlines()[-1].startswith("So:") or "So: a matrix of nuclear norm" in out
    assert max(map(len, out.splitlines())) <= 100


def test_what_it_writes_it_reads_with_the_same_answer(run, tmp_path):
    path = saved(tmp_path / "a.npz", 3, 4, 5)
    code, out, _ = run(path, "--out", tmp_path / "o", "--steps", 300, "--json")
    assert code == 0
    first = json.loads(out)
    assert [name.rsplit("/", 1)[-1] for name in first.pop("files")] == ["margin.html", "margin.npz"]
    page = (tmp_path / "o" / "margin.html").read_text()
    assert "Where training goes" in page
    assert "</svg>" in page
    code, out, _ = run(tmp_path / "o" / "margin.npz", "--json")
    assert json.loads(out) == first


def test_chosen_tokens_alone_give_a_page_without_a_path(run, tmp_path):
    path = saved(tmp_path / "a.npz", 3, 4, 5, labels=None, read_out=None, chosen=np.array([0, 1, 2]))
    assert run(path, "--out", tmp_path / "o")[0] == 0
    assert "Where training goes" not in (tmp_path / "o" / "margin.html").read_text()


def test_an_infeasible_instance_prints_the_combination(run, tmp_path):
    x = np.array([[[1.0], [-1.0]], [[-1.0], [1.0]]])
    np.savez(tmp_path / "no.npz", tokens=x, queries=np.ones((2, 1)), chosen=np.array([0, 0]))
    code, out, _ = run(tmp_path / "no.npz")
    assert code == 1  # an answer, and not the one that was asked for
    assert "So: no matrix of a norm below 4.9e+13 puts these tokens first by 1" in " ".join(out.split())
    code, out, _ = run(tmp_path / "no.npz", "--json")
    found = json.loads(out)
    assert found["feasible"] is False
    weights = {row["sequence"]: row["weight"] for row in found["combination"]}
    assert weights == pytest.approx({0: 0.5, 1: 0.5})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": None}, "no array 'tokens'"),
        ({"labels": None}, "labels and read_out come together"),
        ({"labels": None, "read_out": None}, "says no choice"),
        ({"labels": np.zeros(3)}, "-1 or 1"),
        ({"read_out": np.zeros(9)}, "5 coordinates"),
        ({"tokens": np.full((3, 4, 5), np.inf)}, "finite"),
        ({"tokens": np.array([["a"]])}, "must be numbers"),
        ({"chosen": np.array([0, 1, 7])}, "from 0 to 3"),
        ({"choosen": np.array([0, 1, 2])}, "did you mean 'chosen'"),
        ({"queries": np.ones((2, 5))}, "got"),
    ],
)
def test_every_mistake_is_one_line(run, tmp_path, change, says):
    code, out, err = run(saved(tmp_path / "a.npz", 3, 4, 5, **change))
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_files_that_are_none_and_unknown_norms_are_refused(run, tmp_path):
    (tmp_path / "no.npz").write_text("nothing")
    assert "not a readable .npz file" in run(tmp_path / "no.npz")[2]
    assert run(tmp_path / "absent.npz")[0] == 2
    assert "did you mean 'nuclear'" in run(saved(tmp_path / "a.npz", 3, 4, 5), "--norm", "nuclera")[2]


def test_tokens_that_are_all_the_same_are_no_matrix_and_no_division_by_zero(run, tmp_path):
    held = {"tokens": np.ones((2, 3, 2)), "queries": np.ones((2, 2)), "chosen": np.array([0, 1])}
    np.savez(tmp_path / "same.npz", **held)
    code, out, _ = run(tmp_path / "same.npz")
    assert code == 1 and "every other token is the same as the one chosen" in " ".join(out.split())
    code, out, _ = run(tmp_path / "same.npz", "--json")
    assert code == 1 and json.loads(out)["least norm"] is None
