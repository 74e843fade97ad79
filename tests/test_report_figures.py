"""Figures and tables that survive outside a browser."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from headcount.cli.door import main
from headcount.drawing.axes import shade
from headcount.drawing.palette import CATEGORIES, DARK, DARK_RAMP, LIGHT, LIGHT_RAMP, contrast, ramp
from headcount.report import paper_figure
from headcount.results import read_study

STUDY = Path("docs/data/head_count.json")


def printed(width="3.25in"):
    return paper_figure(read_study(STUDY), width)


def test_a_printed_figure_has_plain_colours_and_fonts():
    text = printed()
    assert "var(" not in text and "@media" not in text and "system-ui" not in text
    root = ET.fromstring(text)
    assert root.get("width") == "3.25in" and root.get("height", "").endswith("in")
    used = {c for node in root.iter() for c in node.get("class", "").split()}
    styled = set(re.findall(r"\.([a-z]+[0-9]*)", next(n.text or "" for n in root.iter() if n.tag.endswith("style"))))
    assert used - styled <= {"lead"} | styled, used - styled
    assert root.get("font-family", "").startswith("Helvetica,Arial"), "readers that know no classes of the root need it"


@pytest.mark.parametrize(("width", "wide"), [("3.25in", 3.25), ("84mm", 84 / 25.4), ("6.5in", 6.5)])
def test_letters_keep_their_size_on_narrow_paper(width, wide):
    root = ET.fromstring(printed(width))
    pixels = float(root.get("viewBox", "").split()[2])
    assert 11 * 72 * wide / pixels >= 6.5, "points of the smallest letters, which are 11 pixels high"


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
        main(["report", str(STUDY), "--figure", kind, "--out", str(tmp_path), "--width", "84mm"])
    assert stop.value.code == 0
    begins = {"svg": b"<svg", "pdf": b"%PDF", "png": b"\x89PNG"}[kind]
    assert (tmp_path / f"figure.{kind}").read_bytes().startswith(begins)
    assert capsys.readouterr().out.splitlines()[-1].startswith("So:")


def by_rsvg(svg, png):
    if shutil.which("rsvg-convert") is None:
        pytest.skip("rsvg-convert is not installed")
    subprocess.run(["rsvg-convert", str(svg), "-z", "3", "-o", str(png)], check=True)


def by_cairo(svg, png):
    cairosvg = pytest.importorskip("cairosvg", reason="needs the extra figures", exc_type=(ImportError, OSError))
    cairosvg.svg2png(url=str(svg), write_to=str(png), scale=3)


@pytest.mark.parametrize("draw", [by_rsvg, by_cairo])
def test_other_readers_of_svg_draw_it_in_its_colours(draw, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    (tmp_path / "figure.svg").write_text(printed())
    draw(tmp_path / "figure.svg", tmp_path / "figure.png")
    pixels = np.asarray(image.open(tmp_path / "figure.png").convert("RGB")).reshape(-1, 3).astype(int)
    lines = [ramp(LIGHT_RAMP)[shade(i, 5)] for i in range(5)]  # one length each
    for colour in (LIGHT["ground"], LIGHT["accent"], LIGHT["ink"], *lines):
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert np.abs(pixels - wanted).max(axis=1).min() <= 2, colour
    ink = (np.abs(pixels - [0x1B, 0x24, 0x30]).max(axis=1) < 40).mean()
    assert 0.001 < ink < 0.1, "words and the predicted line are drawn, and no black shape covers the figure"


def test_tables_hold_the_numbers_of_the_study(capsys):
    for kind, number in (("markdown", "1.9e-06 (4.9e-06)"), ("latex", r"$1.9 \cdot 10^{-6}$ ($4.9 \cdot 10^{-6}$)")):
        with pytest.raises(SystemExit):
            main(["report", str(STUDY), "--table", kind])
        assert number in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["report", str(STUDY), "--table", "latex", "--json"])
    assert json.loads(capsys.readouterr().out)["table"].startswith(r"\begin{tabular}")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--figure", "gif"], "known: svg"),
        (["--figure", "svg", "--width", "wide"], "3.25in"),
        (["--table", "late"], "did you mean 'latex'"),
    ],
)
def test_nonsense_gets_one_line(arguments, says, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["report", str(STUDY), "--out", str(tmp_path), *arguments])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and says in said and said.count("\n") == 1
