"""The page: whole, self-contained, true to its rows, right in light and dark, and there for every odd study."""

import math
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.drawing.axes import shade
from headcount.drawing.palette import DARK, DARK_RAMP, LABELS, LIGHT, LIGHT_RAMP, contrast, luminance, ramp, stylesheet
from headcount.drawing.svg import dodged
from headcount.fits import Cells, knee, knees
from headcount.numerals import short
from headcount.papers.head_count.lookup_words import one_head_each
from headcount.report import against_length, curves, figure, heat_map, report, write
from headcount.report.rows import table
from headcount.results import Study
from tests import planted

VOID = {"meta", "br", "img", "input", "link", "hr"}


class Balanced(HTMLParser):
    """Reads a page and notes what stands open, what it shows, and every address in it."""

    def __init__(self):
        super().__init__()
        self.open, self.shown, self.addresses, self.rows = [], [], [], 0

    def handle_starttag(self, tag, attrs):
        self.rows += tag == "tr"
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.shown.append(data)


def read(page):
    reader = Balanced()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def diverged(study):
    lost = {"status": "diverged", "nmse": None, "final_nmse": math.inf, "train_nmse": math.nan}
    return Study(tuple({**row, **lost} for row in study), study.spec)


WHOLE = planted.published()
ONE_WIDE = [planted.row(h, 8, s, 10.0 ** -min(h, 2), width=w) for h in (1, 2, 3) for w in (16, 32) for s in range(4)]
ODD = {
    "as published": (WHOLE, "Four heads are enough"),
    "one length": (WHOLE.where(length=32), "Four heads are enough"),
    "one head count": (WHOLE.where(heads=4), "No knee to report yet"),
    "one row": (Study(WHOLE.rows[:1]), "No knee to report yet"),
    "all diverged": (diverged(WHOLE), "Nothing was learned at any head count"),
    "unfinished": (Study(WHOLE.rows[:70], {**WHOLE.spec, "asked": 150}), "At least two heads are needed"),
    "still falling": (WHOLE.where(lambda row: row["heads"] < 4), "At least three heads are needed"),
    "no prediction": (Study(WHOLE.rows), "Four heads are enough"),
    "two designs": (Study(tuple(ONE_WIDE), planted.spec(2)), "2 of 2 designs agree with the prediction"),
}


@pytest.mark.parametrize("name", ODD)
def test_every_study_has_its_page(name):
    study, headline = ODD[name]
    page = report(study)
    reader = read(page)
    assert f"<h1>{headline}</h1>" in page
    assert reader.addresses == []  # nothing is fetched
    assert "NaN" not in page.replace("isNaN", "") and 'nan"' not in page
    assert "prefers-color-scheme:dark" in page


def test_every_row_is_in_the_table_and_its_number_beside_it():
    page = report(WHOLE)
    body = page[page.index('<table class="rows">') :]
    body = body[: body.index("</table>")]
    assert body.count("<tr>") == 1 + len(WHOLE)
    for row in WHOLE:
        assert f'data-key="{row["nmse"]!r}">{short(row["nmse"], 2, padded=True)}<' in body


def test_the_unfinished_the_diverged_and_the_unpredicted_are_said():
    unfinished = " ".join(read(report(ODD["unfinished"][0])).shown)
    assert "70 of 150 networks are trained" in unfinished
    assert "150 networks diverged" in " ".join(read(report(diverged(WHOLE))).shown)
    assert "The prediction of" not in " ".join(read(report(Study(WHOLE.rows))).shown)


def test_names_cannot_break_out_of_the_page():
    study = Study(WHOLE.rows, {"toml": "</pre><script>alert(1)</script>"}, {"device": "<b>"}, "<script>x</script>")
    page = report(study)
    assert page.count("<script>") == 1  # the one that sorts
    read(page)


def test_the_spec_the_environment_and_the_way_back_are_on_the_page():
    shown = "".join(read(report(WHOLE, because=one_head_each(4))).shown)
    assert planted.TOML.replace("RETRIEVALS", "4") in shown
    assert all(str(value) in shown for value in planted.ENVIRONMENT.values())
    assert "headcount sweep head-count-table-2.toml" in shown
    assert "Theorem 2 of Yu et al. 2025 (heads)" in shown
    assert "Theorem 2" not in "".join(read(report(WHOLE)).shown)  # a tool cites no paper
    other = report(WHOLE, predicted=3, because=one_head_each(4))
    assert "Theorem 2" not in "".join(read(other).shown)  # where another number is predicted, that is not why


def test_the_same_study_gives_the_same_files():
    assert write(WHOLE) == write(WHOLE)
    assert list(write(WHOLE)) == ["report.html", "curves.svg"]
    assert list(write(ODD["two designs"][0])) == ["report.html", "curves.svg", "curves-2.svg"]


