"""Random specs, arguments, files and folders: exit 0, 2 or 130, at most three lines on stderr, no traceback."""

import json
from pathlib import Path

import pytest

from tests.faults.fuzzing import GRACE, IDLE, KINDS, MEMORY, in_parts

FOUND = Path(__file__).parents[2] / "docs" / "data" / "fault_fuzz.json"
ALLOWED = {"0", "2", "130"}


@pytest.mark.parametrize(("count", "processes"), [(300, 1), pytest.param(10_000, 2, marks=pytest.mark.soak)])
def test_nothing_that_is_typed_or_read_ends_in_a_traceback(count, processes, capsys):
    found = in_parts(count, processes)
    broken = [case for first in found["broken"] for case in alone(first)]
    assert broken == [], json.dumps(broken[:2])[-3000:]
    assert found["cases"] == count and set(found["counts"]) == set(KINDS)
    assert all(set(codes) <= ALLOWED and sum(codes.values()) > count // 8 for codes in found["counts"].values())
    assert found["peak_mb"] * 2**20 < 2 * MEMORY and found["slowest_s"] < 2 * (IDLE + GRACE)


def alone(case):
    """What breaks when the case has a process of its own, as a user's command has.

    In company a case may meet modules that an interruption of an earlier one left half loaded.
    """
    if not isinstance(case["number"], int):
        return [case]  # a whole part died
    return in_parts(1, 1, first=case["number"])["broken"]


def test_the_outcomes_on_record_are_of_ten_thousand_cases_and_no_traceback():
    found = json.loads(FOUND.read_text())
    assert found["cases"] >= 10_000 and found["broken"] == []
    assert sum(sum(codes.values()) for codes in found["counts"].values()) == found["cases"]
    assert {code for codes in found["counts"].values() for code in codes} <= ALLOWED
