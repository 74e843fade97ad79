"""Figures and tables that survive outside a browser."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from headcount.cli.door import main
from headcount.drawing.axes import shade
from headcount.drawing.palette import CATEGORIES, DARK, DARK_RAMP, LIGHT, LIGHT_RAMP, contrast, ramp
from headcount.report import figure
from headcount.results import read_study

STUDY = Path("docs/data/head_count.json")


def printed(width="3.25in"):
    return figure(read_study(STUDY)).printed(width)


def test_a_printed_figure_has_plain_colours_and_fonts():
    text = printed()
    assert "var(" not in text and "@media" not in text and "system-ui" not in text
    root = ET.fromstring(text)
    assert root.get("width") == "3.25in" and root.get("height", "").endswith("in")
    used = {c for node in root.iter() for c in node.get("class", "").split()}
    styled = set(re.findall(r"\.([a-z]+[0-9]*)", next(n.text or "" for n in root.iter() if n.tag.endswith("style"))))
    assert used - styled <= {"lead"} | styled, used - styled


def test_lines_have_a_contrast_of_three_at_least():
    shades = {shade(i, count) for count in range(1, 12) for i in range(count)}
    for anchors, inks, categories in ((LIGHT_RAMP, LIGHT, CATEGORIES[0]), (DARK_RAMP, DARK, CATEGORIES[1])):
        colours = [ramp(anchors)[i] for i in shades]
        assert min(contrast(c, inks["ground"]) for c in (*colours, *categories, inks["accent"])) >= 3


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_a_figure_is_written_in_every_format(kind, tmp_path, capsys):
    if kind != "svg":
        pytest.importorskip("cairosvg", reason="needs the extra figures", exc_type=(ImportError, OSError))  # pyright: ignore
    with pytest.raises(SystemExit) as stop:
        main(["figure", str(STUDY), "--format", kind, "--out", str(tmp_path), "--width", "84mm"])
    assert stop.value.code == 0
    begins = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}[kind]
    assert (tmp_path / f"figure.{kind}").read_bytes().startswith(begins)
    assert capsys.readouterr().out.splitlines()[-1].startswith("So:")


@pytest.mark.skipif(shutil.which("rsvg-convert") is None, reason="rsvg-convert is not installed")
def test_another_reader_of_svg_draws_it(tmp_path):
    (tmp_path / "figure.svg").write_text(printed())
    subprocess.run(["rsvg-convert", "figure.svg", "-o", "figure.png"], cwd=tmp_path, check=True)
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_tables_hold_the_numbers_of_the_study(capsys):
    for kind, number in (("markdown", "1.9e-06 (4.9e-06)"), ("latex", r"$1.9 \cdot 10^{-6}$ ($4.9 \cdot 10^{-6}$)")):
        with pytest.raises(SystemExit):
            main(["figure", str(STUDY), "--table", kind])
        assert number in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["figure", str(STUDY), "--table", "latex", "--json"])
    assert json.loads(capsys.readouterr().out)["table"].startswith(r"\begin{tabular}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "gif"], "known: svg"),
        (["--width", "wide"], "3.25in"),
        (["--table", "late"], "did you mean 'latex'"),
    ],
)
def test_nonsense_gets_one_line(arguments, says, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["figure", str(STUDY), "--out", str(tmp_path), *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and says in said and said.count("\n") == 1
