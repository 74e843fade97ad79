"""Effort by counting, not by the clock: the same number on an idle machine and on a busy one."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["lines_run", "steps_of_databases"]


def lines_run(work: Callable[[], object], most: int) -> int:
    """How many lines of Python `work` runs; past `most` it is stopped, so that what never ends fails soon."""
    lines = 0

    def count(frame: FrameType, event: str, detail: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines > most:
            sys.settrace(None)
            raise AssertionError(f"more than {most} lines were run, the last in {frame.f_code.co_qualname}")
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


@contextmanager
def steps_of_databases() -> Iterator[list[int]]:
    """A list whose one number grows with every instruction that SQLite makes for connections opened meanwhile."""
    steps, connect = [0], sqlite3.connect

    def step() -> int:
        steps[0] += 1
        return 0

    def counted(*rest: Any, **more: Any) -> sqlite3.Connection:
        db = connect(*rest, **more)
        db.set_progress_handler(step, 1)
        return db

    sqlite3.connect = counted
    try:
        yield steps
    finally:
        sqlite3.connect = connect