def figures(study, width):
    cells = Cells.of(study, "heads")
    yield heat_map(cells, 4, width=width)
    yield curves(cells, knee(study), knees(study), width=width)
    if len(cells.groups) > 1:
        yield against_length(cells, width=width)


@pytest.mark.parametrize("width", [372, 760])
@pytest.mark.parametrize("name", ["as published", "one length", "still falling", "all diverged"])
def test_a_figure_is_well_formed_and_stays_inside_its_frame(name, width):
    for drawn in figures(ODD[name][0], width):
        root = ET.fromstring(drawn.standalone())
        spots = [(e.get("cx"), e.get("cy")) for e in root.iter() if e.tag.endswith("circle")]
        spots += [(e.get("x"), e.get("y")) for e in root.iter() if e.tag.endswith(("text", "rect"))]
        spots += [p.split(" ") for e in root.iter() if e.tag.endswith("path") for p in e.get("d")[1:].split("L")]
        assert all(0 <= float(x) <= drawn.width and 0 <= float(y) <= drawn.height for x, y in spots)


def test_the_map_shows_the_levels():
    cells = Cells.of(WHOLE, "heads")
    shown = re.findall(r"<text[^>]*class=\"t\d+\"[^>]*>([^<]+)<", heat_map(cells, 4).body)
    assert shown == [short(10**level, 2, padded=True) for level in cells.levels().ravel()]


def test_an_empty_cell_is_drawn_as_empty():
    drawn = heat_map(Cells.of(ODD["unfinished"][0], "heads"))
    assert drawn.body.count("–") == 3  # three heads are trained at two of five lengths


def test_curves_fall_where_the_numbers_fall():
    cells = Cells.of(WHOLE.where(length=32), "heads")
    line = re.search(r'd="M([^"]+)" class="line', curves(cells, None, {}).body)
    heights = [float(p.split(" ")[1]) for p in line.group(1).split("L")]
    assert np.corrcoef(heights, cells.levels()[0])[0, 1] == pytest.approx(-1.0, abs=1e-6)


def test_the_standalone_figure_carries_both_grounds():
    svg = figure(WHOLE).standalone()
    assert stylesheet() in svg
    assert "prefers-color-scheme:dark" in svg


@pytest.mark.parametrize(("anchors", "inks"), [(LIGHT_RAMP, LIGHT), (DARK_RAMP, DARK)])
def test_colours_are_ordered_by_lightness_and_their_labels_readable(anchors, inks):
    shades = ramp(anchors)
    lightness = [luminance(colour) for colour in shades]
    assert lightness == sorted(lightness, reverse=anchors is LIGHT_RAMP)
    for colour in shades:
        assert max(contrast(label, colour) for label in LABELS) >= 4.5
    assert contrast(inks["soft"], inks["ground"]) >= 4.5
    assert contrast(inks["accent"], inks["ground"]) >= 3.0
    assert all(contrast(shades[shade(i, 5)], inks["ground"]) >= 1.9 for i in range(5))


@given(st.lists(st.floats(0, 300), min_size=1, max_size=12))
def test_labels_keep_their_order_their_distance_and_their_panel(wanted):
    places = dodged(wanted, 15.0, 0.0, 300.0)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    gaps = np.diff([places[i] for i in order])
    assert (gaps >= 15.0 - 1e-9).all()
    assert min(places) >= -1e-9
    assert max(places) <= 300.0 + 1e-9


def test_the_templates_travel_with_the_package():
    folder = resources.files("headcount.report") / "templates"
    assert {entry.name for entry in folder.iterdir()} >= {"page.html", "page.css", "page.js"}


def test_no_rows_is_a_mistake_in_one_sentence():
    with pytest.raises(ValueError, match="no rows yet, so there is nothing to fit or show"):
        report(Study(()))


def test_a_column_called_nmse_holds_nmse():
    rows = tuple({"heads": h, "length": 8, "seed": s, "nmse": 0.1 * h} for h in (1, 2) for s in (0, 1))
    names = [name for name, _ in table(Study(rows, {"level": "relative cross-entropy"})).columns]
    assert "relative_cross_entropy" in names and "nmse" not in names
    assert Study(rows, {"level": "relative cross-entropy"}).to_csv().startswith("heads,length,seed,relative_cross_ent")
    assert "nmse" in [name for name, _ in table(Study(rows)).columns]


def test_a_page_calls_the_level_by_its_name():
    """Rows of strings hold a cross-entropy, of which no share of a variance can be said."""
    study = Study(tuple(planted.row(h, t, s, 0.9) for h in (1, 2, 3) for t in (8, 16) for s in range(3)))
    named = Study(study.rows, {"level": "cross-entropy"})
    said, usual = write(named)["report.html"], write(study)["report.html"]
    assert "Validation cross-entropy" in said and "variance" not in said and "best NMSE" not in said
    assert "Validation NMSE" in usual and "explains half of the variance" in usual and "cross-entropy" not in usual
