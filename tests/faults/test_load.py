"""Cost that does not grow past its use: listing by counters, exporting by the row, pages of bounded size."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.load import large_store
from benchmarks.load import main as main_of_load
from headcount.cli import main
from headcount.fits.seed_noise import normal_seeds
from headcount.training import Sweep
from headcount.training.sweeps import banks
from tests.effort import lines_run, steps_of_databases


def called(*words):
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert end.value.code == 0


def effort(*words):
    with steps_of_databases() as steps:
        lines = lines_run(lambda: called(*words), most=20_000_000)
    return steps[0], lines


def test_listing_costs_the_same_whatever_the_rows_and_a_page_stays_small(tmp_path, capsys):
    large_store(tmp_path / "few", 400)
    large_store(tmp_path / "some", 2000)
    large_store(tmp_path / "many", 4000)
    called("runs", tmp_path / "few")  # what is loaded and kept at the first call
    some, many = (effort("runs", tmp_path / name) for name in ("some", "many"))
    assert many[0] < 1.1 * some[0], "instructions of SQLite"
    assert many[1] < 1.1 * some[1], "lines of Python"
    called("report", tmp_path / "many", "--out", tmp_path / "page")
    page = (tmp_path / "page" / "report.html").read_text()
    assert len(page) < 2_500_000 and "2000 of the 4000 rows, evenly spaced" in page
    assert page.count('class="seed') <= 2 * 4000
    called("report", tmp_path / "few", "--out", tmp_path / "whole")
    assert "evenly spaced" not in (tmp_path / "whole" / "report.html").read_text()


def test_an_export_holds_every_row_and_reads_back_as_the_study(tmp_path, capsys):
    store = large_store(tmp_path, 3000)
    called("export", tmp_path, "--out", tmp_path / "out")
    study = store.study()
    assert json.loads((tmp_path / "out" / "study.json").read_text())["rows"] == list(study.rows)
    assert (tmp_path / "out" / "rows.jsonl").read_text() == study.to_json_lines()
    assert (tmp_path / "out" / "rows.csv").read_text() == study.to_csv()


def test_the_constants_of_many_seeds_follow_the_square_root():
    few, many = normal_seeds(400), normal_seeds(1600)
    drawn = np.sort(np.random.default_rng(1).standard_normal((2000, 1600)), axis=-1)
    assert many.level == pytest.approx(drawn[:, :800].mean(-1).std(), rel=0.06)
    assert many.level == few.level / 2


def test_planning_members_is_work_that_grows_with_their_number():
    spec = '[task]\nname = "KthLargest"\nrank = 1\n[grid]\nlengths = [8, 16]\nheads = [1, 2, 3, 4]\n'

    def planned(seeds):
        asked = Sweep.from_toml(f"seeds = {seeds}\n{spec}")
        assert sum(map(len, banks(asked, "cpu"))) == len({m.run(asked.recipe) for m in asked.members}) == 8 * seeds

    def lines(seeds):
        return lines_run(lambda: planned(seeds), most=20_000_000)

    planned(1)
    assert lines(48) < 9 * lines(6)


@pytest.mark.soak
def test_a_hundred_thousand_members_are_planned_in_seconds():
    spec = '[task]\nname = "KthLargest"\nrank = 1\n[grid]\nlengths = [8, 16]\nheads = [1, 2, 3, 4]\n'
    done = subprocess.run(
        [sys.executable, "-c", _PLANNED, f"seeds = 12_500\n{spec}"], capture_output=True, text=True, check=True
    )
    members, seconds = done.stdout.split()
    assert int(members) == 100_000 and float(seconds) < 30


_PLANNED = """
import sys, time
from headcount.training import Sweep
from headcount.training.sweeps import banks
began = time.process_time()
asked = Sweep.from_toml(sys.argv[1])
groups = list(banks(asked, "cpu"))
assert sum(map(len, groups)) == len({m.run(asked.recipe) for m in asked.members})
print(len(asked.members), time.process_time() - began)
"""


# Seconds of processor, which is what the clock says where nobody else computes, and megabytes, at a million rows.
LIMITS = {"runs": (2, 100), "fit": (60, 1024), "export": (90, 100), "report": (60, 1024)}


@pytest.mark.soak
def test_a_million_rows(tmp_path):
    found = main_of_load(1_000_000, tmp_path)
    (tmp_path / "load.json").write_text(json.dumps(found, indent=1) + "\n")
    for command, (seconds, megabytes) in LIMITS.items():
        spent = found["commands"][command]
        assert spent["code"] == 0 and spent["processor_s"] < seconds and spent["peak_mb"] < megabytes, (command, spent)
    assert found["page_mb"] < 5
