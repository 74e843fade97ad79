"""What a disk can do, tried in a store's folder before rows are trusted to it: locks that hold, a journal that undoes.

Rollback journals alone are tried. The write-ahead mode of SQLite keeps its index in memory that processes share, which
network disks do not have, and a reader would have to write beside the store; a rollback journal needs neither.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headcount.files import make_folder
from headcount.results.database import StoreError, in_one_line

try:
    import fcntl
except ImportError:  # Windows: its locks are those of the system and always hold
    fcntl = None

JOURNALS = ("delete", "truncate", "persist")  # the first that works is used


@dataclass(frozen=True)
class DiskProbe:
    """Whether locks keep others out, and the journal mode that works."""

    locks: bool
    journal: str

    @property
    def notes(self) -> tuple[str, ...]:
        """A line for each way in which the disk is not the usual one."""
        lines = []
        if not self.locks:
            lines.append("locks on this disk keep nobody out: run one sweep at a time on this store")
        if self.journal != JOURNALS[0]:
            lines.append(f"this disk does not {JOURNALS[0]} journals as it should; the store uses {self.journal!r}")
        return tuple(lines)


def probe_disk(folder: Path) -> DiskProbe:
    """Try locks and journals on a scratch file in the folder; refuse a disk where none works.

    >>> import tempfile
    >>> probe_disk(Path(tempfile.mkdtemp()))
    DiskProbe(locks=True, journal='delete')
    """
    make_folder(folder)
    with in_one_line(folder), _scratch(folder) as path:
        locks = _locks_hold(path)
        for journal in JOURNALS:
            if _undoes(path, journal):
                return DiskProbe(locks, journal)
    raise StoreError(f"{folder}: no journal of SQLite works on this disk; give `store` a folder on another")


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    path = folder / f"probe-{secrets.token_hex(8)}.part"
    try:
        yield path
    except OSError as problem:
        problem.filename = str(folder)  # a store cannot be written there
        raise
    finally:
        for rest in ("", "-journal"):
            with contextlib.suppress(OSError):
                path.with_name(path.name + rest).unlink(missing_ok=True)


def _locks_hold(path: Path) -> bool:
    """Whether a second opener is kept out of a byte that the first has locked."""
    if fcntl is None or not hasattr(fcntl, "F_OFD_SETLK"):
        return True
    import struct

    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for _ in range(2))
    try:
        fcntl.lockf(first, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        fcntl.fcntl(second, fcntl.F_OFD_SETLK, lock)
        return False
    except OSError as problem:
        if problem.errno in (errno.EAGAIN, errno.EACCES):
            return True
        if problem.errno == errno.EINVAL:  # such a lock is not known here
            return True
        raise StoreError(
            f"{path.parent}: this disk gives no locks ({os.strerror(problem.errno or 0).lower()}), "
            "which a store needs; give `store` a folder on another"
        ) from problem
    finally:
        os.close(first)
        os.close(second)


def _undoes(path: Path, journal: str) -> bool:
    """Whether a transaction that is taken back leaves what was there, as another opener sees it."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=1, isolation_level=None)) as db:
            (mode,) = db.execute(f"PRAGMA journal_mode={journal}").fetchone()
            for statement in ("PRAGMA synchronous=OFF", "PRAGMA cache_size=1", "CREATE TABLE IF NOT EXISTS t (x)"):
                db.execute(statement)
            db.execute("DELETE FROM t")
            db.execute("INSERT INTO t VALUES (1)")
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 50)
            db.execute("ROLLBACK")
        with contextlib.closing(sqlite3.connect(path, timeout=1)) as db:
            return mode == journal and db.execute("SELECT x FROM t").fetchall() == [(1,)]
    except sqlite3.Error as problem:
        if problem.sqlite_errorname.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE")):
            raise
        return False
