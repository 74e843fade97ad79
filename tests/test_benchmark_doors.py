"""Every benchmark says what it takes: a command line that cannot be parsed is found here, not on a device."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
DOORS = sorted(
    file.stem
    for file in FOLDER.glob("*.py")
    if "ArgumentParser(" in (words := file.read_text()) and "def main" in words
)


@pytest.mark.parametrize("name", DOORS)
def test_a_benchmark_says_what_it_takes(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(f"benchmarks.{name}").main()
    assert stopped.value.code == 0
    assert "usage:" in capsys.readouterr().out
