"""The half hour on a GPU can be rehearsed without one: every stage runs at a tiny size, and what is done stays done."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="kernels need Triton")

from benchmarks.gpu_round3 import Whole
from benchmarks.round3_cells import STAGES, Round3, cells_of, published


def asked(out, **more) -> argparse.Namespace:
    options = {"limit": 600.0, "dry": True, "peers_again": True, "stages": ",".join(STAGES), "out": out}
    return argparse.Namespace(**options | more)


def test_every_stage_has_cells_and_the_races_are_those_of_the_table():
    for dry in (True, False):
        assert all(cells_of(Round3(stage, dry, False)) for stage in STAGES)
    race = cells_of(Round3("race", False, False))
    assert {int(cell.split(":")[0]) for cell in race} == set(range(8))
    assert not any("JAX" in cell for cell in race)
    assert sum("JAX" in cell for cell in cells_of(Round3("race", False, True))) == 8
    assert all(entry.arch.depth > 1 for entry in published(dry=False)) and len(published(dry=False)) > 8


def test_what_is_done_is_written_at_once_and_not_done_again(tmp_path, monkeypatch):
    made: list[str] = []

    def child(self, stage, cell, *more, limit):
        made.append(stage)
        return {"error": "spoilt"} if stage == "growth" else {"seen": 1}

    monkeypatch.setattr(Whole, "child", child)
    Whole(asked(tmp_path)).run()
    assert set(made) == set(STAGES)
    known = json.loads((tmp_path / "round3.json").read_text())
    assert known["recheck"] and known["growth"]["64"] == {"error": "spoilt"}
    made.clear()
    Whole(asked(tmp_path)).run()
    assert set(made) == {"growth"}  # what failed is tried again
    made.clear()
    Whole(asked(tmp_path / "..", limit=5.0)).run()
    assert not made  # no time, no cells


@pytest.mark.slow
def test_the_whole_half_hour_runs_dry(tmp_path):
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu_round3", "--dry", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    known = json.loads((tmp_path / "round3.json").read_text())
    for stage in STAGES:
        assert known[stage]
        assert not any("error" in row for row in known[stage].values()), (stage, known[stage])
    assert known["decoders"]["0"]["ours kernels"] > 0
