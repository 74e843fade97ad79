"""`headcount theory prompt`: floors, what it writes and reads again, and one line for every mistake."""

import json

import numpy as np
import pytest

from headcount.cli.door import main


@pytest.fixture
def run(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as leave:
            main(["theory", "prompt", *map(str, arguments)])
        out, err = capsys.readouterr()
        return leave.value.code, out, err

    return call


def test_a_hard_pair_is_excluded_at_every_length(run):
    code, out, _ = run("--tokens", "1,2", "--starts", 2)
    assert code == 0
    assert "So: every prompt of any length leaves more than 1 of loss on these targets, in closed form" in out


def test_what_it_writes_it_reads_with_the_same_answer(run, tmp_path):
    code, out, _ = run("--tokens", "1,4", "--starts", 2, "--out", tmp_path, "--json")
    assert code == 0
    page = (tmp_path / "prompt.html").read_text()
    assert "The strip" in page
    assert "rank one" in page
    again = run(tmp_path / "prompt.npz", "--tokens", "1,4", "--starts", 2, "--json")[1]
    assert [row["floor"] for row in json.loads(again)] == [row["floor"] for row in json.loads(out)]


def test_targets_of_a_prompt_are_not_excluded(run, tmp_path):
    from headcount.papers.prompts import random_layer

    g = np.random.default_rng(0)
    layer, last = random_layer(4, g), g.standard_normal(4)
    contexts, prompt = g.standard_normal((2, 3, 4)), g.standard_normal((1, 4))
    targets = np.array([layer.attend(last, np.vstack([prompt, c, last])) for c in contexts])
    held = {"query": layer.query, "key": layer.key, "value": layer.value, "last": last, "contexts": contexts}
    np.savez(tmp_path / "a.npz", targets=targets, **held)
    assert "So: nothing excludes a prompt" in run(tmp_path / "a.npz", "--tokens", "1", "--starts", 1)[1]
    for change, says in (
        ({"targets": targets[:1]}, "targets"),
        ({"query": np.full((4, 4), np.nan)}, "finite"),
        ({"last": last[:3]}, "last"),
        ({"contexts": contexts[0]}, "3 axes"),
        ({"tagets": targets}, "did you mean 'targets'"),
    ):
        np.savez(tmp_path / "bad.npz", **({"targets": targets} | held | change))
        code, out, err = run(tmp_path / "bad.npz", "--tokens", "1", "--starts", 1)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err


def test_bad_options_are_one_line(run, tmp_path):
    (tmp_path / "no.npz").write_text("nothing")
    for given, says in (
        (("--tokens", "1,x"), "whole numbers"),
        (("--tokens", "0"), "from 1"),
        (("--starts", "0"), "at least 1"),
        (("--token-dim", "2"), "at least 3"),
        ((tmp_path / "no.npz",), "not a readable .npz file"),
    ):
        code, _, err = run(*given)
        assert code == 2
        assert says in err
        assert err.count("\n") == 1
