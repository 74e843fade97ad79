"""The page of laws: every room of laws stands on it, verdicts follow from the numbers, and missing data say so."""

import json
import shutil
from pathlib import Path

import pytest

from headcount.fits import Estimate
from studies.laws.page import _within, laws, page

DATA = Path(__file__).parent.parent / "docs/data"
ROOMS = ("Head count", "Text error law", "Allocation", "Learning rate", "In-context learning", "Consistency")


@pytest.fixture(scope="module")
def rows():
    return laws(DATA)


def test_every_law_of_the_house_stands_on_the_page_with_its_command(rows):
    assert tuple(dict.fromkeys(row.room for row in rows)) == ROOMS
    assert all(row.command and row.claimed and row.verdict for row in rows)


def test_errors_at_new_points_are_not_compared_with_a_theorem_on_those_given(rows):
    found = {row.law: row for row in rows if row.room == "Consistency"}
    assert len(found) == 8 and {row.verdict for row in found.values()} == {"not comparable"}
    assert [law for law, row in found.items() if row.reason.startswith("below")] == ["d = 1, noise 1, beta = t^0.667"]


def test_nothing_is_refuted_by_runs_that_failed_or_by_a_fit_at_the_end_of_its_box(rows):
    for row in rows:
        seen = row.claim.evidence
        if row.verdict in ("refuted", "does not hold here"):
            assert not seen.at_edge and seen.settled and not seen.diverged and row.reason
        if seen.interval and max(map(abs, seen.interval)) > 10:
            assert row.verdict == "unresolved"


def test_the_curve_of_the_best_answer_there_is_speaks_of_no_architecture(rows):
    by = {row.law: row for row in rows if row.room == "In-context learning"}
    for attention in ("linear", "softmax"):
        row = by[f"level 0 in context, {attention} attention"]
        assert row.verdict == "not comparable" and "best answer there is" in row.reason


def test_the_contrast_of_depth_is_what_the_table_shows(rows):
    from headcount.papers.icl.measured_exponents import contrast_words, shape_contrast

    table = shape_contrast(json.loads((DATA / "icl.json").read_text())["rows"])
    assert "the contrast is not shown" in contrast_words(table) and "18 of 36 cells" in contrast_words(table)
    turned = [row | ({"gain": 1.0} if row["covariance"] == "isotropic" else {}) for row in table]
    assert "the contrast is shown" in contrast_words(turned)


def test_a_statement_of_a_limit_names_the_sizes_at_which_it_does_not_hold(rows):
    found = {row.law: row for row in rows}
    row = found["rate against width, factors by width, LinearMax"]
    assert row.verdict == "does not hold here" and "at widths 32 to 256" in row.reason
    assert not [row for row in rows if row.verdict == "refuted"]


def test_a_rate_stays_where_its_whole_interval_does_and_moves_where_none_of_it_does():
    ends = {"within": (-0.05, 0.08), "across": (-0.2, 0.05), "beyond": (-0.5, -0.2)}
    found = {name: _within(Estimate(sum(e) / 2, *e), -0.1, 0.1) for name, e in ends.items()}
    outcomes = {name: read.outcome for name, read in found.items()}
    assert outcomes == {"within": "consistent", "across": "unresolved", "beyond": "refuted"}


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
    broken = {**law, "diverged": 1, "runs": 480}
    (copied / "lr_law.json").write_text(json.dumps({"wells": {"date": "2026-11-15", "laws": [broken]}}))
    after = [row for row in laws(copied) if row.room == "Learning rate"]
    assert [row.verdict for row in after] == ["consistent", "unresolved"] and "diverged" in after[1].reason
    assert "Laws of the house" in page(copied)
