"""Random specs, arguments, files and folders: exit 0, 2 or 130, at most three lines on stderr, no traceback."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.faults import fuzzing
from tests.faults.fuzz_blocks import in_blocks
from tests.faults.fuzzing import GRACE, IDLE, KINDS, MEMORY

FOUND = Path(__file__).parents[2] / "docs" / "data" / "fault_fuzz.json"
ALLOWED = {"0", "2", "130"}
FIRST = 1_000_000  # other cases than those that were looked at while the package was written


@pytest.mark.kernels
@pytest.mark.parametrize(("count", "processes"), [(300, 1), pytest.param(10_000, 2, marks=pytest.mark.soak)])
def test_nothing_that_is_typed_or_read_ends_in_a_traceback(count, processes, tmp_path):
    """A case that breaks is `broken` if it breaks alone, too; those that break in company alone may be 1 in 1,000."""
    found = in_blocks(count, FIRST, processes)
    (tmp_path / FOUND.name).write_text(json.dumps(found, indent=1) + "\n")
    assert found["broken"] == [], json.dumps(found["broken"][:2])[-3000:]
    company = found["broken_in_company"]
    assert len(company) <= count // 1000, json.dumps(company[:2])[-3000:]
    assert found["cases"] == count and set(found["counts"]) == set(KINDS)
    assert all(sum(codes.values()) > count // 8 for codes in found["counts"].values())
    assert all(set(codes) <= allowed_of(kind) for kind, codes in found["counts"].items())
    assert found["differing"] == [] and found["compared"] > count // 10
    assert found["peak_mb"] * 2**20 < 2 * MEMORY and found["slowest_s"] < 2 * (IDLE + GRACE)


def test_the_outcomes_on_record_are_of_ten_thousand_cases_and_no_traceback():
    found = json.loads(FOUND.read_text())
    assert found["cases"] >= 10_000 and found["broken"] == found["broken_in_company"] == []
    assert sum(sum(codes.values()) for codes in found["counts"].values()) == found["cases"]
    assert all(set(codes) <= allowed_of(kind) for kind, codes in found["counts"].items())


def test_the_sweeps_on_record_that_said_they_succeeded_have_the_rows_of_fresh_ones():
    found = json.loads(FOUND.with_name("fault_fuzz_sweeps.json").read_text())
    assert found["compared"] >= 300 and found["differing"] == found["broken"] == found["broken_in_company"] == []
    assert all(set(codes) <= allowed_of(kind) for kind, codes in found["counts"].items())


def allowed_of(kind):
    """Sweeps are killed, too."""
    return ALLOWED | {"-9"} if kind == "sweeps" else ALLOWED


# What the fuzz would see ---------------------------------------------------------------------------------------------


def aborted():
    os.kill(os.getpid(), signal.SIGABRT)


def stuck():
    signal.pause()


def talks():
    os.write(2, b"one\ntwo\nthree\nfour\n")
    os._exit(2)


@pytest.mark.parametrize(("work", "code"), [(aborted, -signal.SIGABRT), (stuck, "stuck"), (talks, 2)])
def test_a_process_that_dies_or_hangs_or_talks_is_not_allowed(tmp_path, monkeypatch, work, code):
    if work is stuck:
        monkeypatch.setattr(fuzzing, "IDLE", 0.1)
        monkeypatch.setattr(fuzzing, "GRACE", 0.1)
    ending = fuzzing.forked(work, tmp_path)
    assert ending.code == code and not ending.allowed


def test_a_case_is_broken_only_if_it_breaks_alone_and_the_others_are_told(tmp_path, monkeypatch):
    def refused():
        os._exit(2)

    again = {0: refused, 1: aborted}
    forked = fuzzing.forked
    monkeypatch.setattr(fuzzing, "case_of", lambda number, pool, where: fuzzing.Case("files", (str(number),)))
    monkeypatch.setattr(fuzzing, "typed_words", lambda words, strike: aborted())
    monkeypatch.setattr(fuzzing, "_alone", lambda words, folder: forked(again[int(words[0])], folder))
    monkeypatch.setattr(fuzzing, "threads", lambda: 1)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = fuzzing.fuzzed(range(2), {}, tmp_path)
    assert [case["number"] for case in found.broken_in_company] == [0]
    assert [(case["number"], case["alone"]["code"]) for case in found.broken] == [(1, -signal.SIGABRT)]
    assert found.counts["files"] == {"2": 1, "-6": 1}
