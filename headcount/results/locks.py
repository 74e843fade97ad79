"""Locks on banks: who trains what when several processes share a store. A dead process holds none.

A lock is one of the operating system on one byte of a file beside the store, at the place that the bank's address
names. The system gives it back when its holder ends, however it ends: no clock, no heartbeat, no process number.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from headcount.files import make_folder

try:
    import fcntl
except ImportError:  # Windows: every lock is granted, and rows are still kept once
    fcntl = None

__all__ = ["BankLocks"]

PLACES = 2**60


class BankLocks:
    """The locks that this process has on a store's banks; closing them gives all back.

    >>> import tempfile
    >>> with BankLocks(Path(tempfile.mkdtemp()) / "rows.claims") as locks:
    ...     locks.take("1f"), locks.take("1f"), locks.give_back("1f"), locks.take("1f")
    (True, False, None, True)
    """

    def __init__(self, path: Path) -> None:
        make_folder(path.parent)
        self.held: set[int] = set()
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def take(self, bank: str) -> bool:
        """Whether the bank of this address (hexadecimal) is now ours to train; never waits."""
        place = int(bank, 16) % PLACES
        if place in self.held:
            return False
        if fcntl is not None:
            try:
                fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            except (BlockingIOError, PermissionError):
                return False
        self.held.add(place)
        return True

    def give_back(self, bank: str) -> None:
        """Let others have it."""
        place = int(bank, 16) % PLACES
        if place in self.held and fcntl is not None:
            fcntl.lockf(self.file, fcntl.LOCK_UN, 1, place)
        self.held.discard(place)

    def __enter__(self) -> BankLocks:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self.file)
