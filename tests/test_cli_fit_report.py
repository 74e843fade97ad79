"""`headcount fit` and `headcount report`: readable in 80 columns, readable by programs, one line for a mistake."""

import json

import pytest

from headcount.cli import main
from headcount.results import Store, Study
from tests import planted


def stored(folder, study):
    """The study as a sweep would have kept it."""
    store = Store.open(folder, create=True)
    spec = {key: value for key, value in study.spec.items() if key != "asked"}
    store.state(study.name, spec, [row["run"] for row in study])
    store.add([(row["run"], {}, row) for row in study], study.environment)
    return str(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("run"), planted.published())


def call(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    told = capsys.readouterr()
    return end.value.code, told.out, told.err


def test_fit_says_how_many_heads_and_fits_the_screen(run, capsys):
    code, out, err = call(capsys, "fit", run)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["length", "heads", "interval", "best", "NMSE", "seeds", "diverged", "verdict"]
    assert lines[1].split()[:4] == ["8", "4", "[4,", "4]"]
    assert lines[6].split()[0] == "all"
    assert max(map(len, lines[:7])) <= 80
    assert "4 heads are enough (95% interval [4, 4]); predicted 4: consistent" in out


def test_fit_as_json_holds_the_same(run, capsys):
    code, out, _ = call(capsys, "fit", run, "--json", "--predicted", "3")
    (found,) = json.loads(out)
    assert code == 0
    assert (found["heads"], found["low"], found["high"], found["verdict"]) == (4, 4, 4, "refuted")
    assert [row["lengths"] for row in found["by_length"]] == [[T] for T in planted.LENGTHS]


def test_fit_a_law_for_every_head_count(run, capsys):
    code, out, _ = call(capsys, "fit", run, "--law", "length")
    assert code == 0
    assert out.splitlines()[0].split() == ["design", "exponent", "interval", "floor", "gap"]
    assert [line.split()[:2] for line in out.splitlines()[1:6]] == [["heads", str(h)] for h in range(1, 6)]
    code, out, _ = call(capsys, "fit", run, "--law", "length", "--json")
    assert len(json.loads(out)) == 5


def test_report_writes_a_page_and_a_figure(run, capsys, tmp_path):
    code, out, err = call(capsys, "report", run, "--out", str(tmp_path / "page"))
    assert (code, err) == (0, "")
    assert sorted(p.name for p in (tmp_path / "page").iterdir()) == ["curves.svg", "report.html"]
    assert "<h1>Four heads are enough</h1>" in (tmp_path / "page" / "report.html").read_text()
    assert "report.html" in out
    code, out, _ = call(capsys, "report", run, "--out", str(tmp_path / "page"), "--json")
    assert [path.rsplit("/")[-1] for path in json.loads(out)["files"]] == ["report.html", "curves.svg"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fit", "nowhere"], "no study at nowhere"),
        (["report", "nowhere"], "no study at nowhere"),
        (["fit", "RUN", "--law", "widht"], "did you mean 'width'?"),
        (["fit", "RUN", "--law", "width"], "a law in width needs 3 different values of it, got only 32"),
        (["fit", "RUN", "--confidence", "95"], "confidence must lie between 0 and 1, got 95"),
        (["fit", "RUN", "--law", "length", "--confidence", "0"], "confidence must lie between 0 and 1, got 0"),
        (["fit", "RUN", "--predicted", "2.5"], "must be whole, got 2.5"),
        (["fit", "RUN", "--predicted", "0"], "predicted heads must be at least 1, got 0"),
        (["report", "RUN", "--predicted", "-1"], "predicted heads must be at least 1, got -1"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, message, run, capsys):
    code, out, err = call(capsys, *[run if word == "RUN" else word for word in words])
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_unfinished_study_says_so(tmp_path, capsys):
    study = planted.published()
    folder = stored(tmp_path, Study(study.rows[:90], study.spec, study.environment, study.name))
    Store.open(folder).state(study.name, {}, [row["run"] for row in study])
    _, out, _ = call(capsys, "fit", folder)
    assert "60 of the networks of the spec are not trained yet" in out


def test_a_study_without_rows_is_told_in_one_line(tmp_path, capsys):
    folder = stored(tmp_path, Study((), planted.spec(2)))
    for command in ("fit", "report"):
        code, _, err = call(capsys, command, folder)
        assert code == 2
        assert "no rows yet" in err
        assert err.count("\n") == 1
