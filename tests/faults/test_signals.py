"""Signals at any moment: one line, 130, nothing lost, and the rows of a sweep left alone when the words come again."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.faults.signalling import KINDS
from tests.faults.sweep_specs import LIMIT, start, with_, without_progress

FOUND = Path(__file__).parents[2] / "docs" / "data" / "signals.json"


@pytest.mark.parametrize(
    ("moments", "first"),
    [pytest.param(10, 0, marks=pytest.mark.kernels), pytest.param(200, 1000, marks=pytest.mark.soak)],
)
def test_a_command_that_is_asked_to_end_at_any_moment_ends_in_one_line_and_goes_on(moments, first):
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.signalling", str(moments), str(first)],
        capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=4 * LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["moments"] == moments
    _right(found)


def test_the_moments_on_record_are_two_hundred_of_every_kind():
    found = json.loads(FOUND.read_text())
    assert found["moments"] >= 200 and found["pairs"] > 40
    _right(found)


def _right(found):
    assert found["wrong"] == [], json.dumps(found["wrong"][:3], indent=1)
    assert sum(sum(codes.values()) for codes in found["codes"].values()) == found["moments"]
    for kind in KINDS:
        codes = found["codes"][kind]
        assert codes.get("130", 0) >= sum(codes.values()) // 2, "most must be met while they run"


@pytest.mark.parametrize("at", [0.5, *(pytest.param(n / 4, marks=pytest.mark.soak) for n in range(20))])
def test_a_sweep_of_several_processes_that_is_asked_to_end_leaves_none_behind(tmp_path, at):
    """Workers train for nobody once their sweep has ended."""
    (tmp_path / "spec.toml").write_text(with_(("epochs = 2", "epochs = 100000")))
    words = ("sweep", tmp_path / "spec.toml", "--store", tmp_path / "s", "--workers", 2)
    sweep = start(*words, HEADCOUNT_COMPILED="0")
    time.sleep(0.3 + at)
    children = _children(sweep.pid)
    sweep.send_signal(signal.SIGTERM)
    _, err = sweep.communicate(timeout=LIMIT)
    err = without_progress(err)
    assert sweep.returncode == 130 and err.startswith("headcount: interrupted.") and err.count("\n") == 1, err
    until = time.monotonic() + 60
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in children):
        time.sleep(0.1)
    assert not [pid for pid in children if Path(f"/proc/{pid}").exists()]


def _children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
    return [int(one) for one in found]
