"""The command: what it prints and writes is read back, and bad input is one line."""

import json

import numpy as np
import pytest

from headcount.cli.door import main


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return stop.value.code, capsys.readouterr()


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 4, 3))
    x[0, 2:] = np.nan
    np.savez(tmp_path / "sets.npz", x=x, y=rng.standard_normal((5, 2, 3)))
    np.savez(tmp_path / "labels.npz", x=x.copy(), y=np.array(list("abcab")))
    return tmp_path


@pytest.mark.parametrize("name", ["labels", "sets"])
def test_what_is_written_is_read_back(capsys, data, name):
    code, said = run(capsys, "theory", "interpolate", data / f"{name}.npz", "--out", data / name)
    assert code == 0 and said.out.splitlines()[-1].startswith("So: ")
    page = (data / name / "interpolation.html").read_text()
    assert "5 sequences, interpolated exactly" in page and "https://" not in page
    arguments = ("theory", "interpolate", data / f"{name}.npz", "--net", data / name / "net.safetensors", "--json")
    facts = json.loads(run(capsys, *arguments)[1].out)
    assert (
        facts["promised_for"] == 5
        and facts["holds"]
        and facts["gap"] < 1e-9
        and facts["layers"] <= facts["layers_at_most"]
    )


def test_a_network_of_other_data_is_said_to_fail(capsys, data):
    run(capsys, "theory", "interpolate", data / "labels.npz", "--out", data / "net")
    code, said = run(capsys, "theory", "interpolate", data / "sets.npz", "--net", data / "net" / "net.safetensors")
    assert code == 0 and "does not give these outputs" in said.out
    assert "promises 0 of these 5 sequences" in said.out
    other = (
        "theory",
        "interpolate",
        data / "sets.npz",
        "--net",
        data / "net" / "net.safetensors",
        "--out",
        data / "no",
    )
    assert run(capsys, *other)[0] == 0
    assert "5 sequences, not interpolated" in (data / "no" / "interpolation.html").read_text()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x": np.ones((2, 3, 2))}, "lacks 'y'"),
        ({"x": np.ones((2, 3)), "y": np.ones(2)}, "x must be numbers (count, length, token_dim)"),
        ({"x": np.ones((2, 3, 2)), "y": np.ones((2, 5))}, "y must be labels (2,)"),
        ({"x": np.ones((2, 3, 2)), "y": np.arange(2)}, "sequences 0 and 1 hold the same tokens"),
        ({"x": np.ones((2, 3, 2)), "y": np.arange(2), "length": np.ones(2)}, "did you mean 'lengths'?"),
        ({"x": np.ones((2, 3, 2)), "y": np.arange(2), "lengths": np.array([0, 9])}, "whole numbers from 1 to 3"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, arrays, says):
    np.savez(tmp_path / "bad.npz", **arrays)
    code, said = run(capsys, "theory", "interpolate", tmp_path / "bad.npz")
    assert code == 2 and says in said.err and said.err.count("\n") == 1 and not said.out


def test_files_that_are_not_there_or_not_ours_are_one_line(capsys, tmp_path, data):
    assert run(capsys, "theory", "interpolate", tmp_path / "none.npz")[1].err.count("\n") == 1
    (tmp_path / "text.npz").write_text("text")
    code, said = run(capsys, "theory", "interpolate", tmp_path / "text.npz")
    assert code == 2 and "not a readable .npz file" in said.err
    code, said = run(capsys, "theory", "interpolate", data / "labels.npz", "--onnx")
    assert code == 2 and "--out" in said.err
