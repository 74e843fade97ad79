"""Cost that does not grow past its use: listing by counters, exporting by the row, pages of bounded size."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from headcount.cli import main
from headcount.fits.seed_noise import normal_seeds
from headcount.results import Store
from headcount.training import Sweep
from headcount.training.sweeps import banks
from tests import planted


def large(folder, count):
    """A store with `count` rows of eight head counts at five lengths."""
    rng = np.random.default_rng(0)
    store = Store.open(folder, create=True)
    store.state("large", planted.spec(4), [f"{i:08x}" for i in range(count)])
    for start in range(0, count, 20_000):
        places = range(start, min(count, start + 20_000))
        noise = rng.random(len(places))
        store.add([_row(i, float(u)) for i, u in zip(places, noise, strict=True)], {"torch": "2", "device": "cpu"})
    return store


def _row(i, noise):
    heads, length, seed = i % 8 + 1, (8, 16, 32, 64, 128)[i // 8 % 5], i // 40
    row = {"run": f"{i:08x}", "task": "LinearMax", "length": length, "heads": heads, "head_dim": 8, "width": 32}
    row |= {"layers": f"{heads}x8", "seed": seed, "data_seed": seed, "lr": 3e-3, "status": "done", "positions": 0}
    return row["run"], {}, {**row, "embed_dim": 8 * heads, "nmse": 10.0 ** -(min(heads, 4) + noise)}


def timed(*words):
    began = time.process_time()
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert end.value.code == 0
    return time.process_time() - began


def test_listing_costs_the_same_whatever_the_rows_and_a_page_stays_small(tmp_path, capsys):
    large(tmp_path / "few", 400)
    large(tmp_path / "many", 4000)
    few, many = (min(timed("runs", tmp_path / name) for _ in range(3)) for name in ("few", "many"))
    assert many < 3 * few + 0.1
    timed("report", tmp_path / "many", "--out", tmp_path / "page")
    page = (tmp_path / "page" / "report.html").read_text()
    assert len(page) < 2_500_000 and "2000 of the 4000 rows, evenly spaced" in page
    assert page.count('class="seed') <= 2 * 4000
    timed("report", tmp_path / "few", "--out", tmp_path / "whole")
    assert "evenly spaced" not in (tmp_path / "whole" / "report.html").read_text()


def test_an_export_holds_every_row_and_reads_back_as_the_study(tmp_path, capsys):
    store = large(tmp_path, 3000)
    timed("export", tmp_path, "--out", tmp_path / "out")
    study = store.study()
    assert json.loads((tmp_path / "out" / "study.json").read_text())["rows"] == list(study.rows)
    assert (tmp_path / "out" / "rows.jsonl").read_text() == study.to_json_lines()
    assert (tmp_path / "out" / "rows.csv").read_text() == study.to_csv()


def test_the_constants_of_many_seeds_follow_the_square_root():
    few, many = normal_seeds(400), normal_seeds(1600)
    drawn = np.sort(np.random.default_rng(1).standard_normal((2000, 1600)), axis=-1)
    assert many.level == pytest.approx(drawn[:, :800].mean(-1).std(), rel=0.06)
    assert many.level == few.level / 2


def test_many_members_are_planned_in_time_that_grows_with_their_number():
    spec = '[task]\nname = "KthLargest"\nrank = 1\n[grid]\nlengths = [8, 16]\nheads = [1, 2, 3, 4]\n'

    def seconds(seeds):
        began = time.process_time()
        asked = Sweep.from_toml(f"seeds = {seeds}\n{spec}")
        assert sum(map(len, banks(asked, "cpu"))) == len({m.run(asked.recipe) for m in asked.members}) == 8 * seeds
        return time.process_time() - began

    seconds(10)
    assert seconds(400) < 40 * seconds(50)


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


@pytest.mark.soak
def test_a_million_rows(tmp_path):
    large(tmp_path / "s", 1_000_000)
    for command, (seconds, megabytes) in LIMITS.items():
        folder = tmp_path if command == "runs" else tmp_path / "s"
        spent, peak = measured_command(command, folder)
        assert spent < seconds and peak < megabytes, (command, spent, peak)
    assert (tmp_path / "s" / "report.html").stat().st_size < 5_000_000


# Seconds of processor, which is what the clock says where nobody else computes, and megabytes, at a million rows.
LIMITS = {"runs": (2, 300), "fit": (60, 4000), "export": (600, 500), "report": (300, 4000)}


def measured_command(command, folder):
    """Seconds of processor and megabytes that a command takes as a process of its own."""
    done = subprocess.run([sys.executable, "-c", _MEASURED, command, str(folder)], capture_output=True, text=True)
    spent, peak = map(float, done.stderr.split()[-2:])
    return spent, peak


_MEASURED = """
import resource, sys, time
from headcount.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    print(time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)
"""
