"""The SQLite file under a store: opened for reading alone or for one transaction, its errors said in one line."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import sqlite3
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from headcount.files import make_folder
from headcount.refusals import RefusalError

__all__ = ["VERSION", "EmptyStoreError", "LockedError", "StoreError", "checksum", "in_one_line", "reading", "writing"]

VERSION = 2  # 0 is what headcount 0.1.0 wrote: no checksums, one list of runs per spec
TABLES = {"rows", "environments", "specs"}
LOCK_WAIT = 60.0  # seconds
COPIES = 20  # tries to copy what a killed writer left before another writer changes it
SYNCHRONOUS = "EXTRA"  # a power cut after a transaction leaves it done
SCHEMA = """
CREATE TABLE rows (run TEXT PRIMARY KEY, member TEXT NOT NULL, row TEXT NOT NULL, environment TEXT NOT NULL,
                   status TEXT, checksum TEXT NOT NULL,
                   finished TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
CREATE TABLE environments (id TEXT PRIMARY KEY, environment TEXT NOT NULL);
CREATE TABLE specs (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE, name TEXT NOT NULL, spec TEXT NOT NULL,
                    turn INTEGER NOT NULL, asked INTEGER NOT NULL, kept INTEGER NOT NULL DEFAULT 0,
                    diverged INTEGER NOT NULL DEFAULT 0,
                    stated TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')));
CREATE TABLE asked (run TEXT NOT NULL, spec INTEGER NOT NULL, place INTEGER NOT NULL,
                    PRIMARY KEY (run, spec)) WITHOUT ROWID;
CREATE INDEX in_order ON asked (spec, place);
CREATE TRIGGER row_kept AFTER INSERT ON rows BEGIN
    UPDATE specs SET kept = kept + 1, diverged = diverged + (NEW.status IS 'diverged')
    WHERE id IN (SELECT spec FROM asked WHERE run = NEW.run); END;
CREATE TRIGGER row_dropped AFTER DELETE ON rows BEGIN
    UPDATE specs SET kept = kept - 1, diverged = diverged - (OLD.status IS 'diverged')
    WHERE id IN (SELECT spec FROM asked WHERE run = OLD.run); END;
"""
COUNT = """
UPDATE specs SET (kept, diverged) = (SELECT count(*), coalesce(sum(status IS 'diverged'), 0)
                                     FROM asked JOIN rows USING (run) WHERE asked.spec = specs.id)
"""
SAID = {
    "SQLITE_FULL": "the disk is full; free some space and run the same command to go on",
    "SQLITE_IOERR": "the disk fails to read or write; look to it, then run the same command to go on",
    "SQLITE_READONLY": "it cannot be written here",
    "SQLITE_CANTOPEN": "it cannot be opened or made here",
    "SQLITE_PERM": "it may not be opened",
    "SQLITE_NOTADB": "it is not a headcount store: the file is no SQLite database",
    "SQLITE_CORRUPT": "it is damaged; `headcount store repair` saves every row that can be read",
}


class StoreError(RefusalError):
    """A store that cannot be read or written, and why, in one line."""


class EmptyStoreError(StoreError):
    """A file without a table: whoever made it was stopped before anything stood in it."""


class LockedError(StoreError):
    """A store that another program has kept locked for longer than one waits."""


def checksum(run: str, member: str, row: str, environment: str) -> str:
    """What a row's texts must hash to.

    >>> checksum("r", "{}", "{}", "e") == checksum("r", "{}", "{ }", "e")
    False
    """
    return hashlib.blake2b("\0".join((run, member, row, environment)).encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def writing(path: Path, wait: float | None = None, journal: str = "delete") -> Iterator[sqlite3.Connection]:
    """One transaction, all of it or nothing, on the disk when it ends; a missing file is made."""
    make_folder(path.parent)
    with in_one_line(path), contextlib.closing(_connected(path, wait)) as db:
        db.execute(f"PRAGMA synchronous={SYNCHRONOUS}")
        if journal != "delete":  # what every connection begins with
            db.execute(f"PRAGMA journal_mode={journal}")
        _prepare(db, path)
        with _transaction(db):
            yield db


@contextlib.contextmanager
def reading(path: Path, wait: float | None = None) -> Iterator[sqlite3.Connection]:
    """A connection that changes nothing: not the file, nothing beside it; it works on a read-only disk."""
    with in_one_line(path), contextlib.ExitStack() as stack:
        db = _opened(path, wait, stack)
        version = _version(db, path)
        if version < VERSION:  # an older store is read from a copy brought up to date
            copy = stack.enter_context(contextlib.closing(sqlite3.connect("", isolation_level=None)))
            db.backup(copy)
            _prepare(copy, path)
            db = copy
        db.execute("BEGIN")
        yield db


def _opened(path: Path, wait: float | None, stack: contextlib.ExitStack) -> sqlite3.Connection:
    if not path.is_file():
        raise FileNotFoundError(f"no study at {path.parent}: {path} does not exist; `headcount sweep` makes one")
    for _ in range(COPIES):
        with contextlib.ExitStack() as attempt:
            try:
                db = attempt.enter_context(contextlib.closing(_read_only(path, wait)))
                db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.OperationalError as problem:
                if not problem.sqlite_errorname.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
                    raise
                db = _undone(path, attempt)
            if db is not None:
                stack.enter_context(attempt.pop_all())
                return db
    raise LockedError(f"{path}: it changes faster than it can be read; run the same command again")


def _undone(path: Path, stack: contextlib.ExitStack) -> sqlite3.Connection | None:
    """A copy in which is undone what a writer that was killed in a transaction left; None if it changed meanwhile."""
    folder = Path(stack.enter_context(TemporaryDirectory()))
    files = [path.with_name(f"{path.name}{rest}") for rest in ("", "-journal", "-wal")]
    before = [_stamp(file) for file in files]
    for file, stamp in zip(files, before, strict=True):
        if stamp is not None:
            with contextlib.suppress(FileNotFoundError):  # then its stamp differs
                shutil.copyfile(file, folder / file.name)
    if [_stamp(file) for file in files] != before:  # another writer came: half of the copy would be older
        return None
    return stack.enter_context(contextlib.closing(sqlite3.connect(folder / path.name, isolation_level=None)))


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = file.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns
    except FileNotFoundError:
        return None


def _read_only(path: Path, wait: float | None) -> sqlite3.Connection:
    # A file in write-ahead mode (0.1.0) wants two more beside it even to be read, unless it is said not to change.
    log = path.with_name(f"{path.name}-wal")
    settled = _is_write_ahead(path) and not (log.exists() and log.stat().st_size)
    address = f"file:{urllib.parse.quote(str(path.absolute()))}?mode=ro{'&immutable=1' if settled else ''}"
    return _connected(address, wait)


def _connected(file: Path | str, wait: float | None) -> sqlite3.Connection:
    """A connection that waits so many seconds for a lock, and begins no transaction by itself."""
    seconds = LOCK_WAIT if wait is None else wait
    return sqlite3.connect(file, timeout=seconds, isolation_level=None, uri=isinstance(file, str))


def _is_write_ahead(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(20)[18:20] == b"\x02\x02"


def _version(db: sqlite3.Connection, path: Path) -> int:
    """The version of a store's tables; a database of anybody else's is refused."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if not tables:
        raise EmptyStoreError(f"{path} is empty, so not a headcount store yet; a sweep that begins fills it at once")
    if not tables >= TABLES:
        raise StoreError(f"{path} is not a headcount store: it lacks the table {min(TABLES - tables)!r}")
    if version > VERSION:
        raise StoreError(f"{path} was written by a newer headcount (version {version}, this one reads {VERSION})")
    return version


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables in an empty file, or bring an older store's up to date; touch nobody else's."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version == VERSION:
        _version(db, path)
        return
    with contextlib.suppress(sqlite3.OperationalError):  # as it is while others are connected
        db.execute("PRAGMA journal_mode=DELETE")
    with _transaction(db):
        if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
            _execute_all(db, SCHEMA)
        elif _version(db, path) < VERSION:  # asked again, under the lock
            _bring_up_to_date(db)
        db.execute(f"PRAGMA user_version={VERSION}")


def _bring_up_to_date(db: sqlite3.Connection) -> None:
    db.create_function("checksum", 4, checksum)
    db.create_function("status_of", 1, lambda row: json.loads(row).get("status"))
    for table in ("rows", "specs", "environments"):
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    _execute_all(db, SCHEMA)
    db.execute("INSERT INTO environments SELECT id, environment FROM old_environments")
    db.execute("""INSERT INTO rows SELECT run, member, row, environment, status_of(row),
                  checksum(run, member, row, environment), finished FROM old_rows""")
    db.execute("""INSERT INTO specs (id, content, name, spec, turn, asked, stated)
                  SELECT id, 'old ' || id, name, spec, id, json_array_length(runs), stated FROM old_specs""")
    db.execute("""INSERT OR IGNORE INTO asked SELECT each.value, old_specs.id, each.key
                  FROM old_specs, json_each(old_specs.runs) AS each""")
    db.execute(COUNT)
    for table in ("rows", "specs", "environments"):
        db.execute(f"DROP TABLE old_{table}")


def _execute_all(db: sqlite3.Connection, script: str) -> None:
    """Every statement of a script, within the transaction (`executescript` would end it)."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a full disk may have ended it already
            db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def in_one_line(path: Path) -> Iterator[None]:
    """What SQLite finds wrong with the store at `path`, as a refusal."""
    try:
        yield
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise LockedError(f"{path}: another program keeps it locked; run the same command again") from problem
        said = next((words for kind, words in SAID.items() if name.startswith(kind)), str(problem))
        raise StoreError(f"{path}: {said}") from problem
