"""The worked examples, from Python and from the command line; refusals by the field's name; no torch."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

import headcount as hc
from headcount.cli import main
from headcount.nets import Architecture
from headcount.papers.infoflow import draw, read_structure, structure_from_toml
from headcount.structure import Retrieval, Structure

T, D, d = 64, 4, 4
MAXIMA = Structure(T, d, (Retrieval("maxima", count=D),))
PAIRS = Structure(T, d, (Retrieval("pairs", count=D, order=2),))
SECOND = Structure(T, 1, (Retrieval("second", rank=2),))
TRIPLE = Structure(T, 2, (Retrieval("triple", order=3),))
LAST = Retrieval("last letter", positions=(T - 1,))
INDUCTION = Structure(T, 8, (LAST, Retrieval("its copy", after=("last letter",), offset=1)))

WORKED = [
    (MAXIMA, ((4, 8),), 0, "cheap", 1.0),
    (MAXIMA, ((3, 8),), 0, "costly", T * d / 24),
    (MAXIMA, ((1, 8),), 0, "costly", T * d / 8),
    (MAXIMA, ((2, 8), (2, 8)), 0, "cheap", 1.0),
    (MAXIMA, ((1, 8), (2, 8)), 0, "cheap", 1.0),
    (MAXIMA, ((1, 8), (1, 8)), 0, "costly", T * d / 8),
    (MAXIMA, ((1, 8), (1, 8)), 2, "cheap", 1.0),
    (MAXIMA, ((1, 4), (1, 4)), 2, "cheap", 5 / 4),
    (MAXIMA, ((1, 2), (1, 2)), 2, "costly", T * d / 2),
    (PAIRS, ((4, 8), (4, 8)), 0, "cheap", 1.0),
    (PAIRS, ((3, 8), (4, 8)), 0, "costly", T * d / 32),
    (PAIRS, ((4, 8), (3, 8)), 0, "costly", T * d / 32),
    (PAIRS, ((4, 8),), 0, "costly", T * d / 32),
    (SECOND, ((1, 8),), 0, "costly", T / 8),
    (SECOND, ((1, 8), (1, 8)), 0, "cheap", 1.0),
    (SECOND, ((1, 8), (1, 8)), 2, "cheap", 1.0),
    (SECOND, ((12, 2),), 2, "cheap", 1.0),
    (SECOND, ((11, 2),), 2, "costly", T / 22),
    (INDUCTION, ((1, 16), (1, 16)), 2, "cheap", 1.0),
    (INDUCTION, ((1, 16),), 2, "costly", T * 8 / 16),
    (TRIPLE, ((4, 6), (4, 6)), 0, "costly", T * 2 / 24),
    (TRIPLE, ((8, 12), (8, 12), (8, 12)), 2, "costly", T * 2 / 96),
]


@pytest.mark.parametrize(("structure", "layers", "positions", "verdict", "exponent"), WORKED)
def test_worked_examples_come_out_exactly(structure, layers, positions, verdict, exponent):
    prediction = hc.predict(structure, Architecture(layers, positions=positions))
    assert (prediction.verdict, prediction.exponent) == (verdict, pytest.approx(exponent))
    assert prediction.cheap == (verdict == "cheap")
    assert prediction.limiting and prediction.statements


def test_the_induction_plan_is_previous_token_then_match():
    prediction = hc.predict(INDUCTION, Architecture(((1, 16), (1, 16)), positions=2))
    steps = [(s.layer, s.mode, s.at) for s in prediction.plan]
    assert (1, "positions", "tokens") in steps and (2, "max", "cls") in steps
    assert [s.act for s in prediction.plan] == ["shift", "read", "collect"]
    assert any("previous token" in s.attends for s in prediction.plan)
    assert any("matches last letter" in s.attends for s in prediction.plan)


def test_information_sets_grow_as_the_plan_says():
    known = hc.predict(PAIRS, Architecture(((4, 8), (4, 8)))).known
    assert [(k.token, k.cls) for k in known] == [(1, 0), (5, 0), (5, 20)]
    known = hc.predict(MAXIMA, Architecture(((3, 8),))).known
    assert known[-1].cls == T


def test_a_costly_prediction_says_what_would_do():
    fixes = [str(fix) for fix in hc.predict(PAIRS, Architecture(((3, 8), (4, 8)))).fixes]
    assert "4 heads in layer 1 (now 3)" in fixes
    assert "positions" in {fix.what for fix in hc.predict(MAXIMA, Architecture(((1, 8), (1, 8)))).fixes}


def test_masking_without_positions_is_cautioned_and_with_positions_is_not():
    assert [c.name for c in hc.predict(SECOND, Architecture(((1, 8), (1, 8)))).cautions] == ["ties"]
    assert not hc.predict(SECOND, Architecture(((1, 8), (1, 8)), positions=2)).cautions


def test_order_and_window_without_positions_are_impossible():
    for retrieval in (
        Retrieval("half", window=T // 2),
        Retrieval("places", positions=(0,)),
        Retrieval("next", offset=1),
    ):
        prediction = hc.predict(Structure(T, d, (retrieval,)), Architecture(((4, 8), (4, 8))))
        assert not prediction.feasible and prediction.limit.kind == "order of tokens"
        assert prediction.warrant == "proved" and "position" in prediction.limiting


def test_a_task_without_structure_is_refused_by_the_fields_name():
    with pytest.raises(ValueError, match="'structure' is missing"):
        hc.predict(object(), Architecture(((1, 8),)))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("token_dim = 2\n[[retrievals]]\nname = 'a'", "length"),
        ("length = 8\ntoken_dim = 2", "retrievals"),
        ("length = 'x'\ntoken_dim = 2\n[[retrievals]]\nname = 'a'", "length"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\ncount = 2", "name"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\norder = 1\npositions = [1]", "order"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\nrank = 9", "rank"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\nrank = 2\npositions = [1]", "rank"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\npositions = 3", "positions"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\nafter = ['b']", "after"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\nwindow = 9", "window"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\noffset = 8", "offset"),
        ("length = 8\ntoken_dim = 2\n[[retrievals]]\nname = 'a'\nrnak = 2", "rnak"),
        ("length = 8\ntoken_dim = 2\nretrievals = 3", "retrievals"),
        ("length = ", "TOML"),
    ],
)
def test_a_wrong_description_is_refused_by_the_fields_name(text, field):
    with pytest.raises(ValueError, match=field):
        structure_from_toml(text)


def test_a_toml_file_describes_a_task(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("length = 64\ntoken_dim = 4\n[[retrievals]]\nname = 'pairs'\ncount = 4\norder = 2\n")
    assert read_structure(path) == PAIRS


def test_advice_ranks_cheap_shapes_and_explains_the_rest():
    advice = hc.advise(PAIRS, eps=1e-2, max_layers=2, max_heads=6)
    assert advice.best.architecture.layers == ((4, 4), (4, 4)) and advice.best.prediction.cheap
    assert [c.parameters for c in advice.ranked] == sorted(c.parameters for c in advice.ranked)
    assert {f.layers: f.heads for f in advice.frontier if not f.positions} == {1: None, 2: 4}
    assert all(c.reason for c in advice.ranked) and all(f.reason for f in advice.frontier)


def test_advice_uses_positions_where_they_save_heads():
    advice = hc.advise(MAXIMA, max_layers=2, max_heads=3)
    least = {(f.layers, f.positions): f.heads for f in advice.frontier}
    assert least == {(1, False): None, (1, True): None, (2, False): 2, (2, True): 1}


def test_advice_for_what_nothing_solves_still_says_why():
    advice = hc.advise(TRIPLE)
    assert not advice.best.prediction.cheap and "comparisons" in advice.best.reason


@pytest.mark.parametrize(("field", "value"), [("eps", 0.0), ("max_layers", 0), ("max_heads", 0)])
def test_nonsense_wishes_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        hc.advise(MAXIMA, **{field: value})


def test_drawings_are_deterministic_svg_with_every_layer():
    for structure, layers in ((PAIRS, ((4, 8), (4, 8))), (INDUCTION, ((1, 16), (1, 16))), (TRIPLE, ((2, 8),))):
        prediction = hc.predict(structure, Architecture(layers, positions=2))
        text = draw(prediction, "title & more")
        assert text == draw(prediction, "title & more")
        words = " ".join(e.text or "" for e in ET.fromstring(text).iter())
        assert all(f"layer {l + 1}" in words for l in range(len(layers))) and prediction.verdict in words


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err


@pytest.mark.parametrize(
    ("arguments", "verdict"),
    [
        (["LinearMax", "--with", "retrievals=4", "--with", "token_dim=4", "--layers", "4x8"], "cheap"),
        (["LinearMax", "--with", "retrievals=4", "--with", "token_dim=4", "--layers", "3x8"], "costly"),
        (["LinearMax", "--with", "retrievals=4", "--with", "token_dim=4", "--layers", "2x8+2x8"], "cheap"),
        (["LinearMax", "--with", "retrievals=4", "--with", "token_dim=4", "--layers", "1x8+1x8"], "costly"),
        (
            ["LinearMax", "--with", "retrievals=4", "--with", "token_dim=4", "--layers", "1x8+1x8", "--positions", "2"],
            "cheap",
        ),
        (["PairMax", "--with", "retrievals=3", "--with", "token_dim=4", "--layers", "3x8+3x8"], "cheap"),
        (["PairMax", "--with", "retrievals=3", "--with", "token_dim=4", "--layers", "2x8+3x8"], "cheap"),
        (["PairMax", "--with", "retrievals=3", "--with", "token_dim=4", "--layers", "1x8+3x8"], "costly"),
        (["PairMax", "--with", "retrievals=3", "--with", "token_dim=4", "--layers", "3x8+2x8"], "costly"),
        (["PairMax", "--with", "retrievals=3", "--with", "token_dim=4", "--layers", "3x8"], "costly"),
        (["KthLargest", "--with", "rank=2", "--layers", "1x8"], "costly"),
        (["KthLargest", "--with", "rank=2", "--layers", "1x8+1x8"], "cheap"),
        (["Induction", "--with", "vocab=8", "--layers", "1x8+1x8", "--positions", "2"], "cheap"),
        (["TriangleCentre", "--layers", "4x6+4x6"], "costly"),
    ],
)
def test_worked_examples_come_out_from_the_command_line(capsys, arguments, verdict):
    code, out, _ = run(capsys, "predict", *arguments, "--json")
    assert code == 0 and json.loads(out)["verdict"] == verdict


def test_both_commands_print_and_write(capsys, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("length = 64\ntoken_dim = 4\n[[retrievals]]\nname = 'pairs'\ncount = 2\norder = 2\n")
    code, out, _ = run(capsys, "predict", str(path), "--layers", "1x8+2x8", "--out", str(tmp_path / "p"))
    assert code == 0 and "COSTLY" in out and "2 heads in layer 1 (now 1)" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    code, out, _ = run(capsys, "advise", str(path), "--max-layers", "2", "--out", str(tmp_path / "a"))
    assert code == 0 and "2x4+2x4" in out
    assert (tmp_path / "p" / "flow.svg").is_file() and (tmp_path / "a" / "advice.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["LinearMax", "--with", "retrievals=2", "--with", "token_dim=2", "--layers", "0x8"], "heads"),
        (["LinearMax", "--with", "retrievals=2", "--with", "token_dim=2", "--layers", "two"], "layers"),
        (["LinearMax", "--with", "retrievals", "--layers", "1x8"], "name=value"),
        (["LinearMux", "--layers", "1x8"], "LinearMax"),
        (["nowhere.toml", "--layers", "1x8"], "nowhere.toml"),
    ],
)
def test_nonsense_is_one_line_and_exit_code_two(capsys, arguments, word):
    code, _, err = run(capsys, "predict", *arguments)
    assert code == 2 and word in err and err.count("\n") == 1 and "Traceback" not in err


def test_the_room_needs_no_torch():
    code = "import sys, headcount as hc; hc.predict; hc.advise; hc.Architecture; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
