"""Every benchmark and study says what it takes: a command line that cannot be parsed is found here, not on a device."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOORS = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for folder in ("benchmarks", "studies")
    for file in (ROOT / folder).rglob("*.py")
    if "ArgumentParser(" in (words := file.read_text()) and "def main" in words
)


def test_there_are_doors_of_both_kinds():
    assert sum(door.startswith("studies.") for door in DOORS) > 20 < len(DOORS) - 5


@pytest.mark.parametrize("name", DOORS)
def test_a_benchmark_says_what_it_takes(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(name).main()
    assert stopped.value.code == 0
    assert "usage:" in capsys.readouterr().out
