"""The page of laws: every room of laws stands on it, verdicts follow from the numbers, and missing data say so."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.laws_page import _within, laws, page
from headcount.fits import Estimate

DATA = Path(__file__).parent.parent / "docs/data"
ROOMS = ("Head count", "Text error law", "Allocation", "Learning rate", "In-context learning", "Consistency")


@pytest.fixture(scope="module")
def rows():
    return laws(DATA)


def test_every_law_of_the_house_stands_on_the_page_with_its_command(rows):
    assert tuple(dict.fromkeys(row.room for row in rows)) == ROOMS
    assert all(row.command and row.claimed and row.verdict for row in rows)


def test_a_decay_below_our_reading_of_the_rate_is_not_comparable_at_one_dimension_with_noise_alone(rows):
    found = {row.law: row.verdict for row in rows if row.room == "Consistency"}
    below = "d = 1, noise 1, beta = t^0.667, t from 256 to 262,144"
    assert [law for law, verdict in found.items() if verdict == "not comparable"] == [below]
    assert len(found) == 8 and "refuted" not in found.values()


def test_no_exponent_of_diverged_runs_or_at_the_end_of_the_search_is_refuted(rows):
    mine = [row for row in rows if row.room == "In-context learning"]
    ends = [[float(v) for v in row.interval.strip("[]").split(",")] for row in mine]
    assert not any(row.verdict == "refuted" and max(map(abs, end)) > 10 for row, end in zip(mine, ends, strict=True))
    by = {row.law: row for row in mine}
    assert by["level 0 in depth, linear attention"].verdict == "unresolved"
    assert by["level 0 in context, softmax attention"].verdict == "not judged"


def test_the_contrast_of_depth_is_what_the_table_shows(rows):
    from headcount.papers.icl.measured_exponents import contrast_words, shape_contrast

    table = shape_contrast(json.loads((DATA / "icl.json").read_text())["rows"])
    assert "the contrast is not shown" in contrast_words(table) and "18 of 36 cells" in contrast_words(table)
    turned = [row | ({"gain": 1.0} if row["covariance"] == "isotropic" else {}) for row in table]
    assert "the contrast is shown" in contrast_words(turned)


def test_a_rate_stays_where_its_whole_interval_does_and_moves_where_none_of_it_does():
    ends = {"within": (-0.05, 0.08), "across": (-0.2, 0.05), "beyond": (-0.5, -0.2)}
    found = {name: _within(Estimate(sum(e) / 2, *e), -0.1, 0.1) for name, e in ends.items()}
    assert found == {"within": "consistent", "across": "unresolved", "beyond": "refuted"}


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(DATA / "reproduction", tmp_path / "reproduction")
    shutil.copy(DATA / "head_count.json", tmp_path)
    (tmp_path / "reproduction/head-count_text.json").unlink()  # its fit takes seconds
    return tmp_path


def test_what_is_not_measured_is_said_and_what_is_written_is_shown(copied):
    before = [row for row in laws(copied) if row.verdict == "not measured"]
    assert {row.room for row in before} == {"Learning rate", "In-context learning"}
    law = {"road": "parabola", "biased": False, "parameters": -0.2, "parameters_low": -0.3, "parameters_high": -0.1}
    law |= {"steps": -0.1, "steps_low": -0.2, "steps_high": 0.0}
    law |= {"parameters_verdict": "consistent", "steps_verdict": "refuted"}
    (copied / "lr_law.json").write_text(json.dumps({"wells": {"date": "2026-11-15", "laws": [law]}}))
    after = [row for row in laws(copied) if row.room == "Learning rate"]
    assert [row.verdict for row in after] == ["consistent", "refuted"] and after[0].interval == "[-0.3, -0.1]"
    assert "Laws of the house" in page(copied)
