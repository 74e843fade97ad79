"""Cells of a long run kept as they finish, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.files import make_folder


class Journal:
    """A file of finished cells, one JSON line each, found again by everything that determined them.

    >>> import tempfile
    >>> kept = Journal(Path(tempfile.mkdtemp()) / "cells.jsonl")
    >>> kept.add({"heads": 4}, {"accuracy": [0.5]})
    >>> Journal(kept.path).find({"heads": 4})
    {'accuracy': [0.5]}
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells: dict[str, object] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    cell = json.loads(line)
                except ValueError:  # the line that an interruption cut short
                    continue
                self.cells[self._key(cell["of"])] = cell["found"]

    def find(self, of: Mapping[str, object]) -> Any:
        """What was found for this cell, or None."""
        return self.cells.get(self._key(of))

    def add(self, of: Mapping[str, object], found: Any) -> None:
        """Keep a cell."""
        self.cells[self._key(of)] = found
        make_folder(self.path.parent)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"of": of, "found": found}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _key(of: Mapping[str, object]) -> str:
        return json.dumps(of, sort_keys=True)


class Deadline:
    """A time by which a run that can be cut must have ended; none at all where `seconds` is None."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self.start = seconds, time.perf_counter()

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return self.seconds is not None and time.perf_counter() - self.start > self.seconds

    def epochs(self, a_epoch: float, cells: int, least: int, most: int, setting_up: float = 0.8) -> int:
        """How many epochs of all cells the time allows, evaluation counted as one more; `most` without a limit.

        >>> Deadline(100).epochs(a_epoch=5.0, cells=10, least=2, most=50) in (16, 17)
        True
        """
        if self.seconds is None:
            return most
        left = self.seconds - (time.perf_counter() - self.start) - setting_up * cells
        return max(least, min(most, int(left / a_epoch) - 1))
