"""From a function of one's own to a certified network, a sweep, a figure and a table: the example runs."""

import re
from pathlib import Path

import pytest

pytest.importorskip("cairosvg", reason="the figure as PDF needs the extra 'figures'", exc_type=ImportError)

import examples.own_function


def test_the_example_writes_a_figure_and_a_table_for_a_paper(tmp_path, capsys):
    examples.own_function.main(str(tmp_path), epochs=5)
    out = capsys.readouterr().out
    promise, gap = (float(re.search(pattern, out)[1]) for pattern in (r"error <= ([0-9.]+)", r"worst gap ([0-9.]+)"))
    assert promise / 10 < gap <= promise <= 0.2
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "table.tex").read_text().count("\\\\") == 5  # the head and four head counts
    assert out.strip().splitlines()[-1].startswith("So:")


def test_the_example_is_about_thirty_lines():
    text = Path(examples.own_function.__file__).read_text().partition("\ndef main")[2]
    assert len([line for line in text.splitlines() if line.strip()]) <= 32
